"""Which losses work with torch.func and torch.compile: tries every cell of a table.

The table is in docs/losses.md.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jvp, vmap
from torch.testing import assert_close

from milbench import Loss
from milbench.contracts.registry import losses
from milbench.testing import Variant
from milbench.testing.loss_contract import LABELS, ONE_CLASS, K, some_logits, target_for
from tests._helpers.losses import BUILT_IN

PAGE = Path(__file__).parents[2] / "docs" / "losses.md"
HEADER = "| loss | `grad` | `jvp` | `hessian` | `vmap` | `torch.compile` |"
COLUMNS = ("grad", "jvp", "hessian", "vmap", "compile")
# Logits are (B, C + 1, K): 4 bags, 3 classes and the background, 6 positions. LABELS and ONE_CLASS
# are (B, C).
DIRECTION = some_logits(K, seed=5)
"""Derivatives are taken along this direction of logits."""


def table() -> dict[str, dict[str, str]]:
    """Return the cells of the table by loss and column; the row `all others` counts as a loss."""
    lines = PAGE.read_text("utf-8").split("\n")
    rows = {}
    for line in lines[lines.index(HEADER) + 2 :]:
        if not line.startswith("|"):
            break
        names, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in names.replace("`", "").split(", "):
            rows[name] = dict(zip(COLUMNS, cells, strict=True))
    return rows


TABLE = table()


def stated(variant: Variant, column: str) -> str:
    """Return what the table says of a loss with these settings; without them, of the loss."""
    settings = ", ".join(map(str, variant.params.values()))
    for name in (f"{variant.loss} ({settings})", variant.loss, "all others"):
        if name in TABLE:
            return TABLE[name][column]
    raise KeyError(column)


class Case:
    """A loss, and bags that it accepts."""

    def __init__(self, variant: Variant, *, tied: bool = False) -> None:
        self.loss: Loss = variant.load()
        # Some losses accept only label sets of one class.
        self.labels = ONE_CLASS if variant.one_class else LABELS
        logits = some_logits(K)
        # Rounded to whole numbers, several logits are the largest.
        self.logits = logits.round() if tied else logits
        # The target (B, ...) of losses that need more than the label set, such as counts or the
        # order; None for all other losses.
        self.target = target_for(self.loss, self.logits, self.labels)

    def total(self, logits: Tensor) -> Tensor:
        value: Tensor = self.loss(logits, self.labels, None, self.target).sum()
        return value

    def of_one_bag(self, logits: Tensor, labels: Tensor, target: Tensor | None) -> Tensor:
        """Return the loss of one bag, whose tensors have no dimension B."""
        own_target = None if target is None else target.unsqueeze(0)
        value: Tensor = self.loss(logits.unsqueeze(0), labels.unsqueeze(0), None, own_target)
        return value[0]

    def gradient(self) -> Tensor:
        """Return the gradient by plain backward."""
        leaf = self.logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self.total(leaf), leaf)
        return gradient

    def hessian_times_direction(self) -> Tensor:
        """Return the product of the Hessian with DIRECTION, by backward twice."""
        leaf = self.logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self.total(leaf), leaf, create_graph=True)
        (product,) = torch.autograd.grad((gradient * DIRECTION).sum(), leaf)
        return product


def try_grad(case: Case) -> None:
    assert_close(grad(case.total)(case.logits), case.gradient())


def try_jvp(case: Case) -> None:
    along = (case.gradient() * DIRECTION).sum()
    # `jvp` returns the value, and its derivative along the direction.
    found = jvp(case.total, (case.logits,), (DIRECTION,))[1]
    assert_close(found, along)
    # The page says that this column includes forward mode of `torch.autograd`.
    with forward_ad.dual_level():
        value = case.total(forward_ad.make_dual(case.logits, DIRECTION))
        assert_close(forward_ad.unpack_dual(value).tangent, along)


def try_hessian(case: Case) -> None:
    expected = case.hessian_times_direction()
    # The shape is (B, C + 1, K, B, C + 1, K). DIRECTION is multiplied with the last three
    # dimensions.
    whole = hessian(case.total)(case.logits)
    assert_close(torch.tensordot(whole, DIRECTION, dims=3), expected)
    # The same product without the whole Hessian.
    product = jvp(grad(case.total), (case.logits,), (DIRECTION,))[1]
    assert_close(product, expected)


def try_vmap(case: Case) -> None:
    in_dims = (0, 0, None if case.target is None else 0)
    values = vmap(case.of_one_bag, in_dims=in_dims)(case.logits, case.labels, case.target)
    gradients = vmap(grad(case.of_one_bag), in_dims=in_dims)(case.logits, case.labels, case.target)
    for bag in range(len(case.logits)):
        target = None if case.target is None else case.target[bag]
        one = case.logits[bag].clone().requires_grad_()
        value = case.of_one_bag(one, case.labels[bag], target)
        assert_close(values[bag], value)
        assert_close(gradients[bag], torch.autograd.grad(value, one)[0])


def try_compile(case: Case) -> None:
    torch.compiler.reset()
    leaf = case.logits.clone().requires_grad_()
    # Whether a loss compiles depends on whether torch can trace it, which is the same for every
    # backend. The backend "eager" runs the trace without making machine code, which takes long.
    value = torch.compile(case.total, backend="eager", fullgraph=True)(leaf)
    assert_close(torch.autograd.grad(value, leaf)[0], case.gradient())


TRIES: dict[str, Callable[[Case], None]] = {
    "grad": try_grad,
    "jvp": try_jvp,
    "hessian": try_hessian,
    "vmap": try_vmap,
    "compile": try_compile,
}


def test_the_table_names_only_losses_that_there_are() -> None:
    names = {name.partition(" (")[0] for name in TABLE}
    assert names - {"all others"} <= {*losses().names()}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("variant", BUILT_IN, ids=str)
def test_the_table_says_what_works(variant: Variant, column: str) -> None:
    answer = stated(variant, column)
    assert answer in ("yes", "no")
    if answer == "yes":
        TRIES[column](Case(variant))
        return
    with pytest.raises(Exception):  # noqa: B017, PT011 the errors are torch's
        TRIES[column](Case(variant))


@pytest.mark.parametrize("column", ["grad", "jvp", "hessian"])
@pytest.mark.parametrize("variant", BUILT_IN, ids=str)
def test_logits_that_tie_have_the_derivatives_of_plain_backward(
    variant: Variant, column: str
) -> None:
    # These three columns say yes for every loss.
    assert stated(variant, column) == "yes"
    TRIES[column](Case(variant, tied=True))
