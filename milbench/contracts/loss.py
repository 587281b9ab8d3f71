"""The contract of a loss: the methods that a subclass writes, and the methods that users call.

A loss is arithmetic over the logits of a batch. Each method that a user calls hands its arguments
to a function in `milbench.contracts.criterion`. The function checks them, flattens positions, calls
the methods that the subclass writes, and checks their results.

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
    """(C,) integers, how many of the training bags have each class."""
    bags: int
    """How many training bags there are."""


NO_CLASS_WEIGHTS = (
    "it is no sum over classes that could be weighted; "
    "such sums are noisy-or, one-vs-rest and the poolings, for example"
)
"""Why a loss takes no weights of classes, as an error message says it."""


class Loss(torch.nn.Module, ABC):
    """Base class of losses: arithmetic over a network's logits and the label sets of a batch.

    A subclass lives in a file of its own and sets `name` (the file's name with hyphens); `milbench
    new loss NAME` writes an example. It writes `bag_loss` and `scores`. It writes `presence`,
    `posterior`, `evidence` and `set_log_prob` where the defaults do not fit: a loss is judged by
    its own answers about label sets and positions.

    milbench checks the arguments before it passes them to these methods:

    - logits (B, C+1, K), for B bags, C classes and K positions, background last. Positions of any
      number of dimensions are flattened into K. The logits are float32 or float64: half precision
      is computed in float32, also under autocast. They are zero at masked positions, so that
      nothing there, not even a NaN, reaches a value or a gradient. A maximum or a mean over
      positions still has to leave out those zeros.
    - labels (B, C) bool.
    - a mask (B, K) bool, True where there is an instance, or None: everywhere. A bag may have no
      instance at all: its loss for the empty label set must then be finite, and its gradient 0. To
      exclude positions, fill them with the smallest number of the dtype rather than with -inf,
      which has no gradient.

    A loss with more supervision than the label sets says so in `supervision`, and writes
    `target_loss` instead of `bag_loss`; `milbench.contracts.targets.make_target` describes the
    targets.

    A loss may have weights of its own, which are trained and stored with those of the network.
    Where their shape depends on the number of classes, it makes them in `make_weights`, and whoever
    uses the loss calls `build` first.

    The loss keeps each argument of its constructor as an attribute of the same name, which `repr`
    shows and `BagClassifier` copies. In a comparison, users set these arguments as parameters of a
    cell, except the two below: milbench itself trains on the mean of the losses of the bags, and
    decides for each step whether to check values.

    Args:
        reduction: of the losses of the bags of a batch: `mean`, `sum`, or `none`, which gives one
            loss a bag, (B,).
        validate: whether a call checks values as well as shapes: finite logits, and no label set
            larger than its bag. On a GPU this waits for the device. Without the check most losses
            give +inf for a label set that cannot occur. Inside `torch.func` and compiled code no
            value is checked.
    """

    name: ClassVar[str]
    supervision: ClassVar[Supervision] = "set"
    """What the loss is given about each bag in training, or assumes about it."""
    revision: ClassVar[int] = 1
    """A version of the code. Raise it when the loss computes something else than before.

    Stored results of an older revision are then not reused.
    """
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Parameters that are newer than stored cells, see `milbench.contracts.parameters`."""
    head: Head = "softmax"
    """What a logit means.

    softmax: the classes and the background compete at each position. sigmoid: each class has an
    independent detector. class: the classes of a whole bag compete; the bag has one instance, and
    the network is one of `Task.classifiers`.
    """
    presence_is_log_odds: bool = False
    """Whether `presence` is a forecast: the log-odds that a class occurs in a bag.

    The log-odds follow from the loss's own probabilities, and are 0 at even odds. Where this is
    False, presence only ranks bags.
    """
    needs_class_counts: bool = False
    """Whether the loss cannot be trained before `build` has got `class_counts`.

    Counting takes time, so training counts only for a loss that needs it.
    """

    call_arguments: ClassVar[tuple[str, ...]] = ("reduction", "validate")
    """The arguments of the constructor that only say how a user's call behaves.

    A cell does not have them, since milbench decides both in training.
    """
    unknown_parameters: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"weight": NO_CLASS_WEIGHTS, "pos_weight": NO_CLASS_WEIGHTS}
    )
    """Why the loss does not have some parameter, by the parameter's name.

    A user who sets the parameter reads this in the error message.
    """

    num_classes: int | None = None
    """C, for which `build` has made the weights; None: `build` was not called."""
    max_labels: int | None = None
    """An upper bound of |L|, the size of a training bag's label set, as `build` was told.

    With it a loss need not wait for an accelerator to learn the largest |L| of a batch.
    """

    def __init__(self, *, reduction: Reduction = "mean", validate: bool = True) -> None:
        super().__init__()
        check_supervision(self)
        check_methods(self)
        self.reduction: Reduction = one_of(
            f"reduction of {self.name}", reduction, get_args(Reduction)
        )
        self.validate = validate

    # What a subclass writes.

    def bag_loss(
        self,
        logits: Tensor,  # noqa: ARG002
        labels: Tensor,  # noqa: ARG002
        mask: Tensor | None,  # noqa: ARG002
    ) -> Tensor:
        """Return (B,) floating point, at least float32: the loss of every bag.

        The batch is not reduced here.
        """
        # The method is not abstract, since a loss may write `target_loss` instead. The present loss
        # writes neither of the two.
        cls = type(self)
        own_names = [member for member in vars(cls) if not member.startswith("__")]
        similar = closest("bag_loss", own_names)
        hint = f"; did you mean 'bag_loss' by {similar!r}?" if similar else ""
        raise UsageError(f"{self.name}: its class {cls.__name__} has no method 'bag_loss'{hint}")

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,) floating point, the loss of every bag, from its target.

        A loss with more supervision than label sets writes this method instead of `bag_loss`. The
        target holds integers: what `milbench.contracts.targets.make_target` returns for the loss's
        `supervision`. The positions of logits (B, C+1, *positions) and mask (B, *positions) are not
        flattened.
        """
        raise NotImplementedError

    @abstractmethod
    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), a score of each class; the largest names the class of a one-instance bag.

        A row that is -inf throughout names no class.
        """

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), a score that is larger where the class is more likely to occur in the bag.

        The scores of a class can be compared between bags. Return values such as log-odds, which do
        not round to 0 or 1: the surest predictions must still be ranked.
        """
        return self.scores(logits, mask)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return (B, C+1, K), the probability that a position shows each class or the background.

        It follows from the logits alone, the label set unknown. For independent detectors it is the
        distribution given that at most one of them fires.
        """
        if self.head == "sigmoid":
            # A background of logit 0 stands for the case that no detector fires.
            no_detector = torch.zeros_like(logits[:, -1:])
            logits = torch.cat([logits[:, :-1], no_detector], dim=1)
        return logits.softmax(dim=1)

    def evidence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C, K), larger where a position speaks more strongly for the class.

        How strongly it speaks follows from the rule of this loss. Values can be compared between
        the positions of one bag, within one class.

        The default is the probability of the class by `posterior`, or, where `head` is sigmoid, the
        logit of the detector, which does not depend on other detectors. Probabilities that round to
        1 are not ranked. In float32 a probability rounds to 1 where the logit of the class is 17
        above the others.
        """
        if self.head == "sigmoid":
            return logits[:, :-1]
        return self.posterior(logits, mask)[:, :-1]

    def set_log_prob(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return (B,), the log-probability of each bag's label set by the model of this loss.

        None: the loss has no such model. Labels (B, C) are any sets of classes, perhaps larger than
        the bag. The probabilities of all label sets of a bag sum to 1. By default the classes occur
        independently of each other, with the log-odds that `presence` returns; where
        `presence_is_log_odds` is False, the default is None.
        """
        if not self.presence_is_log_odds:
            return None
        log_odds = self.presence(logits, mask)
        return logsigmoid(torch.where(labels, log_odds, -log_odds)).sum(dim=1)

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:
        """Make the weights whose shape depends on the number of classes.

        Set each as an attribute that is a `torch.nn.Parameter`, float32, on the CPU. Take random
        numbers from `rng` alone. Logits may be on another device, or in float64 as in evaluation,
        so use a parameter as `parameter.to(logits)`.

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
        """Raise UsageError for a bag on which this loss cannot be computed.

        Conditions of all losses are checked elsewhere; this method is for those of this loss alone.
        It is called before `bag_loss`, with the same arguments, and only where values are checked.
        So it may look at values, although on a GPU this waits for the device.
        """

    def check_target(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> None:
        """Raise UsageError for a bag on which `target_loss` cannot be computed.

        It is called before `target_loss`, with the same arguments, and otherwise like `check_bags`.
        """

    # What users call.

    def build(
        self,
        num_classes: int,
        seed: int = 0,
        *,
        max_labels: int | None = None,
        class_counts: ClassCounts | tuple[Tensor, int] | None = None,  # noqa: ARG002
    ) -> Self:
        """Take in what is known about the training bags, make new weights, and return the loss.

        Training calls it with the seed of the cell, before the loss is moved to a device and the
        optimiser is made. Only a loss with weights whose shape depends on the number of classes has
        to be built; without `build` its calls raise UsageError.

        Args:
            num_classes: C, without the background.
            seed: the seed of the random initial weights.
            max_labels: an upper bound of the number of classes in a bag. With it the exact
                likelihood does not make the host wait for a GPU. None: not known.
            class_counts: how many of the training bags have each class, (C,), and how many training
                bags there are. Only a loss with `needs_class_counts` uses them, such as one with
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
        """Return the loss of a batch, or with `reduction="none"` the loss of every bag.

        Args:
            logits: (B, C+1, *positions) floating point, background last.
            labels: the label sets, a tensor or array (B, C) of zeros and ones, or B lists of class
                numbers. Inside a compiled function they must be a tensor.
            mask: (B, *positions) bool, True where there is an instance; None: everywhere.
            target: for a loss with a `target_loss`, integers as
                `milbench.contracts.targets.make_target` returns them: counts (B, C), the class of
                each position (B, *positions) with C for background, or the classes in their order
                (B, M), padded with -1.

        Raises:
            UsageError: an argument has the wrong shape or type, logits are not finite, or a label
                set is larger than its bag; or the subclass returned something else than one value a
                bag with a gradient. UsageError is a ValueError.
        """
        values = criterion.bag_losses(
            self, logits, labels, mask, target, check_values=self.validate
        )
        return criterion.reduced(self, values, self.reduction)

    def score(self, logits: Tensor, mask: Tensor | None = None) -> Scores:
        """Return all scores of bags and positions, from logits (B, C+1, *positions) alone.

        At masked positions the background has probability 1, and the evidence is -inf. Each loss
        has its own scale of presence.

        Examples:
            One bag of two positions and two classes. The detectors of both classes have their
            largest logit at the first position.

            >>> import torch
            >>> from milbench import load_loss
            >>> logits = torch.tensor([[[4.0, 1.0], [5.0, 0.0], [0.0, 0.0]]])
            >>> scores = load_loss("one-vs-rest").score(logits)
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
        """Return the predicted label set of each bag, (B, C) bool.

        A class is predicted where its presence is at least the threshold. Choose the threshold on
        bags that were not trained on. Without a threshold, classes are predicted from even odds on
        where presence is log-odds; for other losses this raises UsageError. Where `head` is class,
        exactly the most probable class is predicted, whatever the threshold.
        """
        return criterion.label_sets_by(self, self.score(logits, mask), threshold)

    def label_log_prob(
        self, logits: Tensor, labels: LabelSets, mask: Tensor | None = None
    ) -> Tensor | None:
        """Return (B,) in nats, the log-probability of each bag's label set by the loss's model.

        Labels have the forms that `forward` takes, and may be any sets of classes. The value is
        -inf for a set that cannot occur, and a lower bound where the loss says so. A loss without a
        model of label sets returns None. Raises UsageError for a wrong shape or type.
        """
        return criterion.label_log_prob(self, logits, labels, mask)

    def has_own(self, method: str) -> bool:
        """Return whether the class of the loss writes a method itself, instead of inheriting it."""
        return getattr(type(self), method) is not getattr(Loss, method)

    @property
    def takes_target(self) -> bool:
        """Whether the loss needs a target besides the label sets, since it writes `target_loss`."""
        return self.has_own("target_loss")

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor, by name, with the values that the loss keeps."""
        return kept_arguments(self)

    def extra_repr(self) -> str:
        """Return the arguments that differ from their defaults, for `repr`."""
        return changed_arguments(self)


def bag_sizes(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), the number of unmasked positions of every bag, at least 1 so as to divide by it.

    Logits are (B, C+1, K), the mask is (B, K), and the result has the dtype of the logits.
    """
    if mask is None:
        return logits.new_full((logits.shape[0],), logits.shape[2])
    return mask.sum(dim=1).clamp(min=1).to(logits.dtype)
