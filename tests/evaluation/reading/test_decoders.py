"""Decoders on maps drawn by hand, against a column rule in plain Python and against all label sets listed."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench.evaluation.reading.component_decoder import (
    ComponentDecoder,
    fit_component_decoder,
    read_components,
    read_strongest,
)
from milbench.evaluation.reading.components import find_components, strongest_positions
from milbench.evaluation.reading.decoders import logarithms, posterior_given, read_columns
from milbench.evaluation.reading.patterns import String
from milbench.evaluation.reading.reader import Reader
from milbench.likelihood import best_label_set, instance_posterior
from tests._helpers.maps import draw

DECODER = ComponentDecoder(mass=0.5, apart=1.5, reach=(4.0,) * 10)


def texts(strings: list[String]) -> list[str]:
    return ["".join(map(str, string)) for string in strings]


def digits(*texts: str) -> list[String]:
    return [tuple(map(int, text)) for text in texts]


def components(probs: Tensor, decoder: ComponentDecoder = DECODER) -> list[str]:
    """The strings that the decoder `components` reads for a loss whose own label set is the most probable one."""
    given = posterior_given(probs, best_label_set(logarithms(probs))[0])
    return texts(read_components(find_components(*given), len(probs), decoder))


def column_rule(shown: list[list[int]], background: int) -> str:
    read, before = "", None
    for x in range(len(shown[0])):
        counts = Counter(row[x] for row in shown if row[x] != background)
        digit = min(counts, key=lambda c: (-counts[c], c)) if counts else None
        if digit is not None and digit != before:
            read += str(digit)
        before = digit
    return read


def columns(probs: Tensor) -> list[str]:
    return texts(read_columns(probs.argmax(dim=1), probs.shape[1] - 1))


def test_columns_agree_with_the_rule_in_plain_python() -> None:
    rng = torch.Generator().manual_seed(0)
    probs = torch.rand(300, 5, 4, 9, generator=rng)
    probs[:, -1] *= 2.2
    expected = [column_rule(shown, 4) for shown in probs.argmax(dim=1).tolist()]
    assert columns(probs) == expected  # with ties, blank columns, and digits that come again
    assert len({len(read) for read in expected}) > 4
    for height, width in ((1, 1), (3, 200)):
        some = torch.rand(2, 5, height, width, generator=rng)
        assert columns(some) == [column_rule(shown, 4) for shown in some.argmax(dim=1).tolist()]
    assert columns(probs[:0]) == []


@pytest.mark.parametrize("background", [0.0, 3.0, 5.0, 8.0])
def test_what_is_shown_is_the_argmax_of_the_posterior_given_the_best_of_all_label_sets(background: float) -> None:
    rng = torch.Generator().manual_seed(1)
    logits = 1.5 * torch.randn(25, 5, 3, 7, generator=rng, dtype=torch.float64)
    logits[:, -1] += background
    logits[torch.arange(25), torch.arange(25) % 4, 1, torch.arange(25) % 7] += 7.0
    log_probs = logits.log_softmax(dim=1)
    best, _ = best_label_set(log_probs)
    given = instance_posterior(log_probs, best)
    probs, shown = posterior_given(log_probs.exp(), best)
    assert torch.allclose(probs, given)
    wins = torch.stack([(shown == c).flatten(1).any(dim=1) for c in range(4)], dim=1)
    assert torch.equal(wins, best)  # every class of the set is shown, and no other
    moved = shown != given.argmax(dim=1)
    assert moved.flatten(1).sum(dim=1).max() <= 4


def sets(*labels: set[int]) -> Tensor:
    return torch.tensor([[c in one for c in range(10)] for one in labels])


def test_what_is_read_is_the_label_set_that_the_loss_finds() -> None:
    """The map is sure of a 1 and a 7, and nearly sure that there is no 4; the loss names other sets."""
    probs = 0.9 * draw("1...7... 1...7... ........", sure=0.999) + 0.1 * draw("........ " * 3, sure=0.999)
    for labels, read in (({1, 7}, "17"), ({1}, "1"), ({7}, "7"), (set(), "")):
        given, classes = posterior_given(probs, sets(labels))
        assert texts(read_columns(classes, 10)) == [read]
        assert {*classes.unique().tolist()} == labels | {10}
        assert torch.allclose(given.sum(dim=1), torch.ones(1, 3, 8, dtype=torch.float64))
    probs[0, 4, 0, 6] *= 2
    assert texts(read_columns(posterior_given(probs, sets({1, 4, 7}))[1], 10)) == ["174"]


def strongest(evidence: Tensor, labels: Tensor, tilt: float) -> str:
    found = strongest_positions(evidence, torch.nn.functional.pad(evidence, (0, 0, 0, 0, 0, 1)), labels)
    return texts(read_strongest(found, 1, ComponentDecoder(tilt=tilt)))[0]


@pytest.mark.parametrize(
    ("picture", "labels", "read"),
    [
        ("1...... ......2 .......", {1, 2}, "12"),
        ("......1 2...... .......", {1, 2}, "21"),
        ("1...... ....... .2.....", {1, 2}, "12"),  # further down than across: from top to bottom
        (".1..... ....... 2......", {1, 2}, "12"),
        ("1..1... ....... .......", {1}, "1"),  # no digit is written twice
        ("1...2.. ....... .......", {2}, "2"),
        ("1...2.. ....... .......", set(), ""),
    ],
)
def test_the_strongest_positions_by_hand(picture: str, labels: set[int], read: str) -> None:
    assert strongest(draw(picture)[:, :-1], sets(labels), tilt=1.0) == read


def test_the_strongest_positions_are_those_of_the_evidence_and_have_the_learnt_tilt() -> None:
    evidence = torch.zeros(1, 10, 3, 7)
    evidence[0, 1, 0, 5], evidence[0, 2, 2, 4] = 3.0, 8.0
    assert strongest(evidence, sets({1, 2}), tilt=1.0) == "12"  # two down, one across
    assert strongest(evidence, sets({1, 2}), tilt=3.0) == "21"


@pytest.mark.parametrize(
    ("picture", "read"),
    [
        (".......... .......... ..........", ""),
        ("1....1.... 1....1.... ..........", "11"),
        (".11..1.... .1...1.... ..........", "11"),
        ("1111111... 1111111... ..........", "11"),  # one component, as wide as two digits
        ("6.6....... 6.66...... ..........", "6"),  # two components of one digit
        ("6.6...6.6. 66....6... ..........", "66"),
        ("00000..... 0...0..... 00000.....", "00"),  # wider than one digit reaches: see the decoder below
        ("4......... ....5..... .........6", "456"),  # slanted
        (".........4 ....5..... 6.........", "654"),
        ("2.....1... .......... ..........", "21"),
    ],
)
def test_components_by_hand(picture: str, read: str) -> None:
    assert components(draw(picture, sure=0.999)) == [read]
    flipped = " ".join(map("".join, zip(*picture.split(), strict=True)))
    if len(find_components(draw(picture))) > 1:  # from top to bottom; a component alone is read from left to right
        assert components(draw(flipped, sure=0.999)) == [read]


def test_weak_components_and_crowded_ones_are_dropped() -> None:
    probs = draw("11...7.... 11...77... ..........", sure=0.999)
    assert components(probs) == ["17"]
    assert components(probs, DECODER.model_copy(update={"mass": 3.5})) == ["1"]
    crowded = draw("11.5...... 11........ ..........", sure=0.999)
    assert components(crowded) == ["15"]
    assert components(crowded, DECODER.model_copy(update={"apart": 3.0})) == ["1"]
    alike = draw("11.1...... 11........ ..........", sure=0.999)
    assert components(alike, DECODER.model_copy(update={"apart": 3.0})) == ["1"]


def test_components_are_those_of_a_flood_fill() -> None:
    rng = torch.Generator().manual_seed(2)
    probs = torch.rand(40, 4, 6, 7, generator=rng, dtype=torch.float64)
    probs[:, -1] *= 1.3
    shown = probs.argmax(dim=1).tolist()
    expected = []
    for b, c in ((b, c) for b in range(40) for c in range(3)):
        left = {(y, x) for y in range(6) for x in range(7) if shown[b][y][x] == c}
        while left:
            todo, part = [left.pop()], []
            while todo:
                y, x = todo.pop()
                part.append((y, x))
                near = {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
                left -= near
                todo += near
            ys, xs = zip(*part, strict=True)
            weights = [float(probs[b, c, y, x]) for y, x in part]
            middle = [np.average(axis, weights=weights) for axis in (ys, xs)]
            expected.append((b, c, sum(weights), *middle, min(ys), min(xs), max(ys) + 1, max(xs) + 1))
    found = find_components(probs)
    got = zip(*(getattr(found, f.name).tolist() for f in dataclasses.fields(found)), strict=True)
    assert np.allclose(sorted(got), sorted(expected))
    assert len(find_components(probs[:0])) == len(find_components(draw("...", "..."))) == 0
    assert (np.diff(found.image) >= 0).all()


def test_a_decoder_learns_how_far_a_digit_reaches_and_what_to_drop() -> None:
    """Ones stand four apart and are two wide; zeros are seven wide. Specks of one position are no digits."""
    lines = {"1": "11..", "0": "0000000..", "8": "88....."}
    rng = np.random.default_rng(0)
    truth, pictures = [], []
    for _ in range(60):
        string = "".join(rng.choice(list(lines), 3))
        line = "".join(lines[c] for c in string).ljust(36, ".")
        speck = list("." * 36)
        speck[int(rng.integers(30, 36))] = "5"
        truth.append(string)
        pictures.append(f"{line} {line} {'.' * 36} {''.join(speck)}")
    found = find_components(draw(*pictures, sure=0.999))
    decoder = fit_component_decoder(found, digits(*truth))
    assert texts(read_components(found, 60, decoder)) == truth
    assert decoder.mass > 1
    assert 2 <= decoder.reach[1] <= 5
    assert 7 <= decoder.reach[0] <= 15
    kept = json.dumps(Reader(learnt=decoder).model_dump(mode="json"), allow_nan=False)
    assert Reader.model_validate(json.loads(kept)).learnt == decoder


def test_a_decoder_learns_how_steep_a_number_beside_each_other_may_look() -> None:
    """A network is sure of a 2 at its foot and of a 7 at its bar: 27 falls more than it goes, and is read across."""
    across = "...77. ...77. ...... ...... .22... .22..."
    down = "..22.. ..22.. ...... ...... ..77.. ..77.."
    found = find_components(draw(*[across] * 5, down, sure=0.999))
    truth = ["27"] * 6
    assert texts(read_components(found, 6, ComponentDecoder(reach=(4.0,) * 10))) == ["72"] * 5 + ["27"]
    decoder = fit_component_decoder(found, digits(*truth))
    assert texts(read_components(found, 6, decoder)) == truth
    assert 2 <= decoder.tilt < 100
    alone = fit_component_decoder(find_components(draw(down, sure=0.999)), digits("27"))
    assert alone.tilt == 1, "what is not needed is not learnt"
