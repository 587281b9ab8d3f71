"""The contract of a loss: what a subclass writes, and what it can be asked.

A loss is arithmetic over the logits of a batch. What a user calls hands its arguments to a function
in `milbench.contracts.criterion`. That checks them, flattens positions, calls what a subclass
writes, and checks the result.

    a user calls     functions in criterion   a subclass writes
    ---------------  -----------------------  ------------------------------------------
    loss(...)        bag_losses, reduced      check_bags and bag_loss, or
                                              check_target and target_loss
    score            score                    scores, presence, posterior, evidence
    predict          score, label_sets_by     what score needs
    label_log_prob   label_log_prob           set_log_prob
    build            none                     make_weights
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from milbench._utils.seeding import generator
from milbench.contracts import criterion
from milbench.contracts.arguments import changed_arguments, kept_arguments
from milbench.contracts.loss_checks import LabelSets, Target, check_methods, check_supervision
from milbench.contracts.scores import Scores
from milbench.contracts.supervision import Supervision
from milbench.errors import UsageError, closest, one_of

Head = Literal["softmax", "sigmoid", "class"]
Reduction = Literal["none", "mean", "sum"]


class ClassCounts(NamedTuple):
    """How often each class occurs in the training bags."""

    bags_with_class: Tensor
    """(C,) integers, how many of the bags have each class."""
    bags: int
    """How many bags there are."""


NO_CLASS_WEIGHTS = (
    "it is no sum over classes that could be weighted; "
    "such sums are noisy-or, one-vs-rest and the poolings, for example"
)
"""Why a loss takes no weights of classes."""


class Loss(torch.nn.Module, ABC):
    """Base class of losses: a criterion of the logits of a network and the label sets of a batch of bags.

    A subclass lives in a file of its own and sets `name` (the file's name with hyphens); `milbench
    new loss NAME` writes an example. It writes `bag_loss` and `scores`. It writes `presence`,
    `posterior`, `evidence` and `set_log_prob` where the defaults do not fit: a loss is judged by
    its own answers about label sets and positions.

    These methods receive arguments that were checked:

    - logits (B, C+1, K), background last. Positions of any number of dimensions are flattened into
      K. They are float32 or float64: half precision is computed in float32, also under autocast.
      They are zero at masked positions, so that nothing there, not even a NaN, reaches a value or a
      gradient; a maximum or a mean still has to leave them out.
    - labels (B, C) bool.
    - a mask (B, K) bool, True where there is an instance, or None: everywhere. A bag may have no
      instance at all: its loss for the empty label set is then finite, never NaN, and its gradient
      0. To exclude positions, fill them with the smallest number of the dtype rather than -inf,
         which has no gradient.

    A loss with more supervision than the label sets says so in `supervision`, and writes
    `target_loss` instead of `bag_loss`; `milbench.contracts.targets.make_target` describes the
    targets.

    A loss may have weights of its own, which are trained and stored with those of the network.
    Where their shape depends on the number of classes, it makes them in `make_weights`, and whoever
    uses the loss calls `build` first.

    The parameters of its constructor are those of a cell, except the two below: milbench itself
    trains on the mean of the losses of the bags, and decides for each step whether to check values.
    A loss keeps each argument as an attribute of the same name, which `repr` shows and
    `BagClassifier` copies.

    Args:
        reduction: of the losses of the bags of a batch: `mean`, `sum`, or `none`, (B,).
        validate: whether a call checks values as well as shapes: finite logits, and no label set
            larger than its bag. On a GPU this waits for the device. Without the check most losses
            give +inf for a label set that cannot occur. Inside `torch.func` and compiled code no
            value is checked.
    """

    name: ClassVar[str]
    supervision: ClassVar[Supervision] = "set"
    """What the loss is given, or presumes, of each bag in training."""
    revision: ClassVar[int] = 1
    """Raise it when the loss computes something else than before: older results are then not reused."""
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Parameters that are newer than stored cells, see `milbench.contracts.parameters`."""
    head: Head = "softmax"
    """What a logit means. softmax: the classes compete in each position; sigmoid: one independent detector a class;
    class: the classes of a whole bag compete, which has one instance, and the network is one of
    `Task.classifiers`.
    """
    presence_is_log_odds: bool = False
    """Whether `presence` is the log-odds that a class occurs in a bag, by the loss's own probabilities: a forecast, 0
    at even odds. Otherwise it ranks bags and no more."""
    needs_class_counts: bool = False
    """Whether the loss cannot be trained before `build` has got `class_counts`, which are costly to count."""

    call_arguments: ClassVar[tuple[str, ...]] = ("reduction", "validate")
    """The arguments of the constructor that only say how a user's call behaves. A cell does not have them: in training
    milbench decides both."""
    unknown_parameters: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"weight": NO_CLASS_WEIGHTS, "pos_weight": NO_CLASS_WEIGHTS}
    )
    """By the name of a parameter, what a user is told who sets it where the loss does not have it."""

    num_classes: int | None = None
    """C, for which `build` has made the weights; None: it was not called."""
    max_labels: int | None = None
    """The largest |L| in the training bags, or more, as `build` was told. With it a loss need not wait for an
    accelerator to learn the largest |L| of a batch."""

    def __init__(self, *, reduction: Reduction = "mean", validate: bool = True) -> None:
        super().__init__()
        check_supervision(self)
        check_methods(self)
        self.reduction: Reduction = one_of(
            f"reduction of {self.name}", reduction, get_args(Reduction)
        )
        self.validate = validate

    # What a subclass writes.

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return (B,) floating point, at least float32: the loss of every bag, without reduction over the batch."""
        # It is not abstract, since a loss may write `target_loss` instead. This one writes neither.
        cls = type(self)
        own_names = [member for member in vars(cls) if not member.startswith("__")]
        similar = closest("bag_loss", own_names)
        hint = f"; did you mean 'bag_loss' by {similar!r}?" if similar else ""
        raise UsageError(f"{self.name}: its class {cls.__name__} has no method 'bag_loss'{hint}")

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,) floating point, the loss of every bag, for a loss with more supervision than label sets.

        The target holds integers, those of `milbench.contracts.targets.make_target` for its
        `supervision`. Logits (B, C+1, *positions) and mask (B, *positions) have the positions as
        they are.
        """
        raise NotImplementedError

    @abstractmethod
    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C); the largest names the class of a bag of one instance. -inf in a whole row: none is named."""

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), larger where the class is more likely to occur in the bag, comparable between bags.

        Return values that do not round to 0 or 1, such as log-odds: the surest predictions must
        still be ranked.
        """
        return self.scores(logits, mask)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return (B, C+1, K), the probability that a position shows each class, from the logits alone.

        For independent detectors it is the distribution given that at most one of them fires.
        """
        if self.head == "sigmoid":
            # A background of logit 0 stands for the case that no detector fires.
            no_detector = torch.zeros_like(logits[:, -1:])
            logits = torch.cat([logits[:, :-1], no_detector], dim=1)
        return logits.softmax(dim=1)

    def evidence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C, K), larger where a position speaks more strongly for the class, by the rule of this loss.

        Values can be compared between the positions of one bag, within one class.

        The default is the probability of the class by `posterior`. Where `head` is sigmoid it is
        the logit of the detector, which does not depend on other detectors. Probabilities that
        round to 1 are not ranked; in float32 this happens to a class whose logit is 17 above the
        others.
        """
        if self.head == "sigmoid":
            return logits[:, :-1]
        return self.posterior(logits, mask)[:, :-1]

    def set_log_prob(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return (B,), the log-probability of each label set by the model of this loss; None where it has none.

        Labels (B, C) are any sets of classes, perhaps larger than the bag; the probabilities of all
        label sets of a bag sum to 1. The default is that of independent classes where the presence
        is a log-odds, and None elsewhere.
        """
        if not self.presence_is_log_odds:
            return None
        log_odds = self.presence(logits, mask)
        return logsigmoid(torch.where(labels, log_odds, -log_odds)).sum(dim=1)

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:
        """Set the parameters (`torch.nn.Parameter`, float32, on the CPU) whose shape depends on the number of classes.

        Draw from `rng` alone. Logits may be on another device or in float64, as in evaluation: use
        a parameter as `parameter.to(logits)`.

        Examples:
            >>> class Scaled(Loss):
            ...     name = "scaled"
            ...     head = "sigmoid"
            ...
            ...     def make_weights(self, num_classes, rng):
            ...         self.scale = torch.nn.Parameter(torch.ones(num_classes))
            ...
            ...     def scores(self, logits, mask):
            ...         return self.scale.to(logits) * logits[:, :-1].amax(dim=2)
            >>> Scaled().build(num_classes=3).score(torch.zeros(2, 3 + 1, 5)).classes.shape
            torch.Size([2, 3])
        """

    def check_bags(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> None:
        """Raise UsageError for a bag that this loss cannot be computed on, though other losses may be.

        It is called before `bag_loss`, with the same arguments, and only where values are checked.
        So it may look at values, which on a GPU means to wait.
        """

    def check_target(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> None:
        """Do for `target_loss` what `check_bags` does for `bag_loss`, with the arguments of `target_loss`."""

    # What a loss is asked.

    def build(
        self,
        num_classes: int,
        seed: int = 0,
        *,
        max_labels: int | None = None,
        class_counts: ClassCounts | tuple[Tensor, int] | None = None,  # noqa: ARG002
    ) -> Self:
        """Take in what is known of the training bags, make the weights anew, and return the loss.

        Training calls it with the seed of the cell, before the loss is moved to a device and the
        optimiser is made. A loss without weights that depend on the number of classes need not be
        built; one that has them raises UsageError until it is.

        Args:
            num_classes: C, without the background.
            seed: the weights are drawn from it.
            max_labels: an upper bound of the number of classes in a bag, so that a GPU need not
                wait; None: not known.
            class_counts: how many of the training bags have each class, (C,), and how many bags
                there are. A loss with `needs_class_counts` looks at them, as with
                `pos_weight="balanced"`.
        """
        self.num_classes = num_classes
        self.max_labels = max_labels
        self.make_weights(num_classes, generator("weights of the loss", seed))
        return self

    def forward(
        self,
        logits: Tensor,
        labels: LabelSets,
        mask: Tensor | None = None,
        target: Target | None = None,
    ) -> Tensor:
        """Return the loss of a batch, or with `reduction="none"` that of every bag.

        Args:
            logits: (B, C+1, *positions) floating point, background last.
            labels: the label sets, a tensor or array (B, C) of zeros and ones, or B lists of class
                numbers. Inside a compiled function, a tensor.
            mask: (B, *positions) bool, True where there is an instance; None: everywhere.
            target: integers from `milbench.contracts.targets.make_target`, for a loss with a
                `target_loss`: counts (B, C), positions (B, *positions) with C for background, order
                (B, M) padded with -1.

        Raises:
            UsageError: a ValueError. An argument has the wrong shape or type, logits are not
                finite, or a label set is larger than its bag; or the subclass returned something
                else than one value a bag, with a gradient.
        """
        values = criterion.bag_losses(
            self, logits, labels, mask, target, check_values=self.validate
        )
        return criterion.reduced(self, values, self.reduction)

    def score(self, logits: Tensor, mask: Tensor | None = None) -> Scores:
        """Return all scores of bags and positions, from logits (B, C+1, *positions) alone.

        Masked positions are background, with evidence of -inf. Each loss has its own scale of
        presence.

        Examples:
            One bag of two positions. By their own detectors, both classes are the likeliest at the
            first position.

            >>> import torch
            >>> from milbench import load_loss
            >>> scores = load_loss("one-vs-rest").score(torch.tensor([[[4.0, 1.0], [5.0, 0.0], [0.0, 0.0]]]))
            >>> scores.presence
            tensor([[4., 5.]])
            >>> scores.evidence
            tensor([[[4., 1.],
                     [5., 0.]]])
        """
        return criterion.score(self, logits, mask, check_values=self.validate)

    def predict(
        self, logits: Tensor, mask: Tensor | None = None, threshold: float | None = None
    ) -> Tensor:
        """Return the label set that the loss reads from each bag, (B, C) bool; one class where `head` is class.

        A class occurs where its presence is at least the threshold. None: even odds, where presence
        is log-odds.

        Raises UsageError without a threshold where presence is no log-odds. Choose one on bags that
        were not trained on.
        """
        return criterion.label_sets_by(self, self.score(logits, mask), threshold)

    def label_log_prob(
        self, logits: Tensor, labels: LabelSets, mask: Tensor | None = None
    ) -> Tensor | None:
        """Return (B,) in nats, the log-probability of a label set for each bag, by the model of this loss.

        Labels are any sets, as in `forward`; -inf for a set that cannot occur; a lower bound where
        the loss says so. None for a loss without a probability of label sets. Raises UsageError for
        a wrong shape or type.
        """
        return criterion.label_log_prob(self, logits, labels, mask)

    def has_own(self, method: str) -> bool:
        """Return whether the class of the loss has written a method of this contract, or only inherits its default."""
        return getattr(type(self), method) is not getattr(Loss, method)

    @property
    def takes_target(self) -> bool:
        """Whether it is given a target beside the label sets: it writes `target_loss`."""
        return self.has_own("target_loss")

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor that the loss keeps, each as an attribute of the same name."""
        return kept_arguments(self)

    def extra_repr(self) -> str:
        """Return the arguments that differ from their defaults, for `repr`."""
        return changed_arguments(self)


def bag_sizes(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), the number of positions of every bag, or 1 for a bag without any, in the dtype of the logits.

    Logits are (B, C+1, K).
    """
    if mask is None:
        return logits.new_full((logits.shape[0],), logits.shape[2])
    return mask.sum(dim=1).clamp(min=1).to(logits.dtype)
