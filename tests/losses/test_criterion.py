"""Losses as criteria in a user's own training loop.

Tested are imports, reductions, forms of label sets, copies, predictions, and messages of errors.
"""

import copy
import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import Loss, UsageError, load_loss, pad_bags
from milbench.contracts.criterion import bag_losses
from milbench.contracts.parameters import constructor_parameters
from milbench.contracts.registry import losses
from milbench.likelihood import bag_log_prob_from_logits
from milbench.testing.loss_contract import LABELS, MASK, ONE_CLASS, B, C, K, some_logits, target_for
from tests._helpers.likelihood_reference import every_label_set

# The type is Any, since some of these tests pass arguments of wrong types.
library: Any = importlib.import_module("milbench.losses")
NAMES = [name for name in losses().names() if losses().entry(name).origin == "milbench"]
LISTS = [[0, 2], [1], [], [0, 1, 2]]
"""LABELS as lists of class numbers."""
WITH_NAN = some_logits(K).index_fill(0, torch.tensor(2), torch.nan)
"""Logits that are NaN in bag 2."""

Arguments = tuple[Tensor, Tensor, None, Tensor | None]
"""Logits, labels, no mask, and the target of a loss that takes one."""


def labels_for(name: str) -> Tensor:
    return ONE_CLASS if name == "cross-entropy" else LABELS


def arguments_for(name: str) -> Arguments:
    logits = some_logits(K, dtype=torch.float32)
    labels = labels_for(name)
    if name == "ctc":
        target: Tensor | None = torch.tensor([[0, 2, -1], [1, -1, -1], [-1, -1, -1], [0, 1, 2]])
    else:
        target = target_for(load_loss(name), logits, labels)
    return logits, labels, None, target


