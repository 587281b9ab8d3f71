"""Decoders, which read strings of digits from maps: maps by hand, and rules in plain Python."""

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
from milbench.evaluation.reading.components import (
    Components,
    find_components,
    strongest_positions,
)
from milbench.evaluation.reading.patterns import String
from milbench.evaluation.reading.reader import Reader, logarithms, posterior_given, read_columns
from milbench.likelihood import best_label_set, instance_posterior
from tests._helpers.label_maps import draw

DECODER = ComponentDecoder(mass=0.5, apart=1.5, reach=(4.0,) * 10)


def texts(strings: list[String]) -> list[str]:
    return ["".join(map(str, string)) for string in strings]


def digits(*written: str) -> list[String]:
    return [tuple(map(int, text)) for text in written]


def components(probs: Tensor, decoder: ComponentDecoder = DECODER) -> list[str]:
    """Return what the decoder `components` reads, given the most probable label sets."""
    label_sets, _ = best_label_set(logarithms(probs))
    given, classes = posterior_given(probs, label_sets)
    return texts(read_components(find_components(given, classes), len(probs), decoder))


def column_rule(shown: list[list[int]], background: int) -> str:
    """Read one map: the most frequent digit of each column, and each run of a digit once.

    Of two digits that are equally frequent in a column, the lower one counts.
    """
    columns = zip(*shown, strict=True)
    read = [digit_of_column(column, background) for column in columns]
    without_repeats = "".join(digit for digit, _ in itertools.groupby(read))
    return without_repeats.replace(" ", "")


def digit_of_column(column: tuple[int, ...], background: int) -> str:
    counts = Counter(cls for cls in column if cls != background)
    if not counts:
        return " "
    most = max(counts.values())
    most_frequent = [cls for cls, count in counts.items() if count == most]
    return str(min(most_frequent))


def random_probs(count: int, height: int, width: int) -> Tensor:
    """Return maps of 4 digits and background.

    Most have columns without a digit, ties, and a digit that is read twice.
    """
    rng = torch.Generator().manual_seed(0)
    probs = torch.rand(count, 5, height, width, generator=rng)
    probs[:, -1] *= 2.2
    return probs


@pytest.mark.parametrize(
    ("count", "height", "width"),
    [
        pytest.param(300, 4, 9, id="many"),
        pytest.param(2, 1, 1, id="one position"),
        pytest.param(2, 3, 200, id="wide"),
        pytest.param(0, 4, 9, id="none"),
    ],
)
def test_columns_agree_with_the_rule_in_plain_python(count: int, height: int, width: int) -> None:
    shown = random_probs(count, height, width).argmax(dim=1)
    expected = [column_rule(one, 4) for one in shown.tolist()]
    assert texts(read_columns(shown, 4)) == expected


def test_the_random_maps_are_read_as_strings_of_many_lengths() -> None:
    shown = random_probs(300, 4, 9).argmax(dim=1)
    assert len({len(column_rule(one, 4)) for one in shown.tolist()}) > 4


@pytest.fixture(params=[0.0, 3.0, 5.0, 8.0], ids=lambda value: f"background {value:.0f}")
def log_probs(request: pytest.FixtureRequest) -> Tensor:
    """Return maps of 25 bags with one sure digit each, for several levels of background."""
    rng = torch.Generator().manual_seed(1)
    logits = 1.5 * torch.randn(25, 5, 3, 7, generator=rng, dtype=torch.float64)
    logits[:, -1] += request.param
    bag = torch.arange(25)
    logits[bag, bag % 4, 1, bag % 7] += 7.0
    return logits.log_softmax(dim=1)


def test_the_posterior_given_a_set_agrees_with_the_likelihood(log_probs: Tensor) -> None:
    best, _ = best_label_set(log_probs)
    probs, _ = posterior_given(log_probs.exp(), best)
    assert torch.allclose(probs, instance_posterior(log_probs, best))


