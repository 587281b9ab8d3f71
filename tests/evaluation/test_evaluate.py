"""Evaluations with a limit, by a loss's own evidence and label sets, and the outcomes of their items."""

import hashlib
from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from milbench import Bags, EvalSplit, Origin, Scores, Truth, evaluate_bags, label_matrix
from milbench.evaluation.evaluate import update_digest
from milbench.evaluation.metrics import outcomes


def made(sizes: list[int], seed: int) -> list[Bags]:
    rng = torch.Generator().manual_seed(seed)
    batches = []
    for size in sizes:
        classes = torch.randint(-1, 2, (size, 4), generator=rng)
        truth = Truth(classes, position_classes=classes.masked_fill(classes < 0, 2))
        batches.append(
            Bags(torch.randn(size, 4, 2, generator=rng), label_matrix(classes, 2), truth=truth)
        )
    return batches


def score(bags: Bags) -> Scores:
    probs = (
        torch.cat([bags.instances, bags.instances[..., :1].neg()], dim=2)
        .softmax(dim=2)
        .transpose(1, 2)
    )
    highest = probs[:, :-1].amax(dim=2)
    return Scores(highest, highest, probs)


def joined(batches: list[Bags], count: int) -> list[Bags]:
    return [one for bags in batches for one in bags.parts(1)][:count]


@pytest.mark.parametrize("limit", [1, 6, 40])
def test_a_limited_evaluation_is_one_of_the_first_bags(limit: int) -> None:
    single_instances, bags, calibration = made([4, 9], 0), made([6, 5, 4], 1), made([3, 8], 2)
    found = evaluate_bags(
        score, {"test": EvalSplit(single_instances, bags)}, calibration, limit=limit
    ).metrics
    by_hand = EvalSplit(joined(single_instances, limit), joined(bags, limit))
    assert found == evaluate_bags(score, {"test": by_hand}, joined(calibration, limit)).metrics


def test_hits_are_judged_by_the_evidence_and_instances_by_the_map() -> None:
    """The map calls the first instance class 0; the evidence for class 0 is strongest at the second one."""
    truth = Truth(torch.tensor([[0]]), position_classes=torch.tensor([[1, 0]]))
    bags = Bags(torch.zeros(1, 2, 1), torch.tensor([[True]]), truth=truth)
    probs, presence = torch.tensor([[[0.9, 0.6], [0.1, 0.4]]]), torch.tensor([[1.0]])
    judged = Scores(presence, presence, probs)
    for scores, hit_rate in (
        (judged, 0),
        (replace(judged, evidence=torch.tensor([[[2.0, 3.0]]])), 1),
    ):
        values = evaluate_bags(
            lambda _, scores=scores: scores,  # type: ignore[misc]
            {"test": EvalSplit((), [bags])},
            [bags],
        ).metrics
        assert (values["test/hit_rate"], values["test/posterior_error"]) == (hit_rate, 1 / 2)


def test_outcomes_are_those_of_a_loop_over_the_bags() -> None:
    single_instances, bags = made([4, 9], 0), made([6, 5, 4], 1)
    splits = {
        "validation": EvalSplit((), bags[:1]),
        "test": EvalSplit(single_instances, bags),
    }
    found = evaluate_bags(score, splits)  # type: ignore[arg-type]
    threshold = found.metrics["chosen/threshold"]
    by_labels = found.metrics["chosen/label_threshold"]
    expected: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in joined(bags, 40):
        scores, truth = score(one), one.truth
        assert truth is not None
        assert truth.position_classes is not None
        known = truth.position_classes[0].tolist()
        present = set(known) - {2}
        presence = scores.presence[0].tolist()
        predicted = {c for c in range(2) if presence[c] >= threshold}
        own = {c for c in range(2) if presence[c] >= by_labels}
        hits = [known[int(scores.instances[0, c].argmax())] == c for c in present]
        wrong = [int(scores.instances[0, :, k].argmax()) != known[k] for k in range(4)]
        expected["set_error"].append((int(predicted != present), 1))
        expected["label_error"].append((len(predicted ^ present), 2))
        expected["own_label_error"].append((len(own ^ present), 2))
        expected["hit_rate"].append((sum(hits), len(hits)))
        expected["posterior_error"].append((sum(wrong), 4))
    for one in joined(single_instances, 40):
        named = score(one).classes[0].argmax()
        expected["instance_error"].append((int(named != one.labels[0].int().argmax()), 1))
    assert found.predictions is not None
    by_metric = outcomes(found.predictions)
    for name, terms in expected.items():
        sums, weights = by_metric[name].sums.tolist(), by_metric[name].weights.tolist()
        assert [*zip(sums, weights, strict=True)] == terms
        assert sum(term for term, _ in terms) > 0


@pytest.mark.parametrize("field", ["presence", "classes", "evidence", "instances"])
def test_a_score_that_is_nan_is_an_error_with_its_bag(field: str) -> None:
    first, second = made([3, 4], 5)

    def broken(bags: Bags) -> Scores:
        scores = score(bags)
        if bags is not second:
            return scores
        values = getattr(scores, field).clone()
        values[2, 0] = float("nan")
        return replace(scores, **{field: values})

    expected = rf"the loss's {field} of bag 6 of the validation bags is NaN"
    with pytest.raises(FloatingPointError, match=expected):
        evaluate_bags(broken, {"validation": EvalSplit((), [first, second])})


def test_what_bags_are_made_of_is_kept() -> None:
    """Batches whose bags are made of different numbers of items are joined; others are numbered."""
    first, second = made([2, 1], 3)
    items = (torch.tensor([[4, 5], [5, -1]]), torch.tensor([[7, 8, 9]]))
    known = [
        replace(first, origin=Origin(torch.tensor([10, 11]), torch.tensor([0, 1]), items[0])),
        replace(second, origin=Origin(torch.tensor([12]), torch.tensor([1]), items[1])),
    ]
    splits = {"validation": EvalSplit((), [first, second]), "test": EvalSplit((), known)}
    predictions = evaluate_bags(score, splits).predictions  # type: ignore[arg-type]
    assert predictions is not None
    test = predictions["test"]
    assert test.bag.tolist() == [10, 11, 12]
    assert test.group is not None
    assert test.group.tolist() == [0, 1, 1]
    assert test.items is not None
    assert test.items.tolist() == [[4, 5, -1], [5, -1, -1], [7, 8, 9]]
    assert predictions["validation"].bag.tolist() == [0, 1, 2]
    assert predictions["validation"].items is None


def test_items_are_known_by_their_labels_truth_and_shape() -> None:
    bags, other = made([6], 1)[0], made([6], 2)[0]
    others = [
        replace(bags, instances=bags.instances[:, :, :1]),
        replace(bags, labels=~bags.labels),
        replace(bags, mask=torch.ones(6, 4, dtype=torch.bool)),
        replace(bags, truth=other.truth),
        bags.parts(5)[0],
    ]
    digests = {digest_of(one) for one in (bags, *others)}
    assert len(digests) == 6
    assert digest_of(replace(bags, instances=bags.instances + 1)) in digests
    first, second = bags.parts(3)
    assert digest_of(first, second) != digest_of(second, first)


def digest_of(*batches: Bags) -> str:
    digest = hashlib.sha256()
    for bags in batches:
        update_digest(digest, bags)
    return digest.hexdigest()