def test_every_built_in_loss_is_imported_by_its_name() -> None:
    exported = {getattr(library, name) for name in library.__all__ if name != "pad_bags"}
    assert exported == {losses().get(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_loaded_by_name_is_of_the_imported_class(name: str) -> None:
    loaded = type(load_loss(name))
    assert loaded is losses().get(name)
    assert loaded is getattr(library, loaded.__name__)


def test_importing_the_losses_imports_torch_and_the_likelihood_alone() -> None:
    code = (
        "import sys, torch; known = {*sys.modules}; "
        "import milbench.losses; print(*{*sys.modules} - known)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert {name.partition(".")[0] for name in found} == {"milbench"}
    rooms = {name.split(".")[1] for name in found if "." in name}
    assert rooms == {"_utils", "_version", "contracts", "errors", "likelihood", "losses"}
    # All of milbench has several times as many modules.
    assert len(found) < 60


@pytest.mark.parametrize("name", NAMES)
def test_reductions_agree_with_torch(name: str) -> None:
    arguments = arguments_for(name)
    each = load_loss(name, reduction="none").build(C)(*arguments)
    assert each.shape == (B,)
    assert_close(load_loss(name).build(C)(*arguments), each.mean())
    assert_close(load_loss(name, reduction="sum").build(C)(*arguments), each.sum())


class Margin(library.OneVsRest):  # type: ignore[misc]
    """A user's loss whose constructor does not take a reduction."""

    def __init__(self, margin: float = 0.0) -> None:
        super().__init__()
        self.margin = margin

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        log_odds: Tensor = super().log_odds(detectors, mask)
        return log_odds - self.margin


@pytest.mark.parametrize("name", NAMES)
def test_every_constructor_takes_reduction_and_validate(name: str) -> None:
    loss = losses().get(name)(reduction="sum", validate=False)
    assert loss.reduction == "sum"
    assert not loss.validate


@pytest.mark.parametrize("name", NAMES)
def test_reduction_and_validate_are_no_parameters_of_a_cell(name: str) -> None:
    assert not {"reduction", "validate"} & constructor_parameters(losses().get(name)).keys()


def test_a_constructor_need_not_know_of_reductions() -> None:
    logits = some_logits(K)
    each = library.OneVsRest(reduction="none")(logits - 1, LABELS)
    assert_close(Margin(margin=1.0)(logits, LABELS), each.mean())
    assert_close(bag_losses(Margin(1.0), logits, LABELS, check_values=True), each)


def test_a_constructor_s_own_arguments_are_the_parameters_of_a_cell() -> None:
    assert list(constructor_parameters(Margin)) == ["margin"]


def test_the_reduction_can_be_changed_later() -> None:
    loss = Margin(1.0)
    loss.reduction = "sum"
    logits = some_logits(K)
    each = library.OneVsRest(reduction="none")(logits - 1, LABELS)
    assert_close(loss(logits, LABELS), each.sum())


def test_without_validation_an_impossible_label_set_costs_infinity() -> None:
    loss = library.Exact(validate=False)
    value = loss(torch.zeros(1, 2 + 1, 1), torch.tensor([[True, True]]))
    assert float(value) == torch.inf


def test_validation_can_be_left_out_later() -> None:
    loss = library.Exact()
    loss.validate = False
    value = loss(torch.zeros(1, 2 + 1, 1), torch.tensor([[True, True]]))
    assert float(value) == torch.inf


def test_without_validation_nan_is_no_error() -> None:
    loss = library.NoisyOr(validate=False, reduction="none")
    assert loss(WITH_NAN, LABELS).isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize("name", ["exact", "noisy-or"])
def test_scores_of_logits_that_are_not_finite_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"logits are not finite in bag 2 \(1 of 4 bags\)"):
        load_loss(name).score(WITH_NAN)


def with_reduction(loss: Loss, reduction: Any) -> Loss:
    loss.reduction = reduction
    return loss


def replica_of(loss: Loss) -> Loss:
    """Return a copy as DataParallel makes it."""
    replica: Loss = loss._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
    for name, weights in loss.named_parameters():
        setattr(replica, name, weights.clone())
    return replica


@pytest.mark.parametrize(
    "copied",
    [
        pytest.param(copy.deepcopy, id="deepcopy"),
        pytest.param(lambda loss: pickle.loads(pickle.dumps(loss)), id="pickle"),
        pytest.param(replica_of, id="replica"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_copies_give_the_same_values(name: str, copied: Callable[[Loss], Loss]) -> None:
    loss = load_loss(name).build(C)
    arguments = arguments_for(name)
    assert torch.equal(copied(loss)(*arguments), loss(*arguments))


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(LISTS, id="lists"),
        pytest.param([np.array(classes, int) for classes in LISTS], id="arrays"),
        pytest.param([torch.tensor(classes, dtype=torch.int64) for classes in LISTS], id="tensors"),
        pytest.param([set(classes) for classes in LISTS], id="sets"),
        pytest.param(LABELS.float(), id="matrix of floats"),
        pytest.param(LABELS.long(), id="matrix of integers"),
        pytest.param(LABELS.numpy(), id="array"),
        pytest.param(pd.DataFrame(LABELS.numpy()), id="data frame"),
        pytest.param(pd.Series(LISTS), id="series"),
    ],
)
def test_label_sets_may_be_lists_or_numbers_of_any_type(labels: Any) -> None:
    loss = load_loss("exact")
    logits = some_logits(K)
    assert torch.equal(loss(logits, labels), loss(logits, LABELS))
    found = loss.label_log_prob(logits, labels)
    assert_close(found, loss.label_log_prob(logits, LABELS), rtol=0, atol=0)


def test_padded_bags_cost_what_the_bags_cost_alone() -> None:
    rng = torch.Generator().manual_seed(0)
    bags = [torch.randn(size, 5, generator=rng) for size in (4, 1, 3)]
    instances, mask = pad_bags([bags[0], bags[1].numpy(), bags[2]])
    assert instances.shape == (3, 4, 5)
    assert mask.sum(dim=1).tolist() == [4, 1, 3]

    network = torch.nn.Linear(5, C + 1)
    labels = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 0]])
    loss = load_loss("exact", divide_by="none", reduction="none")
    padded = loss(network(instances).movedim(2, 1), labels, mask)
    for number, bag in enumerate(bags):
        alone = bag_log_prob_from_logits(network(bag).T[None], labels[number : number + 1])
        assert_close(padded[number : number + 1], -alone)


