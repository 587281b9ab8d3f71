"""The contract of a loss: its input, its output and the checks of both."""

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeVar, cast, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from milbench._utils.seeding import generator
from milbench.api.autocast import tracing, without_autocast
from milbench.api.loss_checks import (
    LabelSets,
    Target,
    checked_output,
    checked_target,
    describe,
    fault,
    label_sets,
)
from milbench.api.scores import Scores
from milbench.api.supervision import SUPERVISIONS, Supervision
from milbench.errors import UsageError, closest, one_of

Head = Literal["softmax", "sigmoid", "class"]
_HEADS: tuple[str, ...] = get_args(Head)
_NOT_GIVEN = object()
Reduction = Literal["none", "mean", "sum"]
Constructor = TypeVar("Constructor", bound=Callable[..., None])


def _with_checked_names(init: Constructor) -> Constructor:
    """Return a constructor that first checks the names of what it is given."""

    @functools.wraps(init)
    def constructor(self: "Loss", *args: Any, **params: Any) -> None:
        self.check_argument_names(params)
        init(self, *args, **params)

    return cast("Constructor", constructor)


class Loss(torch.nn.Module, ABC):
    """Base class of losses: a criterion of the logits of a network and the label sets of a batch of bags.

    A subclass lives in a file of its own and sets `name` (the file's name with hyphens); `milbench new loss NAME`
    writes an example. It has `bag_loss` and `scores` over flattened positions, and `presence`, `posterior` and
    `evidence` where the defaults do not fit: a loss is judged by its own answers about label sets and positions. This
    class checks the input, flattens and restores position dimensions, computes half precision in float32, also under
    autocast, and sets the logits at masked positions to zero, so that nothing there, not even a NaN, reaches a value or
    a gradient.

    A loss may have weights of its own, which are trained and stored with those of the network. Where their shape
    depends on the number of classes, it makes them in `make_weights`, and whoever uses the loss calls `build` first.

    A loss with more supervision than the label sets says so in `supervision`, and writes `target_loss` instead of
    `bag_loss`; `milbench.api.targets.make_target` describes the targets.

    Callers pass logits (B, C+1, *positions) with the background last, label sets, and a mask (B, *positions) bool,
    True where there is an instance, or None. Subclasses receive logits (B, C+1, K), zero at masked positions, labels
    (B, C) bool and a mask (B, K) or None, but for `target_loss`, which receives the positions as they are.

    Args:
        reduction: of the losses of the bags of a batch: their mean, their sum, or none, (B,). Every loss takes it,
            whatever its own constructor takes. It is no parameter of a cell: milbench trains on the mean of what `none`
            returns.
    """

    name: ClassVar[str]
    supervision: ClassVar[Supervision] = "set"
    """What the loss is given, or presumes, of each bag in training."""
    revision: ClassVar[int] = 1
    """To be raised when the loss computes something else than before: older results are then not reused."""
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The parameters that it got later, each with the neutral value, at which it computes what it did before. At that
    value a parameter changes no cell's id; the default may be another value."""
    head: Head = "softmax"
    """What a logit means. softmax: the classes compete in each position; sigmoid: one independent detector a class;
    class: the classes of a whole bag compete, which has one instance, and the network is one of `Task.classifiers`.
    """
    presence_is_log_odds: bool = False
    """Whether `presence` is the log-odds that a class occurs in a bag, by the loss's own probabilities: a forecast, 0
    at even odds. Otherwise it ranks bags and no more."""
    validate: bool = True
    """Whether values are checked as well as shapes (finite logits, no label set larger than its bag). On a GPU this
    waits for the device. Unchecked, a label set that cannot occur costs +inf in most losses."""
    max_labels: int | None = None
    """An upper bound of |L| in the bags to come, set by training: an accelerator need not wait to find it."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """What its constructor was given, by name."""
    num_classes: int | None = None
    """C, for which `build` has made the weights; None: it was not called."""

    @_with_checked_names
    def __init__(self, *, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.reduction = reduction
        kinds = [kind for kind in SUPERVISIONS if kind != "set" or not self.takes_target]
        one_of(f"supervision of {self.name}", self.supervision, kinds)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            cls.__init__ = _accept_reduction(cls.__init__)  # type: ignore[method-assign]

    @property
    def reduction(self) -> Reduction:
        """Of the losses of the bags of a batch: `mean`, `sum` or `none`."""
        return self._reduction

    @reduction.setter
    def reduction(self, value: Reduction) -> None:
        self._reduction: Reduction = one_of(f"reduction of {self.name}", value, get_args(Reduction))

    @property
    def takes_target(self) -> bool:
        """Whether it is given a target beside the label sets: it writes `target_loss`."""
        return type(self).target_loss is not Loss.target_loss

    @property
    def checks_values(self) -> bool:
        """Whether to look at values: `validate`, and not inside `torch.func` or a compiler, where there are none."""
        return self.validate and not tracing()

    @classmethod
    def check_argument_names(cls, names: Iterable[str]) -> None:
        """Raise UsageError where weights of the classes are given to a loss that does not take them."""
        accepted = inspect.signature(cls).parameters
        for name in names:
            if name in ("weight", "pos_weight") and name not in accepted:
                raise UsageError(
                    f"{cls.name} takes no {name}: it is no sum over classes that could be weighted; "
                    "such sums are noisy-or, one-vs-rest and the poolings, for example"
                )

    def build(self, num_classes: int, seed: int = 0) -> Self:
        """Make the weights that depend on the number of classes C, without the background, anew, and return the loss.

        Training calls it with the seed of the cell, before the loss is moved to a device and the optimiser is made. A
        loss without such weights need not be built; one that has them raises UsageError until it is.
        """
        self.num_classes = num_classes
        self.make_weights(num_classes, generator("weights of the loss", seed))
        return self

    @property
    def needs_class_counts(self) -> bool:
        """Whether training has to call `use_class_counts` before the first step, as with pos_weight=balanced."""
        return False

    def use_class_counts(self, counts: Tensor, bags: int) -> None:
        """Take in how many of the training bags have each class, (C,) int64, and how many bags there are."""

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:
        """Set the parameters (`torch.nn.Parameter`, float32, on the CPU) whose shape depends on the number of classes.

        Draw from `rng` alone. Logits may be on another device or in float64, as in evaluation: use a parameter as
        `parameter.to(logits)`.

        Examples:
            >>> class Scaled(Loss):
            ...     name, head = "scaled", "sigmoid"
            ...
            ...     def make_weights(self, num_classes, rng):
            ...         self.scale = torch.nn.Parameter(torch.ones(num_classes))
            ...
            ...     def scores(self, logits, mask):
            ...         return self.scale.to(logits) * logits[:, :-1].amax(dim=2)
            >>> Scaled().build(num_classes=3).score(torch.zeros(2, 3 + 1, 5)).classes.shape
            torch.Size([2, 3])
        """

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return (B,) floating point, at least float32: the loss of every bag, without reduction over the batch."""
        name = type(self).__name__
        similar = closest(
            "bag_loss", [name for name in vars(type(self)) if not name.startswith("__")]
        )
        hint = f"; did you mean 'bag_loss' by {similar!r}?" if similar else ""
        raise UsageError(f"{self.name}: its class {name} has no method 'bag_loss'{hint}")

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,) floating point, the loss of every bag, for a loss with more supervision than label sets.

        The target holds integers, those of `milbench.api.targets.make_target` for its `supervision`. Logits
        (B, C+1, *positions) and mask (B, *positions) have the positions as they are.
        """
        raise NotImplementedError

    @abstractmethod
    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C); the largest names the class of a bag that holds one. -inf in a whole row: none is named."""

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), larger where the class is more likely to occur in the bag, comparable between bags.

        They must go on to differ where the network becomes surer: values that round to one tell no bags apart.
        """
        return self.scores(logits, mask)

    def set_log_prob(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return (B,), the log-probability of each label set by the model of this loss; None where it has none.

        Labels (B, C) are any sets of classes, perhaps larger than the bag; the probabilities of all label sets of a bag
        sum to 1. The default is that of independent classes where the presence is a log-odds, and None elsewhere.
        """
        if not self.presence_is_log_odds:
            return None
        log_odds = self.presence(logits, mask)
        return logsigmoid(torch.where(labels, log_odds, -log_odds)).sum(dim=1)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return (B, C+1, K), the probability that a position shows each class, from the logits alone.

        For independent detectors it is the distribution given that at most one of them fires.
        """
        if self.head == "sigmoid":
            logits = torch.cat([logits[:, :-1], torch.zeros_like(logits[:, -1:])], dim=1)
        return logits.softmax(dim=1)

    def evidence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C, K), larger where a position speaks more strongly for the class, by the rule of this loss.

        Values can be compared between the positions of one bag, within one class. The default is the probability of the
        class by `posterior` (those that round to 1 tie, in float32 where a class leads by 17), or where `head` is
        sigmoid the logit of its detector, which does not depend on other detectors.
        """
        return logits[:, :-1] if self.head == "sigmoid" else self.posterior(logits, mask)[:, :-1]

    def extra_repr(self) -> str:
        """Return the arguments that differ from their defaults, for `repr`."""
        parameters = inspect.signature(type(self)).parameters
        parts = []
        for name, value in self.arguments.items():
            is_default = name in parameters and _is_same(value, parameters[name].default)
            if not is_default:
                parts.append(f"{name}={_as_plain(value)!r}")
        if self.reduction != "mean":
            parts.append(f"reduction={self.reduction!r}")
        return ", ".join(parts)

    @without_autocast
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
            labels: the label sets, (B, C) zeros and ones, or B lists of class numbers.
            mask: (B, *positions) bool, True where there is an instance; None: everywhere.
            target: integers from `milbench.api.targets.make_target`, for a loss with a `target_loss`:
                counts (B, C), positions (B, *positions) with C for background, order (B, M) padded with -1.

        Raises:
            UsageError: a ValueError. An argument has the wrong shape or type, logits are not finite, or a label set is
                larger than its bag; or the subclass returned something else than one value a bag, with a gradient.
        """
        method = "target_loss" if self.takes_target else "bag_loss"
        flat, flat_mask = self._flatten(logits, mask)
        labels = label_sets(labels, flat, flat_mask, self.checks_values)
        if self.takes_target:
            integers = checked_target(
                self, target, labels, logits.shape[2:], mask, self.checks_values
            )
            values = self.target_loss(flat.view(logits.shape), integers, mask)
        else:
            values = self.bag_loss(flat, labels, flat_mask)
        values = checked_output(self, method, values, (len(logits),))
        if logits.requires_grad and torch.is_grad_enabled() and not values.requires_grad:
            raise fault(
                self, method, "values with a gradient", "values that are detached from the logits"
            )
        if self.reduction == "none":
            return values
        if self.reduction == "mean" and not len(values):
            raise UsageError(
                f"{self.name}: a batch without bags has no mean loss; leave it out, or use the sum, 0"
            )
        return values.mean() if self.reduction == "mean" else values.sum()

    @without_autocast
    def score(self, logits: Tensor, mask: Tensor | None = None) -> Scores:
        """Return all scores of bags and positions, from logits (B, C+1, *positions) alone.

        Masked positions are background, with evidence of -inf. Each loss has its own scale of presence.

        Examples:
            One bag of two positions. By their own detectors, both classes are the likeliest at the first position.

            >>> import torch
            >>> from milbench import load_loss
            >>> scores = load_loss("one-vs-rest").score(torch.tensor([[[4.0, 1.0], [5.0, 0.0], [0.0, 0.0]]]))
            >>> scores.presence
            tensor([[4., 5.]])
            >>> scores.evidence
            tensor([[[4., 1.],
                     [5., 0.]]])
        """
        flat, flat_mask = self._flatten(logits, mask)
        class_shape = (len(flat), flat.shape[1] - 1)
        classes = presence = checked_output(
            self, "scores", self.scores(flat, flat_mask), class_shape
        )
        if type(self).presence is not Loss.presence:
            presence = checked_output(self, "presence", self.presence(flat, flat_mask), class_shape)
        instances = checked_output(self, "posterior", self.posterior(flat, flat_mask), flat.shape)
        evidence = checked_output(
            self, "evidence", self.evidence(flat, flat_mask), (*class_shape, flat.shape[2])
        )
        if flat_mask is not None:
            masked = ~flat_mask.unsqueeze(1)
            background = torch.zeros_like(instances)
            background[:, -1] = 1
            instances = torch.where(masked, background, instances)
            evidence = evidence.masked_fill(masked, -torch.inf)
        return Scores(
            classes,
            presence,
            instances.reshape(logits.shape),
            evidence.reshape(*class_shape, *logits.shape[2:]),
            log_odds=presence if self.presence_is_log_odds else None,
        )

    def predict(
        self, logits: Tensor, mask: Tensor | None = None, threshold: float | None = None
    ) -> Tensor:
        """Return the label set that the loss reads from each bag, (B, C) bool; one class where `head` is class.

        A class occurs where its presence is at least the threshold; None: even odds, which a presence that is no
        log-odds has not (UsageError): its threshold is best chosen on bags that were not trained on.
        """
        scores = self.score(logits, mask)
        if self.head == "class":
            most_probable = scores.classes.argmax(dim=1, keepdim=True)
            return torch.zeros_like(scores.classes, dtype=torch.bool).scatter(
                1, most_probable, True
            )
        if threshold is None and scores.log_odds is None:
            raise UsageError(
                f"the presence scores of {self.name} are no log-odds: predict needs a threshold, such as the best one "
                "of score(...).presence of validation bags"
            )
        return scores.presence >= (threshold or 0.0)

    @without_autocast
    def label_log_prob(
        self, logits: Tensor, labels: LabelSets, mask: Tensor | None = None
    ) -> Tensor | None:
        """Return (B,) in nats, the log-probability of a label set for each bag, by the model of this loss.

        Labels are any sets, as in `forward`; -inf for a set that cannot occur; a lower bound where the loss says so.
        None for a loss without a probability of label sets. Raises UsageError for a wrong shape or type.
        """
        flat, flat_mask = self._flatten(logits, mask)
        log_prob = self.set_log_prob(
            flat, label_sets(labels, flat, flat_mask, check_values=False), flat_mask
        )
        return (
            None
            if log_prob is None
            else checked_output(self, "set_log_prob", log_prob, (len(logits),))
        )

    def _flatten(self, logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Check logits and mask and return them as (B, C+1, K) and (B, K)."""
        if logits.ndim < 2 or logits.shape[1] < 2 or not logits.is_floating_point():
            expected = "floating point of shape (B, C+1, *positions)"
            raise UsageError(f"{self.name}: logits must be {expected}, got {describe(logits)}")
        batch, channels, *positions = logits.shape
        if type(self).make_weights is not Loss.make_weights and self.num_classes != channels - 1:
            state = (
                "no weights yet"
                if self.num_classes is None
                else f"weights for {self.num_classes} classes"
            )
            raise UsageError(
                f"{self.name} has {state}: call build(num_classes={channels - 1}) before it gets logits of {channels} "
                "channels (the last is the background)"
            )
        one_of(f"head of {self.name}", self.head, _HEADS)
        if 0 in positions:
            raise UsageError(f"{self.name}: logits have no positions: {describe(logits)}")
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        flat = logits.flatten(2) if positions else logits.unsqueeze(2)
        if mask is None:
            return flat, None
        if (
            not isinstance(mask, Tensor)
            or mask.dtype != torch.bool
            or mask.shape != (batch, *positions)
        ):
            expected = f"a bool tensor of shape {(batch, *positions)}"
            raise UsageError(f"{self.name}: mask must be {expected}, got {describe(mask)}")
        flat_mask = mask.flatten(1) if positions else mask.unsqueeze(1)
        return flat.masked_fill(~flat_mask.unsqueeze(1), 0.0), flat_mask


def _is_same(value: object, default: object) -> bool:
    """Return whether an argument is the default; a tensor never is."""
    if value is default:
        return True
    return type(value) is type(default) and not isinstance(value, Tensor) and value == default


def _as_plain(value: Any) -> Any:
    """Return a tensor or an array as lists, and anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _accept_reduction(init: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of a loss with the keyword `reduction`, which it need not have itself."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def constructor(
        self: Loss, *args: Any, reduction: Reduction | object = _NOT_GIVEN, **params: Any
    ) -> None:
        self.check_argument_names(params)
        init(self, *args, **params)
        self.arguments = dict([*signature.bind(self, *args, **params).arguments.items()][1:])
        # Without it the loss keeps what its own constructor has set.
        if reduction is not _NOT_GIVEN:
            self.reduction = reduction  # type: ignore[assignment]  # the setter checks it

    return constructor


def bag_sizes(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), the number of positions of every bag, in the dtype of the (B, C+1, K) logits; at least 1."""
    if mask is None:
        return logits.new_full((logits.shape[0],), logits.shape[2])
    return mask.sum(dim=1).clamp(min=1).to(logits.dtype)
