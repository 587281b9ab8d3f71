"""Bags of Gaussian instances: how they are generated, and the exact posteriors of instances and label sets."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from milbench.contracts.bags import Bags, Truth, label_matrix
from milbench.contracts.task import CPU
from milbench.errors import UsageError
from milbench.families.decisions import BagPosterior, bag_posterior
from milbench.families.label_set_prior import LabelSetPrior, LabelSetRule
from milbench.likelihood.columns import membership


@dataclass(frozen=True)
class GaussianBags:
    """A distribution of bags of C classes and background; the task `synthetic-bags` describes its parameters.

    Raises UsageError where there are no such bags.
    """

    num_classes: int
    """C, the background not counted."""
    dimension: int
    """d, of the space of instances."""
    sizes: tuple[int, int]
    """The smallest and the largest number of instances in a bag."""
    mean_size: float
    """The size by which a rule of label sets knows how often classes are to occur."""
    class_rate: float
    """The probability of each class."""
    separation: float
    """The distance of any two classes, in standard deviations."""
    background_scale: float
    """The standard deviation of the background."""
    rule: LabelSetRule
    """Which label sets bags have."""
    imbalance: float = 1.0
    """The probability of class 0 divided by that of the last class."""
    context: tuple[float, float] = (0.0, 0.0)
    """The share of the background that has a mean of its own: in bags without class 0, and in bags with it."""
    overlap: float = 0.0
    """The probability with which an instance of a class moves to the position of another one."""

    def __post_init__(self) -> None:
        classes = self.num_classes
        needed_axes = classes
        needs = "need as many axes"
        if self.has_context:
            needed_axes = classes + 1
            needs = "and context need as many axes and one more"
        if self.dimension < needed_axes:
            raise UsageError(
                f"{classes} classes {needs}, dimension = {self.dimension} is too small"
            )
        if classes * self.class_rate >= 1:
            raise UsageError(
                f"{classes} classes of class_rate = {self.class_rate:g} leave no room for background"
            )
        if self.imbalance > 1 and classes == 1:
            raise UsageError(
                f"imbalance = {self.imbalance:g} needs at least 2 classes, num_classes = 1"
            )
        self.rule.check(self.presence, self.sizes[0])

    @property
    def has_context(self) -> bool:
        """Whether some of the background is context."""
        return any(self.context)

    @cached_property
    def rates(self) -> Tensor:
        """(C+1,) float64, the probability of each class, background last."""
        total = self.num_classes * self.class_rate
        classes = torch.full((self.num_classes,), self.class_rate, dtype=torch.float64)
        if self.imbalance != 1:
            # The first class is `imbalance` times as frequent as the last one. Their total stays.
            falling = self.imbalance ** -torch.linspace(0, 1, self.num_classes, dtype=torch.float64)
            classes = falling * (total / falling.sum())
        background = torch.tensor([1 - total], dtype=torch.float64)
        return torch.cat([classes, background])

    @cached_property
    def presence(self) -> Tensor:
        """(C,), how often each class is to occur in a bag: as among `mean_size` independent instances."""
        return 1 - (1 - self.rates[:-1]) ** self.mean_size

    @cached_property
    def means(self) -> Tensor:
        """(M, d), of the C classes, the background, and its context if there is any.

        Class c is at separation/sqrt(2) on axis c, the background at 0, and the context where class
        C would be.
        """
        off_centre = self.num_classes + 1 if self.has_context else self.num_classes
        axes = torch.eye(off_centre, self.dimension)
        centres = axes * self.separation / math.sqrt(2)
        classes = centres[: self.num_classes]
        background = torch.zeros(1, self.dimension)
        # One row, or none.
        context = centres[self.num_classes :]
        return torch.cat([classes, background, context])

    @cached_property
    def scales(self) -> Tensor:
        """(M,), the standard deviations around these means."""
        scales = [1.0] * self.num_classes
        scales.append(self.background_scale)
        if self.has_context:
            scales.append(1.0)
        return torch.tensor(scales)

    @cached_property
    def prior(self) -> LabelSetPrior:
        """Of label sets, in bags of up to the largest size."""
        return LabelSetPrior(self.rule, self.rates, self.presence, self.sizes[1])

    def draw(self, count: int, rng: torch.Generator) -> Bags:
        """Return random bags (B, K, d) on the CPU; instances beyond the size of a bag are 0 and masked."""
        low, high = self.sizes
        sizes = torch.randint(low, high + 1, (count, 1), generator=rng)
        kinds = self._draw_kinds(sizes[:, 0], rng)
        noise = torch.randn(count, high, self.dimension, generator=rng)
        mask = torch.arange(high) < sizes
        classes = kinds.masked_fill(~mask, self.num_classes)
        instance_classes = classes.masked_fill(classes == self.num_classes, -1)
        labels = label_matrix(instance_classes, self.num_classes)
        if self.has_context:
            has_class_0 = labels[:, :1]
            shares = torch.tensor(self.context)[has_class_0.long()]
            is_chosen = torch.rand(count, high, generator=rng) < shares
            is_context = is_chosen & (kinds == self.num_classes)
            # The context is the kind after the background.
            kinds = kinds + is_context
        instances = self.emit(kinds, noise)
        position_classes: Tensor | None = classes
        if self.overlap:
            uniform = torch.rand(count, 2, high, generator=rng)
            instances = self._overlapped(instances, instance_classes, noise, uniform)
            # A position may then show several classes.
            position_classes = None
        truth = Truth(instance_classes, position_classes=position_classes)
        return Bags(instances * mask.unsqueeze(2), labels, mask, truth)

    def _draw_kinds(self, sizes: Tensor, rng: torch.Generator) -> Tensor:
        """Return the classes (B, K) of instances, background C, in bags of `sizes` (B,), of up to K instances."""
        count = len(sizes)
        _, high = self.sizes
        if self.rule.is_of_independent_instances:
            drawn = torch.multinomial(self.rates, count * high, replacement=True, generator=rng)
            return drawn.view(count, high)
        # One draw for the label set, then one for each instance.
        uniform = torch.rand(count, 1 + high, dtype=torch.float64, generator=rng)
        return self.prior.draw(sizes, uniform)

    def emit(self, kinds: Tensor, noise: Tensor) -> Tensor:
        """Return instances (B, K, d) of classes, background or context (B, K) by normal noise."""
        return self.means[kinds] + self.scales[kinds].unsqueeze(-1) * noise

    def log_posterior(self, instances: Tensor) -> Tensor:
        """Return the log posterior (B, C+1, K) float64 of the class of each of independent instances (B, K, d)."""
        return self._log_joint(instances, self.rates).log_softmax(dim=1)

    def marginal_log_posterior(self, instances: Tensor) -> Tensor:
        """Return the log posterior (B, C+1, K) float64 of the class of each instance, whatever else is in its bag."""
        return self._log_joint(instances, *self.marginal_rates).log_softmax(dim=1)

    def posterior(self, bags: Bags) -> BagPosterior:
        """Return the exact posterior given all instances of each bag, of bags with a mask."""
        on_cpu = bags.to(CPU)
        mask = on_cpu.mask
        if mask is None:
            mask = torch.ones_like(on_cpu.instances[..., 0], dtype=torch.bool)
        log_weight = None
        if not self.rule.is_of_independent_instances:
            log_weight = self.prior.log_weight[mask.sum(dim=1)]
        share_without_0, share_with_0 = self.context
        log_joint = self._log_joint(on_cpu.instances, self.rates, share_without_0)
        log_joint_with_0 = None
        if self.has_context:
            log_joint_with_0 = self._log_joint(on_cpu.instances, self.rates, share_with_0)
        return bag_posterior(log_joint, mask, log_weight, log_joint_with_0)

    @cached_property
    def marginal_rates(self) -> tuple[Tensor, float]:
        """How probable each class is (C+1,) for one instance of an unknown bag, and the share of context in background.

        With pi_n(L), q_n(L) and the rates r as in `LabelSetPrior`,

            P(z_k = c, L) = pi_n(L) / q_n(L) r_c (q_{n-1}(L) + q_{n-1}(L - c)) for c in L,
            P(z_k = background, L) = pi_n(L) / q_n(L) r_background q_{n-1}(L).

        An instance drawn at random lies in a bag of n with a probability that is proportional to n.
        """
        low, high = self.sizes
        sizes = torch.arange(low, high + 1).unsqueeze(1)
        # q_{n-1}(L), (N, 2^C), and n pi_n(L) / q_n(L), (N, 2^C).
        others = self.prior.log_independent[low - 1 : high].exp()
        weight = self.prior.log_weight[low : high + 1].exp() * sizes
        # Of each set L: its classes, and the number of the set L - c.
        has_class = membership(self.num_classes)
        sets = torch.arange(len(has_class)).unsqueeze(1)
        without_class = sets & ~(2 ** torch.arange(self.num_classes))
        # Beside an instance of class c of L, the others have the label set L, or L without c.
        beside_class = (others.unsqueeze(2) + others[:, without_class]) * has_class
        of_class = torch.einsum("ns,nsc->c", weight, beside_class) * self.rates[:-1]
        of_background_by_set = (weight * others).sum(dim=0) * self.rates[-1]
        of_background = of_background_by_set.sum()
        has_0 = has_class[:, 0]
        share_with_0 = float(of_background_by_set[has_0].sum() / of_background.clamp(min=1e-300))
        context = self.context[0] * (1 - share_with_0) + self.context[1] * share_with_0
        total = of_class.sum() + of_background
        return torch.cat([of_class, of_background.unsqueeze(0)]) / total, context

    def _log_joint(self, instances: Tensor, rates: Tensor, context: float = 0.0) -> Tensor:
        """Return log p(z) + log p(x | z) + const (B, C+1, K); p(z) are `rates`, `context` is a share of background."""
        classes = self.num_classes
        scales = self.scales.double()
        distances = instances.cpu().double().unsqueeze(-2) - self.means.double()
        squares = distances.square().sum(dim=-1)
        of_classes = rates[:-1]
        of_background = rates[-1:]
        shares = torch.cat([of_classes, of_background * (1 - context), of_background * context])
        # Without context there is no mean for it.
        shares = shares[: len(self.means)]
        joint = shares.log() - self.dimension * scales.log() - squares / (2 * scales.square())
        if context:
            background = joint[..., classes:].logsumexp(dim=-1, keepdim=True)
            return torch.cat([joint[..., :classes], background], dim=-1).transpose(1, 2)
        return joint[..., : classes + 1].transpose(1, 2)

    def _overlapped(
        self, instances: Tensor, classes: Tensor, noise: Tensor, uniform: Tensor
    ) -> Tensor:
        """Return instances (B, K, d) some of which moved to a position of another class, by `uniform` (B, 2, K)."""
        is_class = classes >= 0
        # One position of each bag, which shows a class, is chosen at random.
        place = uniform[:, 0].masked_fill(~is_class, -1).argmax(dim=1, keepdim=True)
        is_another_class = is_class & (classes != classes.gather(1, place))
        is_moved = is_another_class & (uniform[:, 1] < self.overlap)
        # Where an instance was, the background remains.
        background = self.means[self.num_classes] + self.scales[self.num_classes] * noise
        remaining = torch.where(is_moved.unsqueeze(2), background, instances)
        # The means of the classes that have moved are added at the chosen position.
        moved_classes = label_matrix(classes.masked_fill(~is_moved, -1), self.num_classes)
        means = moved_classes.float() @ self.means[: self.num_classes]
        is_place = torch.zeros_like(is_moved).scatter(1, place, True)
        return remaining + is_place.unsqueeze(2) * means.unsqueeze(1)


def noisy_labels(
    labels: Tensor, sizes: Tensor, dropped: float, added: float, rng: torch.Generator
) -> Tensor:
    """Remove each present class with probability `dropped`, add each absent one with probability `added`.

    No bag gets more labels than it has instances, `sizes` (B,): chance decides for which wrong ones
    there is room.
    """
    uniform = torch.rand(labels.shape, generator=rng)
    retained = labels & (uniform >= dropped)
    wrong = ~labels & (uniform < added)
    room = sizes - retained.sum(dim=1)
    # The wrong labels of a bag in the order of their draws, from 0; sorted twice, numbers become
    # ranks.
    rank = uniform.masked_fill(~wrong, torch.inf).argsort(dim=1).argsort(dim=1)
    return retained | (wrong & (rank < room.unsqueeze(1)))