@pytest.mark.parametrize(
    "bags",
    [
        pytest.param([], id="none"),
        pytest.param([torch.zeros(2, 3), torch.zeros(2, 4)], id="other features"),
        pytest.param([torch.tensor(1.0)], id="a number"),
    ],
)
def test_bags_that_are_no_arrays_of_instances_are_refused(bags: list[Tensor]) -> None:
    with pytest.raises(UsageError, match="bags must be arrays"):
        pad_bags(bags)


@pytest.mark.parametrize("name", ["exact", "noisy-or"])
def test_the_predicted_label_set_has_all_likely_classes(name: str) -> None:
    loss = load_loss(name)
    logits = some_logits(K)
    marginals = torch.zeros(B, C, dtype=logits.dtype)
    for label_set in every_label_set(C):
        log_prob = loss.label_log_prob(logits, label_set.expand(B, C), MASK)
        assert log_prob is not None
        marginals[:, label_set] += log_prob.exp().unsqueeze(1)
    assert torch.equal(loss.predict(logits, MASK), marginals >= 0.5)


def test_a_threshold_cuts_presence_that_is_no_log_odds() -> None:
    loss = load_loss("max-pooling")
    logits = some_logits(K)
    expected = loss.score(logits).presence >= -1.0
    assert torch.equal(loss.predict(logits, threshold=-1.0), expected)


def test_cross_entropy_predicts_its_likeliest_class_alone() -> None:
    loss = load_loss("cross-entropy")
    logits = some_logits(K)
    predicted = loss.predict(logits)
    assert (predicted.sum(dim=1) == 1).all()
    likeliest = loss.score(logits).classes.argmax(dim=1)
    assert torch.equal(predicted.int().argmax(dim=1), likeliest)


