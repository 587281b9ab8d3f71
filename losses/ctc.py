"""Connectionist temporal classification, a reference with order supervision: the sequence of classes is known."""

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import UsageError
from milbench.likelihood.columns import FLOOR

from ._softmax import SoftmaxLoss


class Ctc(SoftmaxLoss):
    """Connectionist temporal classification of columns, summed over all alignments of the sequence.

        loss = -log Prb(sequence) = -log sum over alignments of prod_t Prb_t(symbol at column t).

    Columns are the entries of the last position dimension, read in ascending order; all other position dimensions are
    the rows of a column. A column is treated as a bag of its own: it emits class c with the exact likelihood of the
    label set {c} and blank with that of the empty one, given that it contains one class at most. With
    d_c = z_c - z_background,

        Prb_t(c) / Prb_t(blank) = prod over rows of (1 + exp d_c) - 1.

    (A mean of P over the rows would give a digit that covers 5 of 28 rows at most 5/28, less than the blank.)

    Edge cases: columns without an instance are skipped; two equal classes in a row need a blank column between them; a
    sequence that needs more columns than there are has a loss of +inf where it is not rejected.

    Unlike `torch.nn.functional.ctc_loss`, which is the same for columns of one row, it has second derivatives.

    Source: A. Graves, S. Fernandez, F. Gomez and J. Schmidhuber, "Connectionist Temporal Classification: Labelling
    Unsegmented Sequence Data with Recurrent Neural Networks", ICML 2006.
    """

    name = "ctc"
    supervision = "order"

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        if logits.ndim == 2:
            logits, mask = logits.unsqueeze(2), None if mask is None else mask.unsqueeze(1)
        grid = logits.unsqueeze(2).flatten(
            2, -2
        )  # (B, C+1, h, w): the last position dimension gives the columns
        grid_mask = None if mask is None else mask.unsqueeze(1).flatten(1, -2)
        occupied = (
            torch.ones_like(grid[:, 0, 0], dtype=torch.bool)
            if grid_mask is None
            else grid_mask.any(dim=1)
        )
        target = target.gather(
            1, (target < 0).long().argsort(dim=1, stable=True)
        )  # padding may be anywhere in a row
        repeats = (target[:, 1:] == target[:, :-1]) & (target[:, 1:] >= 0)
        lengths = (target >= 0).sum(dim=1)
        short = occupied.sum(dim=1) < lengths + repeats.sum(dim=1)
        if self.checks_values and bool(short.any()):
            bag = int(short.nonzero()[0])
            columns, classes, repeated = (
                int(value[bag].sum()) for value in (occupied, target >= 0, repeats)
            )
            raise UsageError(
                f"ctc: bag {bag} has {columns} columns, too few for its sequence of {classes} classes, of which "
                f"{repeated} repeat the one before and need a blank between"
            )
        loss = -_log_prob(column_log_probs(grid, grid_mask), target, repeats, lengths, occupied)
        return torch.where(short, torch.inf, loss)


def column_log_probs(grid: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return (B, C+1, w), the log-probability that each column of logits (B, C+1, h, w) emits each class, blank last.

    The odds are a sum of positive terms, over the first row where the class occurs, as in `noisy-or`: nothing cancels.
    """
    odds = grid[:, :-1] - grid[:, -1:]
    if mask is not None:
        odds = odds.masked_fill(~mask.unsqueeze(1), FLOOR)
    before = F.pad(F.softplus(odds), (0, 0, 1, -1)).cumsum(dim=2)
    shown = (odds + before).logsumexp(dim=2)
    return F.pad(shown, (0, 0, 0, 1)).log_softmax(dim=1)


def _log_prob(
    columns: Tensor, target: Tensor, repeats: Tensor, lengths: Tensor, occupied: Tensor
) -> Tensor:
    """Return (B,), log Prb of the sequences by the forward recursion over columns (B, C+1, w), blank last.

    A state is the last symbol of the sequence with blanks that was emitted: 2 M + 1 of them, blanks at even indices.
    The sequences `target` (B, M) are padded with -1 at the end; `repeats` (B, M - 1) marks classes equal to the one
    before, `occupied` (B, w) columns with an instance.
    """
    (B, M), blank = target.shape, columns.shape[1] - 1
    symbols = torch.stack([target, torch.full_like(target, blank)], dim=2).flatten(1)
    symbols = F.pad(symbols, (1, 0), value=blank)
    symbols = torch.where(
        symbols < 0, blank, symbols
    )  # padding: after the end of a shorter sequence
    emitted = columns.gather(1, symbols.unsqueeze(2).expand(-1, -1, columns.shape[2]))
    # A class may follow another one without a blank between them, but not itself.
    skips = torch.zeros_like(symbols, dtype=torch.bool)
    skips[:, 3::2] = ~repeats
    alpha = F.pad(columns.new_zeros(B, 1), (0, 2 * M), value=FLOOR)
    for t in range(columns.shape[2]):
        step = F.pad(alpha, (1, -1), value=FLOOR)
        skip = F.pad(alpha, (2, 0), value=FLOOR)[:, :-2].masked_fill(~skips, FLOOR)
        following = torch.stack([alpha, step, skip]).logsumexp(dim=0) + emitted[:, :, t]
        alpha = torch.where(occupied[:, t : t + 1], following, alpha)
    end = 2 * lengths.unsqueeze(1)
    blank_end = alpha.gather(1, end)
    class_end = alpha.gather(1, (end - 1).clamp(min=0)).masked_fill(end == 0, FLOOR)
    return torch.cat([blank_end, class_end], dim=1).logsumexp(dim=1)
