"""Patterns of errors by example, and the metrics of reading from bags to names."""

import pytest
import torch
from torch import Tensor

from milbench.contracts.bags import Bags, Truth, label_matrix
from milbench.contracts.decoder import PATTERNS
from milbench.contracts.metric_info import METRICS
from milbench.contracts.predictions import Predictions
from milbench.contracts.problem import Evaluation
from milbench.contracts.scores import Scores
from milbench.evaluation.evaluate import evaluation_of, predictions_of
from milbench.evaluation.metrics import outcomes
from milbench.evaluation.reading.patterns import (
    String,
    error_pattern,
    is_vertical,
)
from milbench.evaluation.reading.reader import Reader
from milbench.evaluation.reading.reading_hook import ReadingHook
from tests._helpers.label_maps import draw


def digits(text: str) -> String:
    return tuple(map(int, text))


@pytest.mark.parametrize(("read", "truth", "vertical", "winning", "expected"), [
    ("12", "12", True, "12", None),
    ("", "12", True, "12", "no_detection"),
    ("21", "12", False, "12", "orientation"),
    ("2", "12", True, "12", "orientation"),
    ("2", "12", True, "2", "edge_or_one"),
    ("1", "11", False, "1", "clustering"),
    ("1", "11", True, "1", "orientation"),
    ("17", "7", False, "17", "edge_or_one"),
    ("117", "77", False, "17", "other"),
    ("12", "22", False, "12", "substitution"),
    ("52", "528", False, "52", "other"),
])  # fmt: skip
def test_patterns_by_example(
    read: str, truth: str, vertical: bool, winning: str, expected: str | None
) -> None:
    assert error_pattern(digits(read), digits(truth), vertical, {*digits(winning)}) == expected


def test_vertical_numbers_by_their_boxes() -> None:
    classes = torch.tensor([[1, 2], [1, 2], [1, -1], [-1, -1], [1, 2]])
    beside, below = [[0, 0, 4, 9], [5, 2, 9, 11]], [[0, 0, 4, 9], [1, 10, 5, 19]]
    tall = [
        [0, 0, 4, 40],
        [5, 2, 9, 42],
    ]  # as tall as it may be, what counts is where the middles are
    boxes = torch.tensor([beside, below, below, below, tall]).float()
    assert is_vertical(Truth(classes, boxes)) == [False, True, False, False, False]


CENTRES = 2.0 * torch.arange(3) + 1, 2.0 * torch.arange(8) + 1


def bags(pictures: list[str], truth: list[list[int]]) -> tuple[Bags, Tensor]:
    classes = torch.tensor([[*row, *[-1] * (max(map(len, truth)) - len(row))] for row in truth])
    boxes = torch.tensor(
        [[4.0 * m, 0.0, 4.0 * m + 4, 4.0] for m in range(classes.shape[1])]
    ).expand(len(classes), -1, 4)
    some = Bags(
        torch.zeros(len(classes), 1, 6, 16), label_matrix(classes, 10), truth=Truth(classes, boxes)
    )
    return some, draw(*pictures, sure=0.999)


def scores_of(probs: Tensor) -> Scores:
    """The scores of a loss whose label set has the classes that are probable somewhere, with a threshold of 1/2."""
    highest = probs[:, :-1].flatten(2).amax(dim=2)
    return Scores(highest, highest, probs, centres=CENTRES)


VALIDATION = [
    "11..11.. 11..11.. ........",
    "2.2..... 222..... ........",
    "3..11... 3..11... ........",
]
TEST = [
    "1.1..... 111..... ........",
    "11..3... 11..3... ........",
    "2...8... 22..88.. ........",
    "........ " * 3,
]


def of_label_sets(*batches: tuple[str, Bags, Scores]) -> Evaluation:
    """What `evaluate_bags` returns of these bags before strings are read."""
    scored: dict[str, list[tuple[Bags, Scores]]] = {}
    for split, some, scores in batches:
        scored.setdefault(split, []).append((some, scores))
    splits = {split: predictions_of(pairs, split) for split, pairs in scored.items()}
    return evaluation_of(Predictions(splits))