TOO_FEW_POSITIONS = torch.arange(K) < torch.tensor([6, 1, 1, 2]).unsqueeze(1)
"""A mask that leaves bag 3, which has three classes, only two positions."""
exact = library.Exact()
noisy_or = library.NoisyOr()


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        pytest.param(
            lambda: library.Exact("bags"),
            "unknown divide_by of exact 'bags'; did you mean 'bag'",
            id="misspelt argument",
        ),
        pytest.param(
            lambda: library.Exact(reduction="avg"),
            "unknown reduction of exact 'avg'",
            id="unknown reduction",
        ),
        pytest.param(
            lambda: with_reduction(library.NoisyOr(), "average")(some_logits(K), LABELS),
            "unknown reduction of noisy-or 'average'",
            id="unknown reduction, set later",
        ),
        pytest.param(
            lambda: library.TopK(0),
            "one_in of top-k must be a whole number from 1 on, got 0",
            id="number out of range",
        ),
        pytest.param(
            lambda: library.ExactEM()(torch.zeros(1, 18, 20), torch.ones(1, 17)),
            "17 classes exceeds the limit of the exact posterior, 16 classes; hard-em",
            id="too many classes",
        ),
        pytest.param(
            lambda: library.CrossEntropy()(some_logits(K), LISTS),
            "bag 0 has 2 classes in its label set",
            id="two classes for cross-entropy",
        ),
        pytest.param(
            lambda: library.CrossEntropy()(some_logits(K), [[0], [1], [], [2]]),
            "bag 2 has 0 classes in its label set",
            id="no class for cross-entropy",
        ),
        pytest.param(
            lambda: exact(some_logits(K), LISTS[:3]),
            "one list of class numbers for each of the 4 bags, got 3",
            id="a list too few",
        ),
        pytest.param(
            lambda: exact(some_logits(K), [[0], [3], [], []]),
            "bag 1 must be class numbers from 0 to 2, got 3",
            id="no class",
        ),
        pytest.param(
            lambda: exact(some_logits(K), LABELS.tolist()),
            "labels of bag 0 must be class numbers",
            id="lists of truth values",
        ),
        pytest.param(
            lambda: exact(some_logits(K).numpy(), LISTS),
            "logits must be a tensor, got ndarray",
            id="logits of NumPy",
        ),
        pytest.param(
            lambda: library.Attention()(some_logits(K), LISTS),
            "call build(num_classes=3)",
            id="not built",
        ),
        pytest.param(
            lambda: library.MaxPooling().predict(some_logits(K)),
            "are no log-odds: predict needs a threshold",
            id="no threshold",
        ),
        pytest.param(
            lambda: noisy_or(some_logits(K), LABELS / 2),
            "labels must be 0 and 1, got values from 0 to 0.5",
            id="labels of one half",
        ),
        pytest.param(
            lambda: noisy_or(WITH_NAN, LABELS),
            "logits are not finite in bag 2 (1 of 4 bags)",
            id="NaN",
        ),
        pytest.param(
            lambda: noisy_or(some_logits(0), LABELS), "logits have no positions", id="no positions"
        ),
        pytest.param(
            lambda: noisy_or(some_logits(K), LABELS, TOO_FEW_POSITIONS),
            "bag 3 has 3 classes in its label set and only 2 positions",
            id="too few positions",
        ),
        pytest.param(
            lambda: noisy_or(some_logits(K), LABELS, MASK[:, :-1]),
            "mask must be a bool tensor of shape (4, 6)",
            id="mask of another shape",
        ),
    ],
)
def test_a_mistake_is_reported_in_one_line(call: Callable[[], object], complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        call()
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


WITHOUT_TARGET = [name for name in NAMES if name not in ("count", "ctc", "position")]
ONE_MASKED = torch.ones(B, K, dtype=torch.bool)
"""A mask without the last position of bag 2."""
ONE_MASKED[2, -1] = False


@pytest.mark.parametrize("name", WITHOUT_TARGET)
def test_a_bag_costs_the_same_alone_and_in_batches(name: str) -> None:
    loss = load_loss(name, reduction="none").build(C)
    logits = some_logits(K)
    labels = labels_for(name)
    mask = None if name == "cross-entropy" else ONE_MASKED
    together = loss(logits, labels, mask)
    for bag in range(B):
        alone = slice(bag, bag + 1)
        own_mask = None if mask is None else mask[alone]
        assert_close(loss(logits[alone], labels[alone], own_mask)[0], together[bag])


@pytest.mark.parametrize("name", ["exact", "superset", "hard-em", "exact-em"])
def test_dividing_by_the_batch_makes_bags_depend_on_each_other(name: str) -> None:
    loss = load_loss(name, divide_by="batch", reduction="none")
    together = loss(some_logits(K), LABELS, ONE_MASKED)
    alone = loss(some_logits(K)[:1], LABELS[:1], ONE_MASKED[:1])
    assert not torch.isclose(alone[0], together[0])


@pytest.mark.parametrize("divide_by", ["none", "bag"])
@pytest.mark.parametrize("name", ["exact", "superset", "hard-em", "exact-em"])
def test_accumulating_two_halves_gives_the_gradient_of_the_whole(name: str, divide_by: str) -> None:
    loss = load_loss(name, divide_by=divide_by)
    whole = some_logits(K).requires_grad_()
    loss(whole, LABELS, ONE_MASKED).backward()
    parts = some_logits(K).requires_grad_()
    for half in (slice(0, 2), slice(2, 4)):
        part = loss(parts[half], LABELS[half], ONE_MASKED[half])
        (part / 2).backward()
    assert_close(parts.grad, whole.grad)


@pytest.mark.parametrize("reduction", [None, "men", 1])
def test_an_unknown_reduction_is_named_with_the_choices(reduction: Any) -> None:
    with pytest.raises(UsageError) as error:
        library.Exact(reduction=reduction)
    assert "reduction of exact" in str(error.value)
    assert "mean, none, sum" in str(error.value)
    assert "\n" not in str(error.value)


def test_hard_em_shares_ties_as_its_docstring_says() -> None:
    """Class 0 gets position 0 whole and half of position 1, where it ties with background.

    It ties with background at both positions, so three assignments are best. Their mean would give
    class 0 a share of 2/3 at each position.
    """
    logits = torch.tensor([[[2.0, 0.0], [2.0, -3.0], [2.0, 0.0]]], requires_grad=True)
    library.HardEM()(logits, torch.tensor([[True, False]])).backward()
    assert logits.grad is not None
    # The gradient of a cross-entropy is the softmax minus the shares.
    shares = logits.softmax(dim=1) - logits.grad
    assert_close(shares[0, 0].detach(), torch.tensor([1.0, 0.5]))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (library.NoisyOr(head="softmax"), "NoisyOr(head='softmax')"),
        (library.NoisyOr("softmax"), "NoisyOr(head='softmax')"),
        (library.NoisyOr(head="sigmoid"), "NoisyOr()"),
        (library.LogSumExp(sharpness=2.0, learn=False), "LogSumExp(sharpness=2.0, learn=False)"),
        (library.Exact("bag", reduction="none"), "Exact(divide_by='bag', reduction='none')"),
        (library.Exact(validate=False), "Exact(validate=False)"),
        (library.Mean(pos_weight=torch.tensor([1.0, 2.0])), "Mean(pos_weight=[1.0, 2.0])"),
        (
            library.Mean(weight=0.1, pos_weight="balanced"),
            "Mean(weight=0.1, pos_weight='balanced')",
        ),
    ],
    ids=str,
)
def test_the_repr_shows_what_differs_from_the_defaults(loss: Loss, expected: str) -> None:
    assert repr(loss) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_without_arguments_has_a_short_repr(name: str) -> None:
    loss = load_loss(name)
    assert repr(loss) == f"{type(loss).__name__}()"