def test_exactly_the_classes_of_a_set_are_shown(log_probs: Tensor) -> None:
    best, _ = best_label_set(log_probs)
    _, shown = posterior_given(log_probs.exp(), best)
    is_shown = torch.stack([(shown == c).flatten(1).any(dim=1) for c in range(4)], dim=1)
    assert torch.equal(is_shown, best)


def test_few_positions_show_another_class_than_the_likeliest(log_probs: Tensor) -> None:
    best, _ = best_label_set(log_probs)
    _, shown = posterior_given(log_probs.exp(), best)
    is_moved = shown != instance_posterior(log_probs, best).argmax(dim=1)
    # A position changes only if a class of the set would not be shown otherwise: at most one
    # position for each of the four classes.
    assert is_moved.flatten(1).sum(dim=1).max() <= 4


def sets(*label_sets: set[int]) -> Tensor:
    """Return label sets of ten classes as (B, 10) bool."""
    rows = [[c in label_set for c in range(10)] for label_set in label_sets]
    return torch.tensor(rows)


def map_with_a_1_and_a_7() -> Tensor:
    """Return a map that is sure of a 1 and a 7, and nearly sure that there is no other digit."""
    sure = draw("1...7... 1...7... ........", sure=0.999)
    empty = draw("........ ........ ........", sure=0.999)
    return 0.9 * sure + 0.1 * empty


@pytest.mark.parametrize(
    ("labels", "read"),
    [
        pytest.param({1, 7}, "17", id="both"),
        pytest.param({1}, "1", id="the 1 alone"),
        pytest.param({7}, "7", id="the 7 alone"),
        pytest.param(set(), "", id="neither"),
    ],
)
def test_what_is_read_is_the_label_set_of_the_loss(labels: set[int], read: str) -> None:
    given, classes = posterior_given(map_with_a_1_and_a_7(), sets(labels))
    assert texts(read_columns(classes, 10)) == [read]
    assert torch.allclose(given.sum(dim=1), torch.ones(1, 3, 8, dtype=torch.float64))


def test_an_unlikely_digit_is_read_where_it_is_likeliest() -> None:
    probs = map_with_a_1_and_a_7()
    # A four is unlikely everywhere, and twice as likely to the right of the seven as elsewhere.
    probs[0, 4, 0, 6] *= 2
    _, classes = posterior_given(probs, sets({1, 4, 7}))
    assert texts(read_columns(classes, 10)) == ["174"]


@pytest.mark.parametrize(
    ("picture", "labels", "tilt", "read"),
    [
        pytest.param("1...... ......2 .......", {1, 2}, 1, "12", id="across"),
        pytest.param("......1 2...... .......", {1, 2}, 1, "21", id="across, the lower first"),
        pytest.param("1...... ....... .2.....", {1, 2}, 1, "12", id="further down than across"),
        pytest.param(".1..... ....... 2......", {1, 2}, 1, "12", id="down, the right one first"),
        pytest.param(".....1. ....... ....2..", {1, 2}, 1, "12", id="two down and one across"),
        pytest.param(".....1. ....... ....2..", {1, 2}, 3, "21", id="not steeper than the tilt"),
        pytest.param("1..1... ....... .......", {1}, 1, "1", id="no digit is written twice"),
        pytest.param("1...2.. ....... .......", {2}, 1, "2", id="the 1 is not in the set"),
        pytest.param("1...2.. ....... .......", set(), 1, "", id="the set is empty"),
    ],
)
def test_the_strongest_positions_by_hand(
    picture: str, labels: set[int], tilt: float, read: str
) -> None:
    probs = draw(picture)
    found = strongest_positions(probs[:, :-1], probs, sets(labels))
    assert texts(read_strongest(found, 1, ComponentDecoder(tilt=tilt))) == [read]


