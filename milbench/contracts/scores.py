"""What a loss says of bags and positions, by the logits of a network."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a batch of bags.

    `Loss.score` returns the first five. An evaluation adds the others, for which it needs labels or the network.

    Args:
        classes: from `Loss.scores`. (B, C), the largest names the class of a bag of one instance; -inf in a whole
            row: none is named.
        presence: from `Loss.presence`. (B, C), larger where the class is more likely to occur in the bag, comparable
            between bags.
        instances: from `Loss.posterior`. (B, C+1, *positions), the probability that a position shows each class,
            background last.
        evidence: from `Loss.evidence`. (B, C, *positions), larger where a position speaks more strongly for a class,
            comparable between the positions of one bag within one class. Left out: the probabilities of the classes.
        log_odds: the presence once more, of a loss with `presence_is_log_odds`; None for any other loss.
        log_prob: from `Loss.label_log_prob`, for the true label sets. (B,); None: not known.
        even_odds_log_prob: from `Loss.label_log_prob`, for the label sets at even odds, the classes whose presence is
            0 or more. (B,); None: not known.
        mask: from `Network.mask_of`. (B, *positions) bool, True at positions that show an instance; None: all do.
        centres: from `Network.centres_in`. y of every row and x of every column of positions; None: not known, and the
            hit rate is left out.
    """

    classes: Tensor
    presence: Tensor
    instances: Tensor
    evidence: Tensor = None  # type: ignore[assignment]  # None is replaced below
    log_odds: Tensor | None = None
    log_prob: Tensor | None = None
    even_odds_log_prob: Tensor | None = None
    mask: Tensor | None = None
    centres: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        evidence = self.instances[:, :-1] if self.evidence is None else self.evidence
        object.__setattr__(self, "evidence", evidence)