def evaluated(*batches: tuple[str, tuple[Bags, Tensor]]) -> Evaluation:
    read = ReadingHook()
    for split, (some, probs) in batches:
        read(split, scores_of(probs), some, 0.5)
    of_sets = of_label_sets(*((split, some, scores_of(probs)) for split, (some, probs) in batches))
    return read.complete(of_sets)


def test_metrics_of_reading_by_hand() -> None:
    test = [bags(TEST[:2], [[1], [1, 3]]), bags(TEST[2:], [[2, 8, 8], [4]])]
    found = evaluated(
        ("validation", bags(VALIDATION, [[1, 1], [2], [3, 1]])),
        ("test", test[0]),
        ("test", test[1]),
    )
    values, error = found.metrics, "transcription_error"
    assert values[f"validation/{error}"] == values[f"validation/{error}_columns"] == 0
    # Components read 1, 13, 28 and nothing, where there is 1, 13, 288 and 4.
    assert (
        values[f"test/{error}"]
        == values[f"test/{error}_components"]
        == values[f"test/{error}_columns"]
        == 1 / 2
    )
    assert values["test/error_clustering"] == values["test/error_no_detection"] == 1 / 4
    assert values["test/error_other"] == values["test/error_substitution"] == 0
    assert 0 < values["test/mean_iou"] < 1
    assert 0 < values["test/box_average_precision"] <= 1
    assert {name.split("/")[1] for name in values} <= set(METRICS)
    patterns = [values[f"test/error_{pattern}"] for pattern in PATTERNS]
    assert sum(patterns) == values[f"test/{error}"], "the shares add up to the error"
    assert found.decoder is not None
    decoder = Reader.model_validate(found.decoder).learnt
    assert len(decoder.reach) == 10
    assert min(decoder.margin) >= 0


def test_the_reader_is_learnt_from_the_calibration_alone() -> None:
    calibration, truths = (
        ("calibration", bags(VALIDATION, [[1, 1], [2], [3, 1]])),
        ([[1], [1, 3]], [[1, 1, 1], [7]]),
    )
    first, second = (evaluated(calibration, ("test", bags(TEST[:2], truth))) for truth in truths)
    assert first.decoder == second.decoder
    assert first.metrics["test/transcription_error"] == 0
    assert second.metrics["test/transcription_error"] == 1


def test_the_decoder_is_chosen_on_validation_strings_and_judged_on_test_strings() -> None:
    validation, probs = bags(["12...... ........ ........"] * 2, [[1, 2], [1, 2]])
    probs[1, 7, 1, 6], probs[1, 10, 1, 6] = (
        0.6,
        0.3,
    )  # the map shows a seven, which the loss does not find
    presence = scores_of(probs).presence * validation.labels
    read, (test, test_probs) = ReadingHook(), bags(["1...1... ........ ........"], [[1, 1]])
    batches = (
        ("validation", validation, Scores(presence, presence, probs, centres=CENTRES)),
        ("test", test, scores_of(test_probs)),
    )
    for split, some, scores in batches:
        read(split, scores, some, 0.5)
    found = read.complete(of_label_sets(*batches))
    error = "transcription_error"
    values, choices = found.metrics, ("", "_columns", "_strongest", "_components")
    assert [values[f"validation/{error}{choice}"] for choice in choices] == [0, 1 / 2, 0, 0]
    assert [values[f"test/{error}{choice}"] for choice in choices[:3]] == [1, 0, 1]
    assert (found.decoder or {})["decoder"] == "strongest", "the first of equally good ones"
    assert values["test/error_clustering"] == 1, "patterns are those of the chosen decoder"
    assert found.predictions is not None
    assert outcomes(found.predictions)[error].sums.tolist() == [1]
