"""Connectionist temporal classification: the label of a bag says the order of its classes."""

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import UsageError
from milbench.likelihood.columns import FLOOR

from ._softmax import SoftmaxLoss


class Ctc(SoftmaxLoss):
    """Negative log-likelihood of the sequence of classes, summed over its alignments to columns.

        loss = -log Prb(sequence) = -log sum over alignments of prod_t Prb_t(symbol at column t).

    A symbol is a class or the blank, which stands for no class. A column is an entry of the last
    position dimension; all other position dimensions are the rows of a column. Columns are read in
    ascending order.

    A column is treated as a bag of its own, which contains one class at most. It emits class c with
    the exact likelihood of the label set {c}, and the blank with the exact likelihood of the empty
    label set, both given that it contains one class at most. With the logits z of a row and
    d_c = z_c - z_background,

        Prb_t(c) / Prb_t(blank) = prod over rows of (1 + exp d_c) - 1.

    (The mean over rows of a softmax would not do: it would give a digit that covers 5 of 28 rows a
    probability of at most 5/28, less than the blank.)

    Edge cases: columns without an instance are skipped. Two equal classes in a row need a blank
    column between them. A sequence that needs more columns than there are is rejected, and has a
    loss of +inf if the check of values is off.

    For columns of one row this is `torch.nn.functional.ctc_loss`, but with second derivatives.

    Source: A. Graves, S. Fernandez, F. Gomez and J. Schmidhuber, "Connectionist Temporal
    Classification: Labelling Unsegmented Sequence Data with Recurrent Neural Networks", ICML 2006.
    """

    name = "ctc"
    supervision = "order"

    def check_target(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> None:
        grid, grid_mask = _as_columns(logits, mask)
        columns = _occupied_columns(grid, grid_mask).sum(dim=1)
        sequences = Sequences(target)
        is_short = columns < sequences.fewest_columns
        if bool(is_short.any()):
            bag = int(is_short.nonzero()[0])
            length = int(sequences.lengths[bag])
            repeats = int(sequences.repeats[bag].sum())
            raise UsageError(
                f"ctc: bag {bag} has {int(columns[bag])} columns, "
                f"too few for its sequence of {length} classes, of "
                f"which {repeats} repeat the one before and need a blank between"
            )

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        grid, grid_mask = _as_columns(logits, mask)
        occupied = _occupied_columns(grid, grid_mask)
        sequences = Sequences(target)
        loss = -_log_prob(column_log_probs(grid, grid_mask), sequences, occupied)
        is_short = occupied.sum(dim=1) < sequences.fewest_columns
        return torch.where(is_short, torch.inf, loss)


class Sequences:
    """The sequences of classes of the bags of a batch.

    They are made from a target (B, M) of class numbers, where -1 is padding, at any index.
    """

    classes: Tensor
    """(B, M), the classes of each sequence in order, with the padding at the end."""
    repeats: Tensor
    """(B, M - 1), True where a class of the sequence is equal to the class before it."""
    lengths: Tensor
    """(B,), how many classes each sequence has."""

    def __init__(self, target: Tensor) -> None:
        padding_last = (target < 0).long().argsort(dim=1, stable=True)
        self.classes = target.gather(1, padding_last)
        is_same = self.classes[:, 1:] == self.classes[:, :-1]
        self.repeats = is_same & (self.classes[:, 1:] >= 0)
        self.lengths = (self.classes >= 0).sum(dim=1)

    @property
    def fewest_columns(self) -> Tensor:
        """(B,), how many columns each sequence needs.

        It needs one for each class, and one for the blank between two equal classes.
        """
        return self.lengths + self.repeats.sum(dim=1)


def _as_columns(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return logits as (B, C+1, h, w) and the mask as (B, h, w), for h rows and w columns.

    The last position dimension gives the columns, and all others together the rows.
    """
    if logits.ndim == 2:
        # One position, which is the only column.
        logits = logits.unsqueeze(2)
        mask = None if mask is None else mask.unsqueeze(1)
    grid = logits.unsqueeze(2).flatten(2, -2)
    if mask is None:
        return grid, None
    return grid, mask.unsqueeze(1).flatten(1, -2)


def _occupied_columns(grid: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, w) bool, which columns contain an instance."""
    if mask is None:
        return torch.ones_like(grid[:, 0, 0], dtype=torch.bool)
    return mask.any(dim=1)


def column_log_probs(grid: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return (B, C+1, w), the log-probability that each column emits each symbol, the blank last.

    The odds of a class are summed over the row in which the class occurs first, as in `noisy-or`:
    all terms are positive, so that no digits are lost.

    Args:
        grid: logits, (B, C+1, h, w).
        mask: (B, h, w), True where there is an instance; None if nothing is masked.
    """
    odds = grid[:, :-1] - grid[:, -1:]
    if mask is not None:
        odds = odds.masked_fill(~mask.unsqueeze(1), FLOOR)
    before = F.pad(F.softplus(odds), (0, 0, 1, -1)).cumsum(dim=2)
    shown = (odds + before).logsumexp(dim=2)
    return F.pad(shown, (0, 0, 0, 1)).log_softmax(dim=1)


def _log_prob(columns: Tensor, sequences: Sequences, occupied: Tensor) -> Tensor:
    """Return (B,), the log-probability of each sequence, by a recursion over the columns.

    The symbols of a sequence are its classes with a blank before, between and after them: 2 M + 1
    symbols for M classes, with the blanks at even indices. A state is the index of the symbol that
    was emitted last.

    Args:
        columns: (B, C+1, w), the log-probability of each symbol at each column, the blank last.
        sequences: of the B bags.
        occupied: (B, w), False at columns that are skipped.
    """
    blank = columns.shape[1] - 1
    batch, longest = sequences.classes.shape
    # A blank, and then each class with a blank behind it. After the end of a shorter sequence, all
    # symbols are blanks.
    classes = torch.where(sequences.classes < 0, blank, sequences.classes)
    class_and_blank = torch.stack([classes, torch.full_like(classes, blank)], dim=2).flatten(1)
    symbols = F.pad(class_and_blank, (1, 0), value=blank)
    emitted = columns.gather(1, symbols.unsqueeze(2).expand(-1, -1, columns.shape[2]))
    # A class may follow another one without a blank between them, but not itself.
    can_skip_blank = torch.zeros_like(symbols, dtype=torch.bool)
    can_skip_blank[:, 3::2] = ~sequences.repeats

    # alpha[:, s] is the log-probability of state s after the columns so far. Before the first
    # column the state is the blank in front of the sequence.
    alpha = F.pad(columns.new_zeros(batch, 1), (0, 2 * longest), value=FLOOR)
    for t in range(columns.shape[2]):
        step = F.pad(alpha, (1, -1), value=FLOOR)
        skip = F.pad(alpha, (2, 0), value=FLOOR)[:, :-2].masked_fill(~can_skip_blank, FLOOR)
        following = torch.stack([alpha, step, skip]).logsumexp(dim=0) + emitted[:, :, t]
        alpha = torch.where(occupied[:, t : t + 1], following, alpha)

    # The last column emits the last class, or the blank behind it.
    end = 2 * sequences.lengths.unsqueeze(1)
    blank_end = alpha.gather(1, end)
    class_end = alpha.gather(1, (end - 1).clamp(min=0)).masked_fill(end == 0, FLOOR)
    return torch.cat([blank_end, class_end], dim=1).logsumexp(dim=1)
