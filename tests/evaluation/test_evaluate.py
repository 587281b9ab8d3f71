"""Evaluations of bags: with a limit, by evidence and maps, and what they keep of each bag."""

import hashlib
from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from milbench import Bags, EvalSplit, Origin, Scores, Truth, evaluate_bags, label_matrix
from milbench.contracts.outcomes import Outcomes
from milbench.contracts.predictions import Predictions
from milbench.contracts.problem import Split
from milbench.evaluation.evaluate import update_digest
from milbench.evaluation.metrics import outcomes

BACKGROUND = 2
"""The channel of the background; the classes are 0 and 1."""


def made(sizes: list[int], seed: int) -> list[Bags]:
    """Return batches of these sizes: bags of 4 instances, of two classes and background."""
    rng = torch.Generator().manual_seed(seed)
    batches = []
    for size in sizes:
        classes = torch.randint(-1, 2, (size, 4), generator=rng)
        position_classes = classes.masked_fill(classes < 0, BACKGROUND)
        truth = Truth(classes, position_classes=position_classes)
        instances = torch.randn(size, 4, 2, generator=rng)
        batches.append(Bags(instances, label_matrix(classes, 2), truth=truth))
    return batches


def score(bags: Bags) -> Scores:
    """Return scores whose probabilities are a softmax of the instances."""
    background = bags.instances[..., :1].neg()
    logits = torch.cat([bags.instances, background], dim=2)
    probs = logits.softmax(dim=2).transpose(1, 2)
    highest = probs[:, :-1].amax(dim=2)
    return Scores(highest, highest, probs)


def one_by_one(batches: list[Bags]) -> list[Bags]:
    """Return batches of one bag each."""
    return [bag for bags in batches for bag in bags.parts(1)]


@pytest.mark.parametrize("limit", [1, 6, 40])
def test_a_limited_evaluation_is_one_of_the_first_bags(limit: int) -> None:
    single_instances = made([4, 9], 0)
    bags = made([6, 5, 4], 1)
    calibration = made([3, 8], 2)
    whole = EvalSplit(single_instances, bags)
    limited = evaluate_bags(score, {"test": whole}, calibration, limit=limit)
    first = EvalSplit(one_by_one(single_instances)[:limit], one_by_one(bags)[:limit])
    by_hand = evaluate_bags(score, {"test": first}, one_by_one(calibration)[:limit])
    assert limited.metrics == by_hand.metrics


TWO_INSTANCES = Bags(
    torch.zeros(1, 2, 1),
    torch.tensor([[True]]),
    truth=Truth(torch.tensor([[0]]), position_classes=torch.tensor([[1, 0]])),
)
"""A bag of background and an instance of class 0, in this order."""

FIRST_IS_STRONGER = Scores(
    torch.tensor([[1.0]]), torch.tensor([[1.0]]), torch.tensor([[[0.9, 0.6], [0.1, 0.4]]])
)
"""The map takes both instances for class 0, and has a higher probability for the first."""

EVIDENCE_FOR_THE_SECOND = replace(FIRST_IS_STRONGER, evidence=torch.tensor([[[2.0, 3.0]]]))


def metrics_by(scores: Scores) -> dict[str, float]:
    """Return the metrics of the bag of two instances, which also chooses the threshold."""
    splits: dict[Split, EvalSplit] = {"test": EvalSplit((), [TWO_INSTANCES])}
    return evaluate_bags(lambda _: scores, splits, [TWO_INSTANCES]).metrics


@pytest.mark.parametrize(
    ("scores", "hit_rate"),
    [
        pytest.param(FIRST_IS_STRONGER, 0, id="by the map where there is no evidence"),
        pytest.param(EVIDENCE_FOR_THE_SECOND, 1, id="by the evidence"),
    ],
)
def test_hits_are_judged_by_the_evidence(scores: Scores, hit_rate: float) -> None:
    assert metrics_by(scores)["test/hit_rate"] == hit_rate


@pytest.mark.parametrize(
    "scores",
    [
        pytest.param(FIRST_IS_STRONGER, id="no evidence"),
        pytest.param(EVIDENCE_FOR_THE_SECOND, id="evidence"),
    ],
)
def test_instances_are_judged_by_the_map(scores: Scores) -> None:
    # The map takes the first instance, which is background, for class 0.
    assert metrics_by(scores)["test/posterior_error"] == 1 / 2


Term = tuple[float, float]
"""The terms that one test item adds to a metric's numerator and denominator."""


def terms_of_bag(bag: Bags, threshold: float, label_threshold: float) -> dict[str, Term]:
    """Return the terms of a bag for each metric, by the thresholds for sets and for labels."""
    assert bag.truth is not None
    assert bag.truth.position_classes is not None
    scores = score(bag)
    known = bag.truth.position_classes[0].tolist()
    present = set(known) - {BACKGROUND}
    presence = scores.presence[0].tolist()
    predicted = {c for c in range(2) if presence[c] >= threshold}
    predicted_by_labels = {c for c in range(2) if presence[c] >= label_threshold}
    hits = 0
    for c in present:
        strongest = int(scores.instances[0, c].argmax())
        if known[strongest] == c:
            hits += 1
    wrong = 0
    for k in range(4):
        named = int(scores.instances[0, :, k].argmax())
        if named != known[k]:
            wrong += 1
    return {
        "set_error": (0 if predicted == present else 1, 1),
        "label_error": (len(predicted ^ present), 2),
        "own_label_error": (len(predicted_by_labels ^ present), 2),
        "hit_rate": (hits, len(present)),
        "posterior_error": (wrong, 4),
    }


