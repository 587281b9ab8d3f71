"""Weights of classes: the losses against torch's binary cross-entropy, and weights from counts."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.testing import assert_close

from milbench import UsageError, load_loss
from milbench.contracts.registry import losses
from milbench.experiment.cell import Cell
from milbench.experiment.flags import apply_assignment
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.losses import Mean, OneVsRest
from milbench.testing.loss_contract import LABELS, MASK, B, C, K, labels_that_fit, some_logits
from milbench.training.training_setup import setup_for_cell, training_counts
from tests._helpers.command_line import TINY
from tests._helpers.losses import per_bag, random_logits
from tests._helpers.training import train

WEIGHTED = (
    "attention", "auto-pool", "exponential-softmax", "generalised-mean", "isr", "linear-softmax",
    "log-sum-exp", "mean", "noisy-and", "noisy-or", "one-vs-rest", "power-pooling", "top-k",
)  # fmt: skip
# The losses that are no sum over classes, and so take no weights.
NOT_WEIGHTED = (
    "count", "cross-entropy", "ctc", "exact", "exact-em", "hard-em", "max-pooling", "position",
    "superset",
)  # fmt: skip
WEIGHT = torch.tensor([0.5, 0.0, 3.0], dtype=torch.float64)
POS_WEIGHT = torch.tensor([4.0, 0.25, 1.5], dtype=torch.float64)

CASES: dict[str, dict[str, Any]] = {
    "weight": {"weight": WEIGHT},
    "pos_weight": {"pos_weight": POS_WEIGHT},
    "both": {"weight": WEIGHT, "pos_weight": POS_WEIGHT},
    "numbers": {"weight": 0.5, "pos_weight": 3.0},
    "lists": {"weight": [0.5, 0.0, 3.0], "pos_weight": [4.0, 0.25, 1.5]},
}


def by_torch(log_odds: Tensor, labels: Tensor, **weights: Any) -> Tensor:
    """Return torch's binary cross-entropy of each bag, (B,), summed over classes."""
    weight = torch.as_tensor(weights.get("weight", 1.0)).double()
    pos_weight = torch.as_tensor(weights.get("pos_weight", 1.0)).double()
    costs = binary_cross_entropy_with_logits(
        log_odds, labels.double(), weight, reduction="none", pos_weight=pos_weight
    )
    return costs.sum(dim=1)


@pytest.mark.parametrize("weights", CASES.values(), ids=CASES)
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_mean_what_they_mean_in_torch(name: str, weights: dict[str, Any]) -> None:
    loss = per_bag(name, **weights).build(C)
    logits = some_logits(K)
    labels = labels_that_fit(LABELS)
    log_odds = loss.score(logits, MASK).presence
    assert_close(loss(logits, labels, MASK), by_torch(log_odds, labels, **weights))


def test_a_bag_of_one_instance_is_a_binary_cross_entropy() -> None:
    # The shape has no dimension for positions.
    logits = random_logits(B, C + 1, seed=1)
    labels = torch.eye(C)[[0, 1, 2, 0]].bool()
    found = per_bag("noisy-or", weight=WEIGHT, pos_weight=POS_WEIGHT)(logits, labels)
    assert_close(found, by_torch(logits[:, :C], labels, weight=WEIGHT, pos_weight=POS_WEIGHT))


@pytest.mark.parametrize("weights", CASES.values(), ids=CASES)
def test_weighted_gradients_are_the_derivatives_of_the_value(weights: dict[str, Any]) -> None:
    loss = per_bag("noisy-or", head="softmax", **weights)
    logits = some_logits(K).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, LABELS), logits)


def test_a_class_of_weight_0_is_free_in_empty_bags() -> None:
    """In an empty bag a class of the label set costs infinity, and 0 times infinity is NaN."""
    loss = OneVsRest(weight=[1.0, 0.0, 1.0], reduction="none")
    loss.validate = False
    logits = some_logits(K).requires_grad_()
    empty = torch.zeros(B, K, dtype=torch.bool)
    value = loss(logits, torch.tensor([[False, True, False]] * B), empty)
    value.sum().backward()
    assert (value == 0).all()
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_every_loss_either_takes_weights_or_refuses_them() -> None:
    built_in = {n for n, entry in losses().entries.items() if entry.origin == "milbench"}
    assert {*WEIGHTED, *NOT_WEIGHTED} == built_in


