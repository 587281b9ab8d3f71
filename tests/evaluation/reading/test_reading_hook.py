"""The metrics of reading strings of digits, and the patterns of its errors by example."""

from dataclasses import dataclass

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


@pytest.mark.parametrize(
    ("read", "truth", "vertical", "winning", "expected"),
    [
        pytest.param("12", "12", True, "12", None, id="right"),
        pytest.param("", "12", True, "12", "no_detection", id="nothing"),
        pytest.param("21", "12", False, "12", "orientation", id="in another order"),
        pytest.param("2", "12", True, "12", "orientation", id="vertical"),
        pytest.param("2", "12", True, "2", "edge_or_one", id="vertical, a 1 wins nowhere"),
        pytest.param("1", "11", False, "1", "clustering", id="once for twice"),
        pytest.param("1", "11", True, "1", "orientation", id="vertical, once for twice"),
        pytest.param("17", "7", False, "17", "edge_or_one", id="a 1 too many"),
        pytest.param("117", "77", False, "17", "other", id="ones for another digit"),
        pytest.param("12", "22", False, "12", "substitution", id="another digit"),
        pytest.param("52", "528", False, "52", "other", id="a digit too few"),
    ],
)
def test_patterns_by_example(
    read: str, truth: str, vertical: bool, winning: str, expected: str | None
) -> None:
    found = error_pattern(digits(read), digits(truth), vertical, set(digits(winning)))
    assert found == expected


Box = list[float]
FIRST = [0.0, 0, 4, 9]
BESIDE = [5.0, 2, 9, 11]
BELOW = [1.0, 10, 5, 19]


@pytest.mark.parametrize(
    ("classes", "boxes", "expected"),
    [
        pytest.param([1, 2], [FIRST, BESIDE], False, id="beside each other"),
        pytest.param([1, 2], [FIRST, BELOW], True, id="below each other"),
        pytest.param([1, -1], [FIRST, BELOW], False, id="one digit"),
        pytest.param([-1, -1], [FIRST, BELOW], False, id="no digit"),
        # Whether a number is vertical depends on the middles of its boxes.
        pytest.param([1, 2], [[0.0, 0, 4, 40], [5.0, 2, 9, 42]], False, id="tall digits"),
    ],
)
def test_vertical_numbers_by_their_boxes(
    classes: list[int], boxes: list[Box], expected: bool
) -> None:
    assert is_vertical(Truth(torch.tensor([classes]), torch.tensor([boxes]))) == [expected]


def test_every_number_is_judged_by_its_own_boxes() -> None:
    boxes = torch.tensor([[FIRST, BESIDE], [FIRST, BELOW]])
    assert is_vertical(Truth(torch.tensor([[1, 2], [1, 2]]), boxes)) == [False, True]


CENTRES = (2.0 * torch.arange(3) + 1, 2.0 * torch.arange(8) + 1)


@dataclass(frozen=True)
class Strings:
    """Bags that show strings of digits, and the scores of a loss for them."""

    bags: Bags
    scores: Scores


def strings(pictures: list[str], truth: list[list[int]]) -> Strings:
    """Return bags with this truth, and scores whose maps look like these pictures."""
    longest = max(map(len, truth))
    padded = [row + [-1] * (longest - len(row)) for row in truth]
    classes = torch.tensor(padded)
    # Digits stand side by side, each 4 pixels wide.
    row_of_boxes = torch.tensor([[4.0 * m, 0.0, 4.0 * m + 4, 4.0] for m in range(longest)])
    boxes = row_of_boxes.expand(len(truth), -1, 4)
    images = torch.zeros(len(truth), 1, 6, 16)
    bags = Bags(images, label_matrix(classes, 10), truth=Truth(classes, boxes))
    return Strings(bags, scores_of(draw(*pictures, sure=0.999)))


def scores_of(probs: Tensor) -> Scores:
    """Return scores whose presence is the highest probability of a class at any position."""
    highest = probs[:, :-1].flatten(2).amax(dim=2)
    return Scores(highest, highest, probs, centres=CENTRES)


def evaluated(validation: list[Strings], test: list[Strings]) -> Evaluation:
    """Return the evaluation of strings, with 1/2 as the threshold of presence."""
    hook = ReadingHook()
    splits = {}
    for split, batches in (("validation", validation), ("test", test)):
        for batch in batches:
            hook(split, batch.scores, batch.bags, 0.5)
        pairs = [(batch.bags, batch.scores) for batch in batches]
        splits[split] = predictions_of(pairs, split)
    return hook.complete(evaluation_of(Predictions(splits)))


VALIDATION = strings(
    [
        "11..11.. 11..11.. ........",
        "2.2..... 222..... ........",
        "3..11... 3..11... ........",
    ],
    [[1, 1], [2], [3, 1]],
)
TEST_PICTURES = [
    "1.1..... 111..... ........",
    "11..3... 11..3... ........",
    "2...8... 22..88.. ........",
    "........ ........ ........",
]


@pytest.fixture(scope="module")
def of_test() -> Evaluation:
    """Return the evaluation of the test pictures, which are read as 1, 13, 28 and nothing."""
    first = strings(TEST_PICTURES[:2], [[1], [1, 3]])
    second = strings(TEST_PICTURES[2:], [[2, 8, 8], [4]])
    return evaluated([VALIDATION], [first, second])


