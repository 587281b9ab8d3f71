"""A reference under order supervision: the sequence of classes is known, where each is is not."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench.api.loss import Loss
from milbench.errors import UsageError
from milbench.likelihood.columns import FLOOR

from ._positions import expected_counts


class Ctc(Loss):
    """Connectionist temporal classification of the columns: -log Prb(sequence), summed over all its alignments.

    The last position dimension is read from left to right, whatever comes before it is a column's rows. A column is an
    instance bag of its own, and shows class c with the exact likelihood of the label set {c}, blank with that of the
    empty one, given that it shows one class at most: with d_c = z_c - z_background,

        Prb(c) / Prb(blank) = prod over rows of (1 + exp d_c) - 1.

    A mean of P over the rows would leave a digit of five rows in 28 less likely than the blank however sure it is.
    Columns without an instance are skipped. A sequence that needs more columns than there are costs +inf where it is
    not rejected.

    The sum over alignments is written in plain operations, as `torch.nn.functional.ctc_loss`, which it agrees with,
    has no second derivative, and the paper's optimiser needs one.

    A. Graves, S. Fernandez, F. Gomez and J. Schmidhuber, "Connectionist Temporal Classification", ICML 2006.
    """

    name = "ctc"
    supervision = "order"
    target_kind = "order"

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), -log Prb of the sequences `target` (B, M) int64, -1 where a bag has fewer than M classes."""
        if target.ndim != 2 or len(target) != len(logits):
            raise UsageError(
                f"ctc needs a target of order as (B, M) = ({len(logits)}, M) classes, got shape {tuple(target.shape)}"
            )
        grid, grid_mask = _as_grid(logits, mask)
        there = torch.ones_like(grid[:, 0, 0], dtype=torch.bool) if grid_mask is None else grid_mask.any(dim=1)
        target = target.gather(1, (target < 0).long().argsort(dim=1, stable=True))
        again = (target[:, 1:] == target[:, :-1]) & (target[:, 1:] >= 0)
        lengths = (target >= 0).sum(dim=1)
        short = there.sum(dim=1) < lengths + again.sum(dim=1)
        if self.validate and bool(short.any()):
            bag = int(short.nonzero()[0])
            raise UsageError(
                f"ctc: bag {bag} has {int(there[bag].sum())} columns, too few for its sequence of {int(lengths[bag])} "
                f"classes, of which {int(again[bag].sum())} repeat the one before and need a blank between"
            )
        cost = -_log_prob(column_log_probs(grid, grid_mask), target, again, lengths, there)
        return torch.where(short, torch.inf, cost)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the expected number of positions of each class: sum_k p_{c,k}."""
        return expected_counts(logits, mask)


def column_log_probs(grid: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return (B, C+1, w), the log-probability that a column shows each class, blank last, from logits (B, C+1, h, w).

    Written as a sum of positive terms over the first row that shows the class, as in `noisy-or`: nothing cancels.
    """
    odds = grid[:, :-1] - grid[:, -1:]
    if mask is not None:
        odds = odds.masked_fill(~mask.unsqueeze(1), FLOOR)
    before = F.pad(F.softplus(odds), (0, 0, 1, -1)).cumsum(dim=2)
    shown = (odds + before).logsumexp(dim=2)
    return F.pad(shown, (0, 0, 0, 1)).log_softmax(dim=1)


def _log_prob(columns: Tensor, target: Tensor, again: Tensor, lengths: Tensor, there: Tensor) -> Tensor:
    """Return (B,), log Prb of the sequences by the forward recursion over (B, C+1, w) columns.

    States are the places before, at and after each class of the sequence, 2 M + 1 of them: blanks at the even ones.
    """
    (B, M), blank = target.shape, columns.shape[1] - 1
    symbols = torch.stack([target, torch.full_like(target, blank)], dim=2).flatten(1)
    symbols = F.pad(symbols, (1, 0), value=blank)
    symbols = torch.where(symbols < 0, blank, symbols)  # padding: never on the way to the end of a shorter sequence
    emitted = columns.gather(1, symbols.unsqueeze(2).expand(-1, -1, columns.shape[2]))
    # Two equal classes in a row need the blank between them; others may follow each other at once.
    skips = torch.zeros_like(symbols, dtype=torch.bool)
    skips[:, 3::2] = ~again
    alpha = F.pad(columns.new_zeros(B, 1), (0, 2 * M), value=FLOOR)
    for t in range(columns.shape[2]):
        one = F.pad(alpha, (1, -1), value=FLOOR)
        two = F.pad(alpha, (2, 0), value=FLOOR)[:, :-2].masked_fill(~skips, FLOOR)
        following = torch.stack([alpha, one, two]).logsumexp(dim=0) + emitted[:, :, t]
        alpha = torch.where(there[:, t : t + 1], following, alpha)
    after = alpha.gather(1, 2 * lengths.unsqueeze(1))
    at = alpha.gather(1, (2 * lengths - 1).clamp(min=0).unsqueeze(1)).masked_fill((lengths == 0).unsqueeze(1), FLOOR)
    return torch.cat([after, at], dim=1).logsumexp(dim=1)


def _as_grid(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return logits (B, C+1, h, w) and mask (B, h, w): the last position dimension gives the columns."""
    B, channels, *positions = logits.shape
    shape = (-1, positions[-1]) if positions else (1, 1)
    if not len(logits):
        shape = (1, shape[1])
    return logits.reshape(B, channels, *shape), None if mask is None else mask.reshape(B, *shape)