class ScaledForward(library.OneVsRest):  # type: ignore[misc]
    name = "scaled-forward"

    def forward(self, *arguments: Any) -> Tensor:
        value: Tensor = 3 * super().forward(*arguments)
        return value


def test_a_loss_that_writes_forward_is_refused() -> None:
    """Training does not call `forward`, so that its code would be left out without a word."""
    with pytest.raises(UsageError, match=r"scaled-forward writes forward, .* write bag_loss"):
        ScaledForward()


class Uncounted(library.OneVsRest):  # type: ignore[misc]
    name = "uncounted"
    needs_class_counts = True
    build = Loss.build


def test_a_loss_that_needs_counts_has_to_take_them() -> None:
    with pytest.raises(UsageError, match="uncounted needs class counts"):
        Uncounted()


@pytest.mark.parametrize(
    ("labels", "num_classes"),
    [([[0], [0]], 1), ([[1, 0], [0, 1]], 2), ([[0, 1], [1, 0]], 2)],
    ids=["one class", "two classes", "two classes, the other way"],
)
def test_lists_that_may_be_zeros_and_ones_are_refused(
    labels: list[list[int]], num_classes: int
) -> None:
    logits = torch.zeros(2, num_classes + 1, 5)
    with pytest.raises(UsageError, match="pass zeros and ones as a tensor"):
        library.Exact()(logits, labels)
    library.Exact()(logits, torch.tensor(labels))


def numbers_of(*classes: int) -> Iterator[int]:
    yield from classes


@pytest.mark.parametrize(
    ("labels", "matrix"),
    [
        ([[1], []], [[0, 1], [0, 0]]),
        ([{0, 1}, {0, 1}], [[1, 1], [1, 1]]),
        ([numbers_of(0, 1), numbers_of(1)], [[1, 1], [0, 1]]),
    ],
    ids=["lists", "sets", "iterators"],
)
def test_class_numbers_of_two_classes_are_read(labels: Any, matrix: list[list[int]]) -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    as_numbers = library.Exact(reduction="none")(logits, labels)
    as_matrix = library.Exact(reduction="none")(logits, torch.tensor(matrix))
    assert_close(as_numbers, as_matrix)
