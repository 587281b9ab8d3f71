"""The loss `ctc` over columns of positions, against enumerated alignments and torch's CTC."""

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
    """Return sequences as a target (B, length), in which -1 fills up the shorter ones."""
    if length is None:
        length = max(len(sequence) for sequence in sequences)
    target = torch.full((len(sequences), length), -1)
    for row, sequence in zip(target, sequences, strict=True):
        row[: len(sequence)] = torch.tensor(sequence)
    return target


def loss_of(loss: Loss, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    value: Tensor = loss(logits, label_matrix(target, C), mask, target)
    return value


def column_prob(logits: Tensor) -> list[float]:
    """Return the probabilities of the C classes and, last, of the blank for one column.

    They are given that the column, with logits (C+1, h) of h positions, shows at most one class.
    """
    maps = LabelMaps(logits)
    weights = [maps.set_prob[frozenset({c})] for c in range(C)] + [maps.set_prob[frozenset()]]
    return [float(w / sum(weights)) for w in weights]


def by_enumeration(columns: list[list[float]], sequence: tuple[int, ...]) -> float:
    """Return the probability of a sequence, summed over the alignments that are read as it.

    An alignment gives each of the w columns a class or the blank, so there are (C+1)^w. It is read
    by merging repeats, then removing blanks. columns[t][c] is the probability of c in column t.
    """
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
    probs = {sequence: by_enumeration(columns, sequence) for sequence in SEQUENCES}
    possible = {sequence: prob for sequence, prob in probs.items() if prob > 0}
    assert len(possible) >= 3
    for sequence, prob in possible.items():
        value = loss_of(loss, logits, padded([sequence], 3))
        assert value.item() == pytest.approx(-math.log(prob), rel=1e-10)


def test_value_and_gradient_agree_with_torch() -> None:
    loss = per_bag("ctc")
    logits = some_logits(len(SEQUENCES), 28).requires_grad_()
    target = padded(SEQUENCES)
    # A column of one position shows what this position shows, as in torch's CTC.
    reference = F.ctc_loss(
        log_probs=logits.permute(2, 0, 1).log_softmax(dim=2),
        targets=target,
        input_lengths=torch.full((len(target),), 28),
        target_lengths=(target >= 0).sum(dim=1),
        blank=C,
        reduction="none",
    )
    value = loss_of(loss, logits, target)
    assert_close(value, reference)
    # All different, so that a gradient in the wrong bag is noticed.
    weights = torch.linspace(0.5, 2, len(target)).double()
    (gradient,) = torch.autograd.grad((value * weights).sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad((reference * weights).sum(), logits)
    assert_close(gradient, expected)


TWO_SEQUENCES = padded([(0, 1), (2, 2)])


def test_rows_have_no_order() -> None:
    logits = some_logits(2, 2, 3, 4)
    # The rows have two dimensions, 2 and 3. Their six pairs are put in another order.
    shuffled = logits.flatten(2, 3)[:, :, [4, 0, 5, 2, 1, 3]]
    value = loss_of(per_bag("ctc"), logits, TWO_SEQUENCES)
    assert_close(loss_of(per_bag("ctc"), shuffled, TWO_SEQUENCES), value)


def test_columns_in_reverse_have_the_reverse_sequence() -> None:
    logits = some_logits(2, 2, 3, 4)
    value = loss_of(per_bag("ctc"), logits, TWO_SEQUENCES)
    reverse = logits.flip(-1)
    assert_close(loss_of(per_bag("ctc"), reverse, TWO_SEQUENCES.flip(1)), value)
    assert not torch.allclose(loss_of(per_bag("ctc"), reverse, TWO_SEQUENCES)[0], value[0])


def test_padding_of_a_sequence_may_be_anywhere() -> None:
    logits = some_logits(2, 2, 3, 4)
    scattered = torch.tensor([[-1, 0, -1, 1], [2, -1, 2, -1]])
    value = loss_of(per_bag("ctc"), logits, TWO_SEQUENCES)
    assert_close(loss_of(per_bag("ctc"), logits, scattered), value)


def test_one_position_dimension_is_one_row() -> None:
    columns = some_logits(2, 4)
    one_row = columns.unsqueeze(2)
    value = loss_of(per_bag("ctc"), columns, TWO_SEQUENCES)
    assert_close(loss_of(per_bag("ctc"), one_row, TWO_SEQUENCES), value)


def test_a_bag_of_one_position_is_one_column() -> None:
    logits = some_logits(2)
    log_p = logits.log_softmax(dim=1)
    value = loss_of(per_bag("ctc"), logits, padded([(1,), ()]))
    assert_close(value, torch.stack([-log_p[0, 1], -log_p[1, C]]))
    assert_close(loss_of(per_bag("ctc"), logits.unsqueeze(2), padded([(1,), ()])), value)


THREE_SEQUENCES = padded([(0, 1), (2, 2), ()])


def test_columns_without_instances_are_skipped() -> None:
    logits = some_logits(3, 2, 4)
    hidden_columns = some_logits(3, 2, 3, seed=1)
    wide = torch.cat([logits[..., :2], hidden_columns, logits[..., 2:]], dim=-1)
    mask = torch.zeros(3, 2, 7, dtype=torch.bool)
    mask[..., [0, 1, 5, 6]] = True
    value = loss_of(per_bag("ctc"), logits, THREE_SEQUENCES)
    assert_close(loss_of(per_bag("ctc"), wide, THREE_SEQUENCES, mask), value)


def test_masked_rows_are_left_out_of_a_column() -> None:
    logits = some_logits(3, 2, 4)
    hidden_rows = torch.zeros(3, C + 1, 2, 4)
    tall = torch.cat([logits, hidden_rows], dim=2)
    mask = torch.tensor([True, True, False, False]).view(1, 4, 1).expand(3, 4, 4)
    value = loss_of(per_bag("ctc"), logits, THREE_SEQUENCES)
    assert_close(loss_of(per_bag("ctc"), tall, THREE_SEQUENCES, mask), value)


def test_a_sequence_that_does_not_fit_is_refused() -> None:
    """The sequence (2, 2) needs a blank between its equal classes, and so a third column."""
    with pytest.raises(UsageError, match="bag 1 has 2 columns"):
        loss_of(per_bag("ctc"), some_logits(2, 3, 2), TWO_SEQUENCES)


def test_unchecked_a_sequence_that_does_not_fit_costs_infinity() -> None:
    loss = per_bag("ctc")
    loss.validate = False
    logits = some_logits(2, 3, 2).requires_grad_()
    value = loss_of(loss, logits, TWO_SEQUENCES)
    assert value[0].isfinite()
    assert value[1] == torch.inf
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert (gradient[0] != 0).any()
    assert (gradient[1] == 0).all()