def terms_of_instance(bag: Bags) -> Term:
    """Return the terms of a bag of one instance for the one-instance error."""
    named = int(score(bag).classes[0].argmax())
    true = int(bag.labels[0].int().argmax())
    return (0 if named == true else 1), 1


@pytest.fixture(scope="module")
def outcomes_and_loop() -> tuple[dict[str, Outcomes], dict[str, list[Term]]]:
    """Return the outcomes of each metric, and the terms that a loop over the bags finds."""
    single_instances = made([4, 9], 0)
    bags = made([6, 5, 4], 1)
    splits: dict[Split, EvalSplit] = {
        "validation": EvalSplit((), bags[:1]),
        "test": EvalSplit(single_instances, bags),
    }
    found = evaluate_bags(score, splits)
    threshold = found.metrics["chosen/threshold"]
    label_threshold = found.metrics["chosen/label_threshold"]
    expected: defaultdict[str, list[Term]] = defaultdict(list)
    for bag in one_by_one(bags):
        for name, term in terms_of_bag(bag, threshold, label_threshold).items():
            expected[name].append(term)
    for bag in one_by_one(single_instances):
        expected["instance_error"].append(terms_of_instance(bag))
    assert found.predictions is not None
    return outcomes(found.predictions), expected


@pytest.mark.parametrize(
    "name",
    [
        "set_error",
        "label_error",
        "own_label_error",
        "hit_rate",
        "posterior_error",
        "instance_error",
    ],
)
def test_outcomes_agree_with_a_loop_over_the_bags(
    outcomes_and_loop: tuple[dict[str, Outcomes], dict[str, list[Term]]], name: str
) -> None:
    by_metric, by_loop = outcomes_and_loop
    sums = by_metric[name].sums.tolist()
    weights = by_metric[name].weights.tolist()
    assert list(zip(sums, weights, strict=True)) == by_loop[name]
    # Zeros alone would not tell one metric from another.
    assert sum(sums) > 0


@pytest.mark.parametrize("field", ["presence", "classes", "evidence", "instances"])
def test_a_score_of_nan_is_an_error_with_its_bag(field: str) -> None:
    first, second = made([3, 4], 5)

    def broken(bags: Bags) -> Scores:
        scores = score(bags)
        if bags is not second:
            return scores
        values = getattr(scores, field).clone()
        values[2, 0] = float("nan")
        return replace(scores, **{field: values})

    # Counted from 1: the third bag of the second batch, after three bags of the first.
    expected = rf"the loss's {field} of bag 6 of the validation bags is NaN"
    with pytest.raises(FloatingPointError, match=expected):
        evaluate_bags(broken, {"validation": EvalSplit((), [first, second])})


@pytest.fixture(scope="module")
def predictions() -> Predictions:
    """Return predictions for test bags that have an origin, and for validation bags without one.

    An origin says the number of a bag, its group, and the items that it is made of.
    """
    first, second = made([2, 1], 3)
    # The rows of items are as long as the largest bag of a batch needs: 2 and 3.
    of_first = Origin(torch.tensor([10, 11]), torch.tensor([0, 1]), torch.tensor([[4, 5], [5, -1]]))
    of_second = Origin(torch.tensor([12]), torch.tensor([1]), torch.tensor([[7, 8, 9]]))
    known = [replace(first, origin=of_first), replace(second, origin=of_second)]
    splits: dict[Split, EvalSplit] = {
        "validation": EvalSplit((), [first, second]),
        "test": EvalSplit((), known),
    }
    found = evaluate_bags(score, splits).predictions
    assert found is not None
    return found


def test_the_numbers_of_bags_are_kept(predictions: Predictions) -> None:
    assert predictions["test"].bag.tolist() == [10, 11, 12]


def test_the_groups_of_bags_are_kept(predictions: Predictions) -> None:
    groups = predictions["test"].group
    assert groups is not None
    assert groups.tolist() == [0, 1, 1]


def test_the_items_of_bags_of_all_batches_are_kept(predictions: Predictions) -> None:
    items = predictions["test"].items
    assert items is not None
    assert items.tolist() == [[4, 5, -1], [5, -1, -1], [7, 8, 9]]


def test_bags_of_unknown_origin_are_numbered(predictions: Predictions) -> None:
    assert predictions["validation"].bag.tolist() == [0, 1, 2]
    assert predictions["validation"].items is None


def digest_of(*batches: Bags) -> str:
    digest = hashlib.sha256()
    for bags in batches:
        update_digest(digest, bags)
    return digest.hexdigest()


BAGS = made([6], 1)[0]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(BAGS, instances=BAGS.instances[:, :, :1]), id="shape"),
        pytest.param(replace(BAGS, labels=~BAGS.labels), id="labels"),
        pytest.param(replace(BAGS, mask=torch.ones(6, 4, dtype=torch.bool)), id="mask"),
        pytest.param(replace(BAGS, truth=made([6], 2)[0].truth), id="truth"),
        pytest.param(BAGS.parts(5)[0], id="fewer bags"),
    ],
)
def test_the_digest_of_items_tells_other_bags_apart(other: Bags) -> None:
    assert digest_of(other) != digest_of(BAGS)


def test_the_digest_of_items_does_not_depend_on_the_features_of_instances() -> None:
    assert digest_of(replace(BAGS, instances=BAGS.instances + 1)) == digest_of(BAGS)


def test_the_digest_of_items_depends_on_their_order() -> None:
    first, second = BAGS.parts(3)
    assert digest_of(first, second) != digest_of(second, first)
