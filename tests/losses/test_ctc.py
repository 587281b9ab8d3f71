"""CTC over columns against the enumeration of alignments and against `torch.nn.functional.ctc_loss`."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from milbench import Loss, UsageError, label_matrix
from tests._helpers.label_maps import LabelMaps
from tests._helpers.losses import per_bag, random_logits

C = 3
SEQUENCES = [(), (0,), (2,), (0, 1), (1, 0), (1, 1), (0, 0, 1), (2, 2, 2), (0, 1, 2)]


def some_logits(B: int, *positions: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    return random_logits(B, C + 1, *positions, seed=seed, scale=scale)


def padded(sequences: list[tuple[int, ...]], length: int | None = None) -> Tensor:
    length = max(map(len, sequences)) if length is None else length
    return torch.tensor([[*s, *[-1] * (length - len(s))] for s in sequences]).view(
        len(sequences), length
    )


def call(loss: Loss, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    value: Tensor = loss(logits, label_matrix(target, C), mask, target)
    return value


def column_prob(logits: Tensor) -> list[float]:
    """Return the probabilities of the classes of one column (C+1, h), blank last, given at most one class in it."""
    maps = LabelMaps(logits)
    weights = [maps.set_prob[frozenset({c})] for c in range(C)] + [maps.set_prob[frozenset()]]
    return [float(w / sum(weights)) for w in weights]


def by_enumeration(columns: list[list[float]], sequence: tuple[int, ...]) -> float:
    """Return Prb(sequence) of columns[t][c], over all (C+1)^w alignments: repeats are merged, then blanks removed."""
    total = 0.0
    for alignment in itertools.product(range(C + 1), repeat=len(columns)):
        read = tuple(c for c, _ in itertools.groupby(alignment) if c != C)
        if read == sequence:
            total += math.prod(column[c] for column, c in zip(columns, alignment, strict=True))
    return total


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 5), (2, 4), (3, 3)])
def test_value_is_the_sum_over_all_alignments(height: int, width: int) -> None:
    loss = per_bag("ctc")
    logits = some_logits(1, height, width, seed=height)
    columns = [column_prob(logits[0, :, :, t]) for t in range(width)]
    possible = {s: p for s in SEQUENCES if (p := by_enumeration(columns, s)) > 0}
    assert len(possible) >= 3
    for sequence, prob in possible.items():
        value = call(loss, logits, padded([sequence], 3))
        assert value.item() == pytest.approx(-math.log(prob), rel=1e-10)


def test_value_and_gradient_agree_with_torch() -> None:
    loss = per_bag("ctc")
    logits = some_logits(len(SEQUENCES), 28).requires_grad_()
    target = padded(SEQUENCES)
    # Columns of one position show what the position shows.
    reference = F.ctc_loss(
        logits.permute(2, 0, 1).log_softmax(dim=2), target, torch.full((len(target),), 28), (target >= 0).sum(dim=1),
        blank=C, reduction="none",
    )  # fmt: skip
    value = call(loss, logits, target)
    assert_close(value, reference)
    weights = torch.linspace(0.5, 2, len(target)).double()
    (gradient,) = torch.autograd.grad((value * weights).sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad((reference * weights).sum(), logits)
    assert_close(gradient, expected)


def test_columns_have_an_order_and_rows_have_none() -> None:
    loss, target = per_bag("ctc"), padded([(0, 1), (2, 2)])
    logits = some_logits(2, 2, 3, 4)
    value = call(loss, logits, target)
    assert_close(call(loss, logits.flatten(2, 3)[:, :, [4, 0, 5, 2, 1, 3]], target), value)
    assert_close(call(loss, logits.flip(-1), target.flip(1)), value)
    assert not torch.allclose(call(loss, logits.flip(-1), target)[0], value[0])
    assert_close(
        call(loss, logits, torch.tensor([[-1, 0, -1, 1], [2, -1, 2, -1]])), value
    )  # padding is anywhere
    assert_close(call(loss, logits[:, :, 0, 0], target), call(loss, logits[:, :, 0, :1], target))
    single = some_logits(2)
    assert call(loss, single, padded([(1,), ()])).tolist() == pytest.approx(
        [-single.log_softmax(dim=1)[0, 1].item(), -single.log_softmax(dim=1)[1, C].item()]
    )


def test_columns_without_instances_are_skipped() -> None:
    loss, target = per_bag("ctc"), padded([(0, 1), (2, 2), ()])
    logits = some_logits(3, 2, 4)
    wide = torch.cat([logits[..., :2], some_logits(3, 2, 3, seed=1), logits[..., 2:]], dim=-1)
    mask = torch.zeros(3, 2, 7, dtype=torch.bool)
    mask[..., [0, 1, 5, 6]] = True
    value = call(loss, logits, target)
    assert_close(call(loss, wide, target, mask), value)
    taller = torch.cat([logits, torch.zeros(3, C + 1, 2, 4)], dim=2)
    rows = torch.tensor([True, True, False, False]).view(1, 4, 1).expand(3, 4, 4)
    assert_close(call(loss, taller, target, rows), value)


def test_sequences_that_do_not_fit_are_refused_or_have_an_infinite_loss() -> None:
    loss, target = per_bag("ctc"), padded([(0, 1), (2, 2)])
    logits = some_logits(2, 3, 2).requires_grad_()
    with pytest.raises(UsageError, match="bag 1 has 2 columns"):
        call(loss, logits, target)
    loss.validate = False
    value = call(loss, logits, target)
    assert value[0].isfinite()
    assert value[1] == torch.inf
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert (gradient[0] != 0).any()
    assert (gradient[1] == 0).all()