@pytest.mark.parametrize("name", NOT_WEIGHTED)
def test_a_loss_that_is_no_sum_over_classes_says_so(name: str) -> None:
    with pytest.raises(UsageError, match=f"loss {name} takes no weight: it is no sum over"):
        load_loss(name, weight=2.0)
    with pytest.raises(UsageError, match=f"loss {name} takes no pos_weight: it is no sum over"):
        load_loss(name, pos_weight=2.0)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        pytest.param(
            lambda: Mean(weight=-1.0),
            "weight of mean must be a number of 0 or more, or a list",
            id="negative",
        ),
        pytest.param(
            lambda: Mean(pos_weight=[1.0, float("nan"), 1.0]),
            "one for each class, got nan",
            id="NaN",
        ),
        pytest.param(
            lambda: Mean(weight=float("inf")), "one for each class, got inf", id="infinite"
        ),
        pytest.param(
            lambda: Mean(weight=torch.ones(1, 1)),
            "one for each class, got the shape (1, 1)",
            id="matrix",
        ),
        pytest.param(
            lambda: Mean(weight="balanced"),  # type: ignore[arg-type]
            "one for each class, got 'balanced'",
            id="weight in words",
        ),
        pytest.param(
            lambda: Mean(pos_weight=[1.0, 2.0])(some_logits(K), LABELS),
            "pos_weight of mean has 2 values, expected one number, "
            "or one for each of the 3 classes",
            id="too few",
        ),
        pytest.param(
            lambda: Mean(pos_weight="balanced")(some_logits(K), LABELS),
            "needs the label sets of the training bags",
            id="balanced without training bags",
        ),
        pytest.param(
            lambda: load_loss("mean", pos_weight="balancd"),
            "did you mean 'balanced'?",
            id="misspelt",
        ),
    ],
)
def test_wrong_weights_are_reported_in_one_line(call: Callable[[], object], complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        call()
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_balanced_weights_are_negatives_over_positives() -> None:
    loss = OneVsRest(pos_weight="balanced", reduction="none")
    # Of eight bags, two have class 0, none has class 1, all have class 2.
    loss.build(C, class_counts=(torch.tensor([2, 0, 8]), 8))
    # Classes in no bag or in all bags have the weight 1.
    by_hand = OneVsRest(pos_weight=[6 / 2, 1.0, 1.0], reduction="none")
    assert_close(loss(some_logits(K), LABELS), by_hand(some_logits(K), LABELS))


def test_building_again_forgets_the_counts_of_the_first_build() -> None:
    loss = OneVsRest(pos_weight="balanced").build(C, class_counts=(torch.tensor([2, 1, 3]), 8))
    loss.build(C)
    with pytest.raises(UsageError, match="needs the label sets of the training bags"):
        loss(some_logits(K), LABELS)


def test_tensors_are_stored_as_lists() -> None:
    loss = load_loss("mean", pos_weight=POS_WEIGHT)
    assert loss.arguments["pos_weight"] == POS_WEIGHT.tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2", 2, id="a number"),
        pytest.param("balanced", "balanced", id="a word"),
        # A bare list would be several values to compare.
        pytest.param("[1, 2.5,3]", [[1, 2.5, 3]], id="a list"),
        pytest.param("balanced,2", ["balanced", 2], id="two values"),
        pytest.param("[1,2,3],[3,2,1]", [[1, 2, 3], [3, 2, 1]], id="two lists"),
    ],
)
def test_the_command_line_takes_numbers_lists_and_balanced(text: str, expected: object) -> None:
    values: dict[str, Any] = {"losses": ["mean"], "tasks": [], "loss": {}}
    apply_assignment(values, f"loss.mean.pos_weight={text}")
    assert values["loss"]["mean"]["pos_weight"] == expected


def cells_of_mean(seeds: Any = 0, **params: Any) -> list[Cell]:
    """Return the cells of a comparison of the loss `mean`, one for each value of its parameters."""
    values: dict[str, Any] = {
        "name": "t",
        "losses": ["mean"],
        "tasks": [TINY],
        "seeds": seeds,
        "recipe": {"epochs": 1, "steps_per_epoch": 2, "precision": "float32"},
    }
    if params:
        values["loss"] = {"mean": params}
    return make_plan(make_spec(values)).cells


def test_without_weights_a_cell_keeps_its_id() -> None:
    (unset,) = cells_of_mean()
    neutral, weighted = cells_of_mean(pos_weight=[None, 2.0])
    assert neutral.id == unset.id
    assert weighted.id != unset.id
    assert "pos_weight" not in neutral.loss.params


def balanced_weight(with_class: int, bags: int) -> float:
    """Return bags without the class over bags with it, or 1 if either number is 0."""
    if with_class in (0, bags):
        return 1.0
    return (bags - with_class) / with_class


def test_a_comparison_balances_by_the_training_bags_of_the_cell() -> None:
    (cell,) = cells_of_mean(seeds=3, pos_weight=["balanced"])
    setup = setup_for_cell(cell, torch.device("cpu"), None)
    batches = islice(setup.train_batches(0), setup.problem.steps_per_epoch)
    labels = torch.cat([batch.labels for batch in batches]).bool()
    counts, bags = training_counts(setup.problem, cell.seed)
    assert bags == len(labels)
    assert counts.tolist() == labels.sum(dim=0).tolist()
    by_hand = Mean(pos_weight=[balanced_weight(count, bags) for count in counts.tolist()])
    batch = next(iter(setup.train_batches(0)))
    logits = random_logits(len(batch.labels), setup.problem.format.num_classes + 1, K)
    assert_close(setup.model.loss(logits, batch.labels), by_hand(logits, batch.labels))


@pytest.mark.parametrize("pos_weight", ["balanced", [1.0, 2.0, 0.5], 3.0])
def test_a_cell_with_weights_trains(pos_weight: Any, tmp_path: Path) -> None:
    (weighted,) = cells_of_mean(pos_weight=[pos_weight])
    (plain,) = cells_of_mean()
    history = train(weighted, tmp_path / "weighted").history
    assert history != train(plain, tmp_path / "plain").history
