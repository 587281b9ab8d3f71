"""Bags of Gaussian instances: draws, and the exact posteriors of instances and label sets."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from milbench.contracts.bags import Bags, Truth, label_matrix
from milbench.errors import UsageError
from milbench.evaluation.evaluate import CPU
from milbench.families.decisions import BagPosterior, bag_posterior
from milbench.families.label_set_prior import LabelSetPrior, LabelSetRule
from milbench.likelihood.columns import contains


@dataclass(frozen=True)
class GaussianBags:
    """A distribution of bags of C classes and background; the task `synthetic-bags` describes its parameters.

    By `mean_size` a rule of label sets knows how often classes are to occur. `context` is the share of the background
    that is context, in bags without class 0 and with it. Raises UsageError where there are no such bags.
    """

    num_classes: int
    dimension: int
    sizes: tuple[int, int]
    mean_size: float
    class_rate: float
    separation: float
    background_scale: float
    rule: LabelSetRule
    imbalance: float = 1.0
    context: tuple[float, float] = (0.0, 0.0)
    overlap: float = 0.0

    def __post_init__(self) -> None:
        classes, has_context = self.num_classes, any(self.context)
        if self.dimension < classes + has_context:
            needs = (
                "and context need as many axes and one more" if has_context else "need as many axes"
            )
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

    @cached_property
    def rates(self) -> Tensor:
        """(C+1,) float64, the probability of each class, background last."""
        classes = torch.full((self.num_classes,), self.class_rate, dtype=torch.float64)
        if self.imbalance != 1:
            falling = self.imbalance ** -torch.linspace(0, 1, self.num_classes, dtype=torch.float64)
            classes = falling * (self.num_classes * self.class_rate / falling.sum())
        return torch.cat(
            [classes, torch.tensor([1 - self.num_classes * self.class_rate], dtype=torch.float64)]
        )

    @cached_property
    def presence(self) -> Tensor:
        """(C,), how often each class is to occur in a bag: as among `mean_size` independent instances."""
        return 1 - (1 - self.rates[:-1]) ** self.mean_size

    @cached_property
    def means(self) -> Tensor:
        """(M, d), of the C classes, the background, and its context if there is any.

        Class c is at separation/sqrt(2) on axis c, the background at 0, and the context where class C would be.
        """
        centres = (
            torch.eye(self.num_classes + any(self.context), self.dimension)
            * self.separation
            / math.sqrt(2)
        )
        return torch.cat(
            [
                centres[: self.num_classes],
                torch.zeros(1, self.dimension),
                centres[self.num_classes :],
            ]
        )

    @cached_property
    def scales(self) -> Tensor:
        """(M,), the standard deviations around these means."""
        return torch.tensor(
            [1.0] * self.num_classes + [self.background_scale] + [1.0] * any(self.context)
        )

    @cached_property
    def prior(self) -> LabelSetPrior:
        """Of label sets, in bags of up to the largest size."""
        return LabelSetPrior(self.rule, self.rates, self.presence, self.sizes[1])

    def draw(self, count: int, rng: torch.Generator) -> Bags:
        """Return random bags (B, K, d) on the CPU; instances beyond the size of a bag are 0 and masked."""
        low, high = self.sizes
        sizes = torch.randint(low, high + 1, (count, 1), generator=rng)
        if self.rule.is_of_independent_instances:
            kinds = torch.multinomial(
                self.rates, count * high, replacement=True, generator=rng
            ).view(count, high)
        else:
            kinds = self.prior.draw(
                sizes[:, 0], torch.rand(count, 1 + high, dtype=torch.float64, generator=rng)
            )
        noise = torch.randn(count, high, self.dimension, generator=rng)
        mask = torch.arange(high) < sizes
        classes = kinds.masked_fill(~mask, self.num_classes)
        instance_classes = classes.masked_fill(classes == self.num_classes, -1)
        labels = label_matrix(instance_classes, self.num_classes)
        if any(self.context):
            shares = torch.tensor(self.context)[labels[:, :1].long()]
            is_context = torch.rand(count, high, generator=rng) < shares
            kinds = kinds + (is_context & (kinds == self.num_classes))
        instances = self.emit(kinds, noise)
        if self.overlap:
            instances = self._overlapped(
                instances, instance_classes, noise, torch.rand(count, 2, high, generator=rng)
            )
        truth = Truth(instance_classes, position_classes=None if self.overlap else classes)
        return Bags(instances * mask.unsqueeze(2), labels, mask, truth)

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
        mask = (
            torch.ones_like(on_cpu.instances[..., 0], dtype=torch.bool)
            if on_cpu.mask is None
            else on_cpu.mask
        )
        weight = (
            None
            if self.rule.is_of_independent_instances
            else self.prior.log_weight[mask.sum(dim=1)]
        )
        without, having = (
            self._log_joint(on_cpu.instances, self.rates, share) for share in self.context
        )
        return bag_posterior(without, mask, weight, having if any(self.context) else None)

    @cached_property
    def marginal_rates(self) -> tuple[Tensor, float]:
        """How probable each class is (C+1,) for one instance of an unknown bag, and which background is context.

        With pi_n(L), q_n(L) and the rates r as in `LabelSetPrior`,

            P(z_k = c, L) = pi_n(L) / q_n(L) r_c (q_{n-1}(L) + q_{n-1}(L - c)) for c in L,
            P(z_k = background, L) = pi_n(L) / q_n(L) r_background q_{n-1}(L).

        A bag of n has n instances, so that sizes count by n.
        """
        low, high = self.sizes
        others = self.prior.log_independent[low - 1 : high].exp()  # q_{n-1}, (N, 2^C)
        weight = self.prior.log_weight[low : high + 1].exp() * torch.arange(
            low, high + 1
        ).unsqueeze(1)
        within = contains(self.num_classes)
        sets, bits = torch.arange(len(within)).unsqueeze(1), 2 ** torch.arange(self.num_classes)
        follow = (others.unsqueeze(2) + others[:, sets & ~bits]) * within
        of_class = torch.einsum("ns,nsc->c", weight, follow) * self.rates[:-1]
        of_background = (weight * others).sum(dim=0) * self.rates[-1]
        total = of_class.sum() + of_background.sum()
        having = float(of_background[within[:, 0]].sum() / of_background.sum().clamp(min=1e-300))
        context = self.context[0] * (1 - having) + self.context[1] * having
        return torch.cat([of_class, of_background.sum().unsqueeze(0)]) / total, context

    def _log_joint(self, instances: Tensor, rates: Tensor, context: float = 0.0) -> Tensor:
        """Return log p(z) + log p(x | z) + const (B, C+1, K); p(z) are `rates`, `context` is a share of background."""
        classes, x = self.num_classes, instances.cpu()
        squares = (x.double().unsqueeze(-2) - self.means.double()).square().sum(dim=-1)
        shares = torch.cat([rates[:-1], rates[-1:] * (1 - context), rates[-1:] * context])[
            : len(self.means)
        ]
        variances = self.scales.double().square()
        joint = (
            shares.log() - self.dimension * self.scales.double().log() - squares / (2 * variances)
        )
        if context:
            background = joint[..., classes:].logsumexp(dim=-1, keepdim=True)
            return torch.cat([joint[..., :classes], background], dim=-1).transpose(1, 2)
        return joint[..., : classes + 1].transpose(1, 2)

    def _overlapped(
        self, instances: Tensor, classes: Tensor, noise: Tensor, uniform: Tensor
    ) -> Tensor:
        """Return instances (B, K, d) some of which moved to a position of another class, by `uniform` (B, 2, K)."""
        place = uniform[:, 0].masked_fill(classes < 0, -1).argmax(dim=1, keepdim=True)
        moved = (
            (classes >= 0) & (classes != classes.gather(1, place)) & (uniform[:, 1] < self.overlap)
        )
        background = self.means[self.num_classes] + self.scales[self.num_classes] * noise
        means = (
            label_matrix(classes.masked_fill(~moved, -1), self.num_classes).float()
            @ self.means[: self.num_classes]
        )
        is_place = torch.zeros_like(moved).scatter(1, place, True)
        left = torch.where(moved.unsqueeze(2), background, instances)
        return left + is_place.unsqueeze(2) * means.unsqueeze(1)


def noisy_labels(
    labels: Tensor, sizes: Tensor, dropped: float, added: float, rng: torch.Generator
) -> Tensor:
    """Return label sets (B, C) without a present class at the rate `dropped`, with an absent one at the rate `added`.

    No bag gets more labels than it has instances, `sizes` (B,): chance decides for which wrong ones there is room.
    """
    uniform = torch.rand(labels.shape, generator=rng)
    retained = labels & (uniform >= dropped)
    wrong = ~labels & (uniform < added)
    room = sizes - retained.sum(dim=1)
    rank = uniform.masked_fill(~wrong, torch.inf).argsort(dim=1).argsort(dim=1)
    return retained | (wrong & (rank < room.unsqueeze(1)))