SEVERAL_COMPONENTS = [
    pytest.param("1....1.... 1....1.... ..........", "11", id="two ones"),
    pytest.param(".11..1.... .1...1.... ..........", "11", id="two ones of different width"),
    pytest.param("6.6....... 6.66...... ..........", "6", id="two components of one digit"),
    pytest.param("6.6...6.6. 66....6... ..........", "66", id="four components of two digits"),
    pytest.param("4......... ....5..... .........6", "456", id="slanted down"),
    pytest.param(".........4 ....5..... 6.........", "654", id="slanted up"),
    pytest.param("2.....1... .......... ..........", "21", id="two digits"),
]
# DECODER takes a component that is wider than 4 positions for two digits.
ONE_COMPONENT_OR_NONE = [
    pytest.param(".......... .......... ..........", "", id="none"),
    pytest.param("1111111... 1111111... ..........", "11", id="as wide as two digits"),
    pytest.param("00000..... 0...0..... 00000.....", "00", id="a little wider than one digit"),
]


@pytest.mark.parametrize(("picture", "read"), SEVERAL_COMPONENTS + ONE_COMPONENT_OR_NONE)
def test_components_by_hand(picture: str, read: str) -> None:
    assert components(draw(picture, sure=0.999)) == [read]


@pytest.mark.parametrize(("picture", "read"), SEVERAL_COMPONENTS)
def test_a_transposed_map_is_read_from_top_to_bottom(picture: str, read: str) -> None:
    columns = zip(*picture.split(), strict=True)
    turned = " ".join("".join(column) for column in columns)
    assert components(draw(turned, sure=0.999)) == [read]


@pytest.mark.parametrize(
    ("picture", "change", "all_read"),
    [
        pytest.param("11...7.... 11...77... ..........", {"mass": 3.5}, "17", id="weak"),
        pytest.param("11.5...... 11........ ..........", {"apart": 3.0}, "15", id="near another"),
        pytest.param("11.1...... 11........ ..........", {"apart": 3.0}, "1", id="near its like"),
    ],
)
def test_weak_components_and_crowded_ones_are_dropped(
    picture: str, change: dict[str, float], all_read: str
) -> None:
    probs = draw(picture, sure=0.999)
    assert components(probs) == [all_read]
    assert components(probs, DECODER.model_copy(update=change)) == ["1"]


Position = tuple[int, int]
"""Row and column."""


def connected_parts(positions: set[Position]) -> list[list[Position]]:
    """Return the groups of positions that touch each other, by a flood fill.

    Positions that touch only at corners belong together, too.
    """
    left = set(positions)
    parts = []
    while left:
        reached = [left.pop()]
        # The list grows while the loop runs over it, until the last position has no neighbour left.
        for y, x in reached:
            for neighbour in itertools.product((y - 1, y, y + 1), (x - 1, x, x + 1)):
                if neighbour in left:
                    left.remove(neighbour)
                    reached.append(neighbour)
        parts.append(reached)
    return parts


def component_of(image: int, cls: int, part: list[Position], probs: Tensor) -> tuple[float, ...]:
    """Return the fields of a component in the order of the class `Components`."""
    ys = [y for y, _ in part]
    xs = [x for _, x in part]
    weights = [float(probs[image, cls, y, x]) for y, x in part]
    return (
        image,
        cls,
        sum(weights),
        float(np.average(ys, weights=weights)),
        float(np.average(xs, weights=weights)),
        min(ys),
        min(xs),
        max(ys) + 1,
        max(xs) + 1,
    )


def test_components_agree_with_a_flood_fill() -> None:
    rng = torch.Generator().manual_seed(2)
    probs = torch.rand(40, 4, 6, 7, generator=rng, dtype=torch.float64)
    probs[:, -1] *= 1.3
    shown = probs.argmax(dim=1)
    expected: list[tuple[float, ...]] = []
    for image, cls in itertools.product(range(40), range(3)):
        rows, columns = torch.nonzero(shown[image] == cls, as_tuple=True)
        positions = set(zip(rows.tolist(), columns.tolist(), strict=True))
        parts = connected_parts(positions)
        expected.extend(component_of(image, cls, part, probs) for part in parts)
    found = find_components(probs)
    fields = [getattr(found, field.name).tolist() for field in dataclasses.fields(found)]
    components_found = zip(*fields, strict=True)
    assert np.allclose(sorted(components_found), sorted(expected))
    assert (np.diff(found.image) >= 0).all()


