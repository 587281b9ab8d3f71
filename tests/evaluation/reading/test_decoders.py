"""Decoders on maps drawn by hand, against a column rule in plain Python and against all label sets listed."""

import dataclasses
import itertools
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
from milbench.evaluation.reading.patterns import String
from milbench.evaluation.reading.reader import Reader, logarithms, posterior_given, read_columns
from milbench.likelihood import best_label_set, instance_posterior
from tests._helpers.label_maps import draw

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
    read = []
    for column in zip(*shown, strict=True):
        counts = Counter(cls for cls in column if cls != background)
        read.append(str(min(counts, key=lambda c: (-counts[c], c))) if counts else " ")
    return "".join(digit for digit, _ in itertools.groupby(read)).replace(" ", "")


def test_columns_agree_with_the_rule_in_plain_python() -> None:
    rng = torch.Generator().manual_seed(0)
    probs = torch.rand(300, 5, 4, 9, generator=rng)
    probs[:, -1] *= 2.2
    for maps in (
        probs,
        torch.rand(2, 5, 1, 1, generator=rng),
        torch.rand(2, 5, 3, 200, generator=rng),
        probs[:0],
    ):
        expected = [column_rule(shown, 4) for shown in maps.argmax(dim=1).tolist()]
        assert (
            texts(read_columns(maps.argmax(dim=1), 4)) == expected
        )  # with ties, blank columns, and digits again
        assert len(maps) < 300 or len({len(read) for read in expected}) > 4


@pytest.mark.parametrize("background", [0.0, 3.0, 5.0, 8.0])
def test_what_is_shown_is_the_argmax_of_the_posterior_given_the_best_of_all_label_sets(
    background: float,
) -> None:
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
    probs = 0.9 * draw("1...7... 1...7... ........", sure=0.999) + 0.1 * draw(
        "........ " * 3, sure=0.999
    )
    for labels, read in (({1, 7}, "17"), ({1}, "1"), ({7}, "7"), (set(), "")):
        given, classes = posterior_given(probs, sets(labels))
        assert texts(read_columns(classes, 10)) == [read]
        assert torch.allclose(given.sum(dim=1), torch.ones(1, 3, 8, dtype=torch.float64))
    probs[0, 4, 0, 6] *= 2
    assert texts(read_columns(posterior_given(probs, sets({1, 4, 7}))[1], 10)) == ["174"]


@pytest.mark.parametrize(("picture", "labels", "tilt", "read"), [
    ("1...... ......2 .......", {1, 2}, 1, "12"),
    ("......1 2...... .......", {1, 2}, 1, "21"),
    ("1...... ....... .2.....", {1, 2}, 1, "12"),  # further down than across: from top to bottom
    (".1..... ....... 2......", {1, 2}, 1, "12"),
    (".....1. ....... ....2..", {1, 2}, 1, "12"),  # two down, one across
    (".....1. ....... ....2..", {1, 2}, 3, "21"),
    ("1..1... ....... .......", {1}, 1, "1"),  # no digit is written twice
    ("1...2.. ....... .......", {2}, 1, "2"),
    ("1...2.. ....... .......", set(), 1, ""),
])  # fmt: skip
def test_the_strongest_positions_by_hand(
    picture: str, labels: set[int], tilt: float, read: str
) -> None:
    probs = draw(picture)
    found = strongest_positions(probs[:, :-1], probs, sets(labels))
    assert texts(read_strongest(found, 1, ComponentDecoder(tilt=tilt))) == [read]


@pytest.mark.parametrize(("picture", "read"), [
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
])  # fmt: skip
def test_components_by_hand(picture: str, read: str) -> None:
    assert components(draw(picture, sure=0.999)) == [read]
    flipped = " ".join(map("".join, zip(*picture.split(), strict=True)))
    if (
        len(find_components(draw(picture))) > 1
    ):  # from top to bottom; a component alone is read from left to right
        assert components(draw(flipped, sure=0.999)) == [read]


def test_weak_components_and_crowded_ones_are_dropped() -> None:
    for picture, change, all_read in (
        ("11...7.... 11...77... ..........", {"mass": 3.5}, "17"),
        ("11.5...... 11........ ..........", {"apart": 3.0}, "15"),
        ("11.1...... 11........ ..........", {"apart": 3.0}, "1"),
    ):
        probs = draw(picture, sure=0.999)
        assert components(probs) == [all_read]
        assert components(probs, DECODER.model_copy(update=change)) == ["1"]


def test_components_are_those_of_a_flood_fill() -> None:
    rng = torch.Generator().manual_seed(2)
    probs = torch.rand(40, 4, 6, 7, generator=rng, dtype=torch.float64)
    probs[:, -1] *= 1.3
    shown = probs.argmax(dim=1).tolist()
    expected = []
    for b, c in itertools.product(range(40), range(3)):
        left = {(y, x) for y in range(6) for x in range(7) if shown[b][y][x] == c}
        while left:
            part = todo = {left.pop()}
            while todo:
                near = {(y + i, x + j) for y, x in todo for i in (-1, 0, 1) for j in (-1, 0, 1)}
                todo = near & left
                left, part = left - todo, part | todo
            ys, xs = zip(*part, strict=True)
            weights = [float(probs[b, c, y, x]) for y, x in part]
            middle = [np.average(axis, weights=weights) for axis in (ys, xs)]
            expected.append(
                (b, c, sum(weights), *middle, min(ys), min(xs), max(ys) + 1, max(xs) + 1)
            )
    found = find_components(probs)
    got = zip(*(getattr(found, f.name).tolist() for f in dataclasses.fields(found)), strict=True)
    assert np.allclose(sorted(got), sorted(expected))
    assert len(find_components(probs[:0])) == len(find_components(draw("...", "..."))) == 0
    assert (np.diff(found.image) >= 0).all()


def test_a_decoder_learns_how_far_a_digit_reaches_and_what_to_drop() -> None:
    """Ones stand four apart and are two wide; zeros are seven wide. Specks of one position are no digits."""
    lines = {"1": "11..", "0": "0000000..", "8": "88....."}
    rng = np.random.default_rng(0)
    truth = ["".join(rng.choice(list(lines), 3)) for _ in range(60)]
    pictures = []
    for string in truth:
        line = "".join(lines[c] for c in string).ljust(36, ".")
        speck = ("." * int(rng.integers(30, 36)) + "5").ljust(36, ".")
        pictures.append(f"{line} {line} {'.' * 36} {speck}")
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
    assert texts(read_components(found, 6, ComponentDecoder(reach=(4.0,) * 10))) == ["72"] * 5 + [
        "27"
    ]
    decoder = fit_component_decoder(found, digits(*truth))
    assert texts(read_components(found, 6, decoder)) == truth
    assert 2 <= decoder.tilt < 100
    alone = fit_component_decoder(find_components(draw(down, sure=0.999)), digits("27"))
    assert alone.tilt == 1, "what is not needed is not learnt"