@pytest.mark.parametrize("decoder", ["", "_columns"], ids=["chosen", "columns"])
def test_validation_strings_are_all_read(of_test: Evaluation, decoder: str) -> None:
    assert of_test.metrics[f"validation/transcription_error{decoder}"] == 0


@pytest.mark.parametrize(
    "decoder", ["", "_components", "_columns"], ids=["chosen", "components", "columns"]
)
def test_strings_that_differ_from_the_truth_are_errors(of_test: Evaluation, decoder: str) -> None:
    # 1 and 13 are right, 28 should be 288, and nothing should be 4.
    assert of_test.metrics[f"test/transcription_error{decoder}"] == 1 / 2


@pytest.mark.parametrize(
    ("pattern", "share"),
    [
        pytest.param("clustering", 1 / 4, id="28 for 288"),
        pytest.param("no_detection", 1 / 4, id="nothing for 4"),
        pytest.param("other", 0, id="no other"),
        pytest.param("substitution", 0, id="no substitution"),
    ],
)
def test_errors_are_counted_by_their_pattern(
    of_test: Evaluation, pattern: str, share: float
) -> None:
    assert of_test.metrics[f"test/error_{pattern}"] == share


def test_the_shares_of_patterns_add_up_to_the_error(of_test: Evaluation) -> None:
    shares = [of_test.metrics[f"test/error_{pattern}"] for pattern in PATTERNS]
    assert sum(shares) == of_test.metrics["test/transcription_error"]


def test_detections_are_judged_by_boxes(of_test: Evaluation) -> None:
    assert 0 < of_test.metrics["test/mean_iou"] < 1
    assert 0 < of_test.metrics["test/box_average_precision"] <= 1


def test_every_metric_of_reading_has_a_definition(of_test: Evaluation) -> None:
    names = {name.split("/")[1] for name in of_test.metrics}
    assert names <= set(METRICS)


def test_the_decoder_is_kept_with_what_it_has_learnt(of_test: Evaluation) -> None:
    assert of_test.decoder is not None
    learnt = Reader.model_validate(of_test.decoder).learnt
    assert len(learnt.reach) == 10
    assert min(learnt.margin) >= 0


@pytest.fixture(scope="module")
def of_right_and_wrong_truth() -> tuple[Evaluation, Evaluation]:
    """Return the evaluations of two test pictures with their truth, and with a wrong truth."""
    right = strings(TEST_PICTURES[:2], [[1], [1, 3]])
    wrong = strings(TEST_PICTURES[:2], [[1, 1, 1], [7]])
    return evaluated([VALIDATION], [right]), evaluated([VALIDATION], [wrong])


def test_the_reader_learns_nothing_from_test_strings(
    of_right_and_wrong_truth: tuple[Evaluation, Evaluation],
) -> None:
    right, wrong = of_right_and_wrong_truth
    assert right.decoder is not None
    assert right.decoder == wrong.decoder


def test_test_strings_are_judged_by_their_own_truth(
    of_right_and_wrong_truth: tuple[Evaluation, Evaluation],
) -> None:
    right, wrong = of_right_and_wrong_truth
    assert right.metrics["test/transcription_error"] == 0
    assert wrong.metrics["test/transcription_error"] == 1


@pytest.fixture(scope="module")
def of_two_decoders() -> Evaluation:
    """Return an evaluation where columns err on validation strings, other decoders on test strings.

    The map of the second validation string shows a 7, for which the loss has a presence of 0.
    """
    picture = "12...... ........ ........"
    validation = strings([picture, picture], [[1, 2], [1, 2]])
    probs = validation.scores.instances
    probs[1, 7, 1, 6] = 0.6
    probs[1, 10, 1, 6] = 0.3
    presence = scores_of(probs).presence * validation.bags.labels
    misled = Strings(validation.bags, Scores(presence, presence, probs, centres=CENTRES))
    # In this picture only the decoder by columns finds the 1 twice.
    test = strings(["1...1... ........ ........"], [[1, 1]])
    return evaluated([misled], [test])


@pytest.mark.parametrize(
    ("decoder", "validation", "test"),
    [("_columns", 1 / 2, 0), ("_strongest", 0, 1), ("", 0, 1)],
    ids=["columns", "strongest", "chosen"],
)
def test_every_decoder_has_an_error_in_each_split(
    of_two_decoders: Evaluation, decoder: str, validation: float, test: float
) -> None:
    assert of_two_decoders.metrics[f"validation/transcription_error{decoder}"] == validation
    assert of_two_decoders.metrics[f"test/transcription_error{decoder}"] == test


def test_of_equally_good_decoders_the_first_is_chosen(of_two_decoders: Evaluation) -> None:
    # The decoder by components makes no error on validation strings either.
    assert of_two_decoders.metrics["validation/transcription_error_components"] == 0
    assert of_two_decoders.decoder is not None
    assert of_two_decoders.decoder["decoder"] == "strongest"


def test_patterns_are_counted_for_the_chosen_decoder(of_two_decoders: Evaluation) -> None:
    assert of_two_decoders.metrics["test/error_clustering"] == 1


def test_outcomes_are_kept_for_the_chosen_decoder(of_two_decoders: Evaluation) -> None:
    assert of_two_decoders.predictions is not None
    of_items = outcomes(of_two_decoders.predictions)["transcription_error"]
    assert of_items.sums.tolist() == [1]