@pytest.mark.parametrize(
    "probs",
    [
        pytest.param(draw("...", "..."), id="background alone"),
        pytest.param(draw("1..")[:0], id="no bags"),
    ],
)
def test_maps_may_have_no_components(probs: Tensor) -> None:
    assert len(find_components(probs)) == 0


LINES = {"1": "11..", "0": "0000000..", "8": "88....."}
"""How each digit is drawn in a line: ones are two positions wide, zeros seven, eights two."""


@pytest.fixture(scope="module")
def of_lines() -> tuple[Components, list[str], ComponentDecoder]:
    """Return the components of 60 strings, the strings, and a decoder that learnt from them.

    Each picture has a speck of one position, which is no digit.
    """
    rng = np.random.default_rng(0)
    strings = ["".join(rng.choice(list(LINES), 3)) for _ in range(60)]
    pictures = []
    for string in strings:
        line = "".join(LINES[c] for c in string).ljust(36, ".")
        empty = "." * 36
        before_speck = "." * int(rng.integers(30, 36))
        speck = f"{before_speck}5".ljust(36, ".")
        pictures.append(f"{line} {line} {empty} {speck}")
    found = find_components(draw(*pictures, sure=0.999))
    return found, strings, fit_component_decoder(found, digits(*strings))


def test_a_decoder_learns_to_read_its_strings(
    of_lines: tuple[Components, list[str], ComponentDecoder],
) -> None:
    found, strings, decoder = of_lines
    assert texts(read_components(found, 60, decoder)) == strings


def test_a_decoder_learns_to_drop_specks(
    of_lines: tuple[Components, list[str], ComponentDecoder],
) -> None:
    _, _, decoder = of_lines
    # A speck has a mass of about 1.
    assert decoder.mass > 1


def test_a_decoder_learns_how_far_a_digit_reaches(
    of_lines: tuple[Components, list[str], ComponentDecoder],
) -> None:
    _, _, decoder = of_lines
    # A one is two positions wide and two ones together are six; a zero is seven, two are 16 wide.
    assert 2 <= decoder.reach[1] <= 5
    assert 7 <= decoder.reach[0] <= 15


def test_a_decoder_is_kept_in_json(
    of_lines: tuple[Components, list[str], ComponentDecoder],
) -> None:
    _, _, decoder = of_lines
    kept = json.dumps(Reader(learnt=decoder).model_dump(mode="json"), allow_nan=False)
    assert Reader.model_validate(json.loads(kept)).learnt == decoder


# A network may be sure of a 2 only at its foot, and of a 7 only at its bar. In this map of the
# number 27 the digits are further apart vertically than horizontally.
STEEP = "...77. ...77. ...... ...... .22... .22..."
DOWNWARDS = "..22.. ..22.. ...... ...... ..77.. ..77.."


def test_a_number_that_looks_steep_is_read_downwards_at_first() -> None:
    found = find_components(draw(STEEP, DOWNWARDS, sure=0.999))
    assert texts(read_components(found, 2, ComponentDecoder(reach=(4.0,) * 10))) == ["72", "27"]


def test_a_decoder_learns_how_steep_a_number_may_look() -> None:
    found = find_components(draw(*[STEEP] * 5, DOWNWARDS, sure=0.999))
    strings = ["27"] * 6
    decoder = fit_component_decoder(found, digits(*strings))
    assert texts(read_components(found, 6, decoder)) == strings
    assert 2 <= decoder.tilt < 100


def test_a_decoder_learns_no_tilt_that_it_does_not_need() -> None:
    # A tilt of 1 is the default.
    found = find_components(draw(DOWNWARDS, sure=0.999))
    assert fit_component_decoder(found, digits("27")).tilt == 1
