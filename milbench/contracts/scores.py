"""What a loss says of bags and positions, by the logits of a network."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a batch of bags: the answer of `Loss.score`, to which an evaluation adds what it needs labels for.

    Args:
        classes: (B, C), the largest names the class of a bag that holds one; -inf in a whole row: none is named.
        presence: (B, C), larger where the class is more likely to occur in the bag, comparable between bags.
        instances: (B, C+1, *positions), the probability that a position shows each class, background last.
        evidence: (B, C, *positions), larger where a position speaks more strongly for a class, comparable between the
            positions of one bag within one class. Left out: the probabilities of the classes.
        log_odds: (B, C), those of the presence, which do not round where a network is sure; None: it has none.
        log_prob: (B,), of the true label set by the model of the loss, see `Loss.label_log_prob`; None: not known.
        even_odds_log_prob: (B,), that of the label set at even odds, the classes whose presence is 0 or more.
        mask: (B, *positions) bool, True at positions that show an instance; None: all do.
        centres: of images and sequences y of every row and x of every column of positions, see `Network.centres_in`;
            None: not known, and the hit rate is left out.
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
