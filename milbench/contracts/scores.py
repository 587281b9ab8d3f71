"""The scores of bags and positions that a loss computes from a network's logits."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a batch of bags.

    There are B bags and C classes. `Loss.score` fills the fields from `classes` to `log_odds`, by
    the methods of the loss that are named below. An evaluation adds the other fields, for which it
    needs labels or the network.

    Args:
        classes: from `Loss.scores`. (B, C), one score for each class. The class with the largest
            score is the prediction for a bag of one instance. There is no prediction where all
            scores of a bag are -inf.
        presence: from `Loss.presence`. (B, C), larger where the class is more likely to occur in
            the bag, comparable between bags.
        instances: from `Loss.posterior`. (B, C+1, *positions), the probability that a position
            shows each class, background last, from the logits alone. It says of which class the
            instance at a position is, hence the name.
        evidence: from `Loss.evidence`. (B, C, *positions), larger where a position speaks more
            strongly for a class, comparable between the positions of one bag within one class. If
            None is passed, the field becomes `instances` without the background.
        log_odds: the same as `presence`, for a loss with `presence_is_log_odds`; None for any other
            loss.
        log_prob: from `Loss.label_log_prob`. (B,), the log-probability of the true label set of
            each bag; None: not known.
        even_odds_log_prob: from `Loss.label_log_prob`. (B,), the log-probability of the label set
            that is predicted at even odds: all classes whose presence is 0 or more. The metric
            `set_ece` compares it with how often this set is right. Where presence is no log-odds,
            the presence 0 has no meaning, but the probability of the set that it selects is still
            the loss's own. None: not known.
        mask: from `Network.mask_of`. (B, *positions) bool, True at positions that show an instance;
            None: all do.
        centres: from `Network.centres_in`. y of every row and x of every column of positions. None:
            not known; the hit rate in images and sequences is then left out.
    """

    classes: Tensor
    presence: Tensor
    instances: Tensor
    evidence: Tensor = None  # type: ignore[assignment]  # `__post_init__` replaces None
    log_odds: Tensor | None = None
    log_prob: Tensor | None = None
    even_odds_log_prob: Tensor | None = None
    mask: Tensor | None = None
    centres: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        without_background = self.instances[:, :-1]
        evidence = without_background if self.evidence is None else self.evidence
        # A plain assignment to a field of a frozen dataclass raises an error.
        object.__setattr__(self, "evidence", evidence)
