"""Bags of Gaussian instances: how they are made, and the exact posteriors of their classes.

The posteriors show how good a loss could be at best.
"""

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
    """A distribution of bags of vectors, from which bags are sampled.

    Each instance is normally distributed around the mean of its class, of the background or of its
    context. The task `synthetic-bags` describes the parameters. Raises UsageError where the
    parameters contradict each other.
    """

    num_classes: int
    """C, the number of classes without the background."""
    dimension: int
    """d, the number of features of an instance."""
    sizes: tuple[int, int]
    """The smallest and the largest number of instances in a bag."""
    mean_size: float
    """The number of instances for which `presence` is computed."""
    class_rate: float
    """The probability that an instance is of a class, the mean over the classes."""
    separation: float
    """The distance between the means of any two classes, in their standard deviations."""
    background_scale: float
    """The standard deviation of the background. Each class has 1."""
    rule: LabelSetRule
    """Which label sets bags have."""
    imbalance: float = 1.0
    """The probability of class 0 divided by the probability of the last class."""
    context: tuple[float, float] = (0.0, 0.0)
    """The share of the background that is context, in bags without class 0 and in bags with it.

    Context is background with a mean of its own. It tells something about class 0.
    """
    overlap: float = 0.0
    """The probability that an instance moves to the position of an instance of another class."""

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
                f"{classes} classes of class_rate = {self.class_rate:g} leave no room for "
                "background"
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
            # Rates fall from class to class by one factor, and are scaled to the same total.
            falling = self.imbalance ** -torch.linspace(0, 1, self.num_classes, dtype=torch.float64)
            classes = falling * (total / falling.sum())
        background = torch.tensor([1 - total], dtype=torch.float64)
        return torch.cat([classes, background])

    @cached_property
    def presence(self) -> Tensor:
        """(C,), the probability that each class occurs among `mean_size` independent instances.

        Rules of label sets let classes occur about as often.
        """
        return 1 - (1 - self.rates[:-1]) ** self.mean_size

    @cached_property
    def means(self) -> Tensor:
        """(M, d), the means of the C classes, of the background, and of the context, if any.

        The mean of class c is at separation / sqrt(2) on axis c, the background at 0, and the
        context on axis C, as if it were a further class.
        """
        off_centre = self.num_classes + 1 if self.has_context else self.num_classes
        axes = torch.eye(off_centre, self.dimension)
        centres = axes * self.separation / math.sqrt(2)
        classes = centres[: self.num_classes]
        background = torch.zeros(1, self.dimension)
        # There is one row if the bags have context, else none.
        context = centres[self.num_classes :]
        return torch.cat([classes, background, context])

    @cached_property
    def scales(self) -> Tensor:
        """(M,), the standard deviations around the M means."""
        scales = [1.0] * self.num_classes
        scales.append(self.background_scale)
        if self.has_context:
            scales.append(1.0)
        return torch.tensor(scales)

    @cached_property
    def prior(self) -> LabelSetPrior:
        """The prior of the label sets of bags of any size."""
        return LabelSetPrior(self.rule, self.rates, self.presence, self.sizes[1])

    def draw(self, count: int, rng: torch.Generator) -> Bags:
        """Return `count` random bags on the CPU, with instances (B, K, d).

        K is the largest size. Instances beyond the size of a bag are 0 and masked.
        """
        low, high = self.sizes
        sizes = torch.randint(low, high + 1, (count, 1), generator=rng)
        kinds = self._sample_kinds(sizes[:, 0], rng)
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
            # Kinds index `means`: the context is the row after the background.
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

    def _sample_kinds(self, sizes: Tensor, rng: torch.Generator) -> Tensor:
        """Return the class (B, K) of each instance, C for background.

        The bags have `sizes` (B,). What is returned beyond the size of a bag has no meaning.
        """
        count = len(sizes)
        _, high = self.sizes
        if self.rule.is_of_independent_instances:
            samples = torch.multinomial(self.rates, count * high, replacement=True, generator=rng)
            return samples.view(count, high)
        # The first random number of a bag is for its label set, the others for its instances.
        uniform = torch.rand(count, 1 + high, dtype=torch.float64, generator=rng)
        return self.prior.draw(sizes, uniform)

    def emit(self, kinds: Tensor, noise: Tensor) -> Tensor:
        """Return instances (B, K, d) with standard normal noise (B, K, d).

        `kinds` (B, K) are indices of `means`: a class, the background or the context.
        """
        return self.means[kinds] + self.scales[kinds].unsqueeze(-1) * noise

    def log_posterior(self, instances: Tensor) -> Tensor:
        """Return the log-posterior of the class of each instance, if instances are independent.

        It is (B, C+1, K) float64 for instances (B, K, d), background last.
        """
        return self._log_joint(instances, self.rates).log_softmax(dim=1)

    def marginal_log_posterior(self, instances: Tensor) -> Tensor:
        """Return the log-posterior of the class of each instance, where its bag is unknown.

        It is (B, C+1, K) float64 for instances (B, K, d), background last. How often classes occur
        in the bags, as given by `rule`, is taken into account.
        """
        return self._log_joint(instances, *self.marginal_rates).log_softmax(dim=1)

    def posterior(self, bags: Bags) -> BagPosterior:
        """Return the exact posterior of label sets and classes, given all instances of each bag."""
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
        """The distribution of the class of an instance whose bag is unknown.

        The first value is the probability of each class, (C+1,) with background last. The second
        value is the share of the background that is context.

        With pi_n(L), q_n(L) and the rates r as in `LabelSetPrior`, the class z_k of instance k and
        the label set L of a bag of n instances have the probabilities

            P(z_k = c, L) = pi_n(L) / q_n(L) r_c (q_{n-1}(L) + q_{n-1}(L - c)) for c in L,
            P(z_k = background, L) = pi_n(L) / q_n(L) r_background q_{n-1}(L).

        A random instance is in a bag of n instances with a probability proportional to n.
        """
        low, high = self.sizes
        sizes = torch.arange(low, high + 1).unsqueeze(1)
        # Tables with a row for each size n and a column for each label set L.
        # q_{n-1}(L)
        others = self.prior.log_independent[low - 1 : high].exp()
        # n pi_n(L) / q_n(L)
        weight = self.prior.log_weight[low : high + 1].exp() * sizes
        # (2^C, C): whether L contains class c, and the number of the set L - c.
        has_class = membership(self.num_classes)
        sets = torch.arange(len(has_class)).unsqueeze(1)
        without_class = sets & ~(2 ** torch.arange(self.num_classes))
        # If an instance is of class c, the others have the label set L, or L without c.
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
        """Return log p(z) + log p(x | z) + const of instances x (B, K, d) and their classes z.

        It is (B, C+1, K), background last. `rates` (C+1,) are p(z), and `context` is the share of
        the background that is context.
        """
        classes = self.num_classes
        scales = self.scales.double()
        distances = instances.cpu().double().unsqueeze(-2) - self.means.double()
        squares = distances.square().sum(dim=-1)
        of_classes = rates[:-1]
        of_background = rates[-1:]
        shares = torch.cat([of_classes, of_background * (1 - context), of_background * context])
        # If bags have no context, `means` has no row for it.
        shares = shares[: len(self.means)]
        joint = shares.log() - self.dimension * scales.log() - squares / (2 * scales.square())
        if context:
            background = joint[..., classes:].logsumexp(dim=-1, keepdim=True)
            return torch.cat([joint[..., :classes], background], dim=-1).transpose(1, 2)
        return joint[..., : classes + 1].transpose(1, 2)

    def _overlapped(
        self, instances: Tensor, classes: Tensor, noise: Tensor, uniform: Tensor
    ) -> Tensor:
        """Return instances (B, K, d), some of them moved to the position of another class.

        Args:
            instances: (B, K, d), before any is moved.
            classes: (B, K), the class of each instance, -1 for background and beyond the bag.
            noise: (B, K, d), the noise from which the instances were made.
            uniform: (B, 2, K), random numbers from [0, 1).
        """
        is_class = classes >= 0
        # In each bag one position that shows a class is chosen at random: the target.
        target = uniform[:, 0].masked_fill(~is_class, -1).argmax(dim=1, keepdim=True)
        is_another_class = is_class & (classes != classes.gather(1, target))
        is_moved = is_another_class & (uniform[:, 1] < self.overlap)
        # Where an instance moves away, background remains.
        background = self.means[self.num_classes] + self.scales[self.num_classes] * noise
        remaining = torch.where(is_moved.unsqueeze(2), background, instances)
        # The means of all classes that have moved are added to the instance at the target.
        moved_classes = label_matrix(classes.masked_fill(~is_moved, -1), self.num_classes)
        means = moved_classes.float() @ self.means[: self.num_classes]
        is_target = torch.zeros_like(is_moved).scatter(1, target, True)
        return remaining + is_target.unsqueeze(2) * means.unsqueeze(1)


def noisy_labels(
    labels: Tensor, sizes: Tensor, dropped: float, added: float, rng: torch.Generator
) -> Tensor:
    """Return label sets (B, C) in which some classes are removed and others added at random.

    Each present class is removed with probability `dropped`, and each absent class is added with
    probability `added`. No bag gets more classes than it has instances, `sizes` (B,): if too many
    would be added, chance decides which ones are.
    """
    uniform = torch.rand(labels.shape, generator=rng)
    retained = labels & (uniform >= dropped)
    wrong = ~labels & (uniform < added)
    room = sizes - retained.sum(dim=1)
    # The rank, from 0, of each wrong label of a bag by its random number. The argsort of an argsort
    # gives the ranks.
    rank = uniform.masked_fill(~wrong, torch.inf).argsort(dim=1).argsort(dim=1)
    return retained | (wrong & (rank < room.unsqueeze(1)))
