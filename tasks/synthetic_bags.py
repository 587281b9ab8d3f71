"""Bags of Gaussian instances from a known distribution, to measure how far from the optimum each loss ends."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from milbench._utils.devices import all_to_device, to_device
from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.recipe import Recipe
from milbench.api.task import Evaluation, Network, ScoreFunction, Split
from milbench.errors import UsageError
from milbench.evaluation.evaluate import EvalSplit, evaluate_bags, limited
from milbench.families.conditioned_draws import ConditionedDraws
from milbench.families.fixed_bags import FixedBags
from milbench.families.gaussian_bags import BagModel, class_rates, clusters, log_joint, marginal_rates, noisy_labels
from milbench.families.instancewise import above_reference, merged_errors, reference_errors
from milbench.families.label_set_posterior import BagPosterior, bag_posterior, optimal_errors
from milbench.families.label_set_prior import LabelSetPrior, LabelSetRule, LabelSets, presence_among
from milbench.networks.instance import InstanceMLP

_EVAL_BATCH = 250
_TOGETHER = 10
"""How many training batches are drawn at once: the calls of torch take more time than their numbers."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
_Key = tuple[type, str]
_PREPARED = ("_key", "eval_splits", "_placed", "_training", "_test", "_instance_model", "_pool")
"""The attributes that follow from the others."""
_OF_TRAINING = ("seed", "bags_per_epoch", "training_count", "_noise")
"""Those on which the fixed bags do not depend."""
# The cells of a comparison that one process computes share the bags and their optimum.
_last_bags: dict[_Key, dict[Split, EvalSplit]] = {}
_optima: dict[tuple[str, type, str, int | None], dict[str, float]] = {}
"""By what is known of bags, their key, and how many of them are evaluated."""


class SyntheticBags(FixedBags):
    """Find the class of every instance of an unordered bag in R^d, given the label set.

    Every instance is, independently, of class c with probability `class_rate` for each c, else background. Class c is
    normal with unit variance around the point at separation/sqrt(2) on axis c, so that any two classes are `separation`
    standard deviations apart. The background is normal around 0 with the standard deviation `background_scale`. The
    size of a bag is uniform on min_size..max_size and independent of everything else. The label set is the set of the
    classes drawn; it is empty where all instances are background, so that there are negative bags. Training bags are
    new in every epoch.

    With other `label_sets` or an `empty_share` a label set is drawn after the size, and then classes of instances as
    above, but on the condition that they have this label set: `milbench.families.label_set_prior` says it in full.

    As the distribution is known, so are the optimal decisions: from the exact posterior of every instance and of the
    label set given all instances of the bag, and of a single instance that is not background. Each `bayes_*` metric is
    the error of these decisions on the bags on which the loss is evaluated, and each `excess_*` metric is the
    difference. It is paired, has little noise, and may be slightly negative on finitely many bags.

    Where the instances of a bag depend on each other, a network that sees them one by one cannot be expected to reach
    the optimum. The `reference_*` metrics are the errors of decisions that know the distribution and see one instance
    at a time (`milbench.families.instancewise`), from the frequencies of classes in training bags. A loss that is
    `above_reference_*` zero does as well; it may do better, as a network can learn what the reference takes no notice
    of. Where label sets cannot tell a class from another one or from the background, `learnable_posterior_error` counts
    these as one.

    Args:
        num_classes: C, the background not counted.
        dimension: d, at least C, and with `context` at least C+1.
        min_size: the smallest number of instances in a bag.
        max_size: the largest.
        class_rate: the probability of each class, so that background has 1 - C * class_rate.
        separation: the distance of any two classes, in standard deviations.
        background_scale: the standard deviation of the background.
        bags_per_epoch: the number of training bags in an epoch.
        label_sets: `independent`, as above; `together`, classes 2i and 2i+1 only together; `exclusive`, never both;
            `mostly-together`, pairs as in `together` nine times in ten, else as in `exclusive`; `constant`, class 0
            always; `uniform`, 1 to `labels_per_bag` classes, each number equally often.
        labels_per_bag: the largest number of classes in a bag, for `uniform`.
        imbalance: the probability of class 0 divided by that of the last class; those between fall geometrically, and
            the sum stays C * class_rate. Single instances to evaluate on are of each class as often.
        empty_share: the share of bags without a class; None: as it follows.
        labels_dropped: the probability that the label set of a training bag lacks a class that occurs.
        labels_added: the probability that it has one that does not, unless it would be larger than the bag.
        context: in bags with class 0, the share of the background that is normal with unit variance around the point
            at separation/sqrt(2) on axis C, as one more class would be.
        context_without: the same share in bags without class 0.
        context_swapped: whether these two shares change places in test bags.
        test_sizes: smallest and largest size of test bags, such as "20-40"; None: as those of all other bags.
        test_label_sets: the label sets of test bags, as `label_sets`; None: as those of all other bags.
        overlap: the probability with which an instance of a class is shown at the position of another class's instance
            and leaves background behind: in a bag one position, drawn from those with a class, takes them all, and its
            instance is normal around the sum of the points of its classes. Label sets stay the same. Positions then
            have no one class: the metrics of instances, of the optimum and of the reference are left out.
        training_bags: the number of training bags, drawn once a seed; an epoch goes through them in random order, again
            and again, up to `bags_per_epoch`. 0: all are new.
    """

    name = "synthetic-bags"
    primary = "posterior_error"
    revision = 2
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 1000, "test": 4000}
    batch_bags = 32
    amount = "training_bags"

    def __init__(
        self,
        num_classes: Annotated[int, Field(ge=1, le=10)] = 5,
        dimension: Annotated[int, Field(ge=1)] = 8,
        min_size: Annotated[int, Field(ge=1)] = 4,
        max_size: Annotated[int, Field(ge=1)] = 16,
        class_rate: Annotated[float, Field(gt=0, lt=1)] = 0.06,
        separation: Positive = 5.0,
        background_scale: Positive = 2.0,
        bags_per_epoch: Annotated[int, Field(ge=1, le=10_000_000)] = 3200,
        label_sets: LabelSets = "independent",
        labels_per_bag: Annotated[int, Field(ge=1)] | None = None,
        imbalance: Annotated[float, Field(ge=1, le=1e4)] = 1.0,
        empty_share: Share | None = None,
        labels_dropped: Share = 0.0,
        labels_added: Share = 0.0,
        context: Annotated[float, Field(ge=0, le=1)] = 0.0,
        context_without: Annotated[float, Field(ge=0, le=1)] = 0.0,
        context_swapped: bool = False,
        test_sizes: Annotated[str, Field(pattern=r"^[1-9]\d{0,3}-[1-9]\d{0,3}$")] | None = None,
        test_label_sets: LabelSets | None = None,
        training_bags: Annotated[int, Field(ge=0, le=10_000_000)] = 0,
        overlap: Annotated[float, Field(ge=0, le=1)] = 0.0,
    ) -> None:
        if min_size > max_size:
            raise self._wrong(f"min_size = {min_size} is larger than max_size = {max_size}")
        has_context = max(context, context_without) > 0
        if dimension < num_classes + has_context:
            what = "and context need as many axes and one more" if has_context else "need as many axes"
            raise self._wrong(f"{num_classes} classes {what}, dimension = {dimension} is too small")
        if num_classes * class_rate >= 1:
            raise self._wrong(f"{num_classes} classes of class_rate = {class_rate:g} leave no room for background")
        if imbalance > 1 and num_classes == 1:
            raise self._wrong(f"imbalance = {imbalance:g} needs at least 2 classes, num_classes = 1")
        self.num_classes = num_classes
        self.dimension = dimension
        self.size_range = min_size, max_size
        self.test_range = self.size_range if test_sizes is None else self._range(test_sizes)
        self.max_labels = min(num_classes, max_size)
        self.bags_per_epoch = bags_per_epoch
        self.training_count = training_bags
        self.positions = (min_size + max_size) // 2
        self.imbalance = imbalance
        self.context = context_without, context
        self.test_context = self.context[::-1] if context_swapped else self.context
        self._noise = labels_dropped, labels_added
        self._overlap = overlap
        if overlap:
            self.primary = "set_error"
        self._priors = class_rates(num_classes, class_rate, imbalance)
        self._presence = presence_among(self._priors, (min_size + max_size) / 2)
        kinds = (label_sets, test_label_sets or label_sets)
        if labels_per_bag is not None and "uniform" not in kinds:
            raise self._wrong(f"labels_per_bag = {labels_per_bag} is for label_sets = uniform, not for {label_sets}")
        self._rule, self._test_rule = (
            LabelSetRule(kind, labels_per_bag if kind == "uniform" else None, empty_share) for kind in kinds
        )
        try:
            self._rule.check(self._presence, min_size)
            self._test_rule.check(self._presence, self.test_range[0])
        except UsageError as error:
            raise self._wrong(str(error)) from None
        self._means, self._scales = clusters(num_classes, dimension, separation, background_scale, context=has_context)

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        bags = max(self.training_count, *self.eval_bags.values())
        needed = 4 * bags * max(*self.size_range, *self.test_range) * self.dimension
        if needed > (held := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
            what = f"{bags:,} bags of this size would take {needed:,} bytes of memory"
            raise self._wrong(f"{what}, of which {held:,} are here")
        return f"generated, revision {self.revision}"

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:  # noqa: ARG002
        """Draw the fixed bags, or take those of the task that this process prepared last, if they are the same."""
        self._device = device
        self._placed = self._means.to(device), self._scales.to(device)
        prior, draws = self._label_sets(self._rule)
        self._training = BagModel(self.size_range, draws, self.context)
        other = draws if self._test_rule == self._rule else self._label_sets(self._test_rule)[1]
        self._test = BagModel(self.test_range, other, self.test_context)
        self._instance_model = marginal_rates(self._training, prior, self._priors)
        self._key = self._drawn_from()
        splits = _last_bags.get(self._key)
        if splits is None:
            splits = {split: self._eval_split(split, count) for split, count in self.eval_bags.items()}
            _last_bags.clear()
            _last_bags[self._key] = splits
        self.eval_splits = splits
        if self.training_count:
            rng = generator(self.name, self.revision, "training", self.seed)
            self._pool = self._with_noise(self.draw(self.training_count, rng), rng)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        if self.training_count:
            yield from super().train_batches(epoch, rng)
            return
        counts = [len(part) for part in torch.arange(self.bags_per_epoch or 0).split(self.batch_bags)]
        for start in range(0, len(counts), _TOGETHER):
            for bags in self.draw_batches(counts[start : start + _TOGETHER], rng):
                yield self._with_noise(bags, rng)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG002
        return self._pool.selected(to_device(numbers, self._device))

    def encoder(self, width: int, seed: int) -> Network:
        return InstanceMLP((self.dimension, 64, 64, width), seed)

    def recipe(self) -> Recipe:
        return Recipe(lr=1e-2, epochs=20, evaluate_every=5, precision="float32")

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of single instances (instance_error) and of bags, those of the optimum, and the excess."""
        found = evaluate_bags(score, self.eval_splits, limit=self.evaluation_limit)
        if self._overlap:
            return found
        reached = found.metrics | merged_errors(score, self._limited_splits, self._groups)
        best, reference = self._bayes, self._reference
        excess = {key.replace("bayes", "excess"): reached[key.replace("bayes_", "")] - v for key, v in best.items()}
        return replace(found, metrics=reached | best | excess | reference | above_reference(reached, reference))

    @property
    def _bayes(self) -> dict[str, float]:
        key = ("bayes", *self._key, self.evaluation_limit)
        if key not in _optima:
            _optima[key] = {
                f"{split}/bayes_{metric}": v
                for split, split_bags in self._limited_splits.items()
                for metric, v in self.bayes_errors(split_bags, split).items()
            }
        return _optima[key]

    @property
    def _reference(self) -> dict[str, float]:
        key = ("reference", *self._key, self.evaluation_limit)
        if key not in _optima:
            _optima[key] = reference_errors(self.marginal_log_posterior, self._limited_splits, self._groups)
        return _optima[key]

    @property
    def _limited_splits(self) -> dict[Split, EvalSplit]:
        return {split: limited(bags, self.evaluation_limit) for split, bags in self.eval_splits.items()}

    @property
    def _groups(self) -> list[int]:
        """For each channel, background last, the first one that label sets cannot tell from it."""
        channels = list(range(self.num_classes + 1))
        if self._rule.kind == "together":
            return [c // 2 * 2 for c in channels]
        return [self.num_classes, *channels[1:]] if self._rule.kind == "constant" else channels

    def _drawn_from(self) -> _Key:
        """Return all that the fixed bags depend on."""
        without = _PREPARED + _OF_TRAINING
        state = {k: v.tolist() if isinstance(v, Tensor) else v for k, v in vars(self).items() if k not in without}
        return type(self), repr((self.revision, self.eval_bags, self.evaluation_limit, sorted(state.items())))

    def _label_sets(self, rule: LabelSetRule) -> tuple[LabelSetPrior, ConditionedDraws | None]:
        prior = LabelSetPrior(rule, self._priors, self._presence, max(self.size_range[1], self.test_range[1]))
        return prior, None if rule.is_of_independent_instances else ConditionedDraws(prior, self._priors)

    def draw(self, count: int, rng: torch.Generator, split: Split = "validation") -> Bags:
        """Return random bags as of a split, (B, K, d); instances beyond the size of a bag are 0 and masked."""
        (bags,) = self.draw_batches([count], rng, split)
        return bags

    def draw_batches(self, counts: Sequence[int], rng: torch.Generator, split: Split = "validation") -> list[Bags]:
        """Return the bags that `draw` returns for each count in turn, in less time than these calls take."""
        model = self._model_of(split)
        high = model.sizes[1]
        drawn = [self._numbers(count, model, rng) for count in counts]
        all_sizes, chosen, noise, near, host = (torch.cat(numbers) for numbers in zip(*drawn, strict=True))
        if model.draws is not None:
            chosen = model.draws(all_sizes[:, 0], chosen)
        all_sizes, all_drawn = all_to_device([all_sizes, chosen], self._device)
        mask = torch.arange(high, device=self._device) < all_sizes
        classes = all_drawn.masked_fill(~mask, self.num_classes)
        known = classes.masked_fill(classes == self.num_classes, -1)
        labels = label_matrix(known, self.num_classes)
        kinds = all_drawn
        if any(model.context):
            is_context = model.is_context(to_device(near, self._device), labels)
            kinds = kinds + (is_context & (kinds == self.num_classes))
        instances = self._emit(kinds, noise)
        if self._overlap:
            noise, host = all_to_device([noise, host], self._device)
            instances = self._overlapped(instances, known, noise, host)
        truth = Truth(known, position_classes=None if self._overlap else classes)
        bags = Bags(instances * mask.unsqueeze(2), labels, mask, truth)
        stops = [*itertools.accumulate(counts)]
        return [bags.part(stop - count, stop) for count, stop in zip(counts, stops, strict=True)]

    def log_posterior(self, instances: Tensor) -> Tensor:
        """Return the log posterior (B, C+1, K) float64 of the class of each of the instances (B, K, d) by itself.

        It is that of independent instances without context, for which it is also the posterior given the whole bag.
        """
        return log_joint(instances.cpu(), self._means, self._scales, self._priors).log_softmax(dim=1)

    def marginal_log_posterior(self, instances: Tensor) -> Tensor:
        """Return the log posterior (B, C+1, K) float64 of the class of each instance, whatever else is in its bag.

        Classes and context are as frequent as in training bags. It is `log_posterior` where instances are independent
        and there is no context.
        """
        rates, context = self._instance_model
        return log_joint(instances.cpu(), self._means, self._scales, rates, context).log_softmax(dim=1)

    def posterior(self, bags: Bags, split: Split = "validation") -> BagPosterior:
        """Return the exact posterior given all instances of each bag, of bags with a mask drawn as those of a split."""
        model, known = self._model_of(split), bags.to(torch.device("cpu"))
        mask = torch.ones_like(known.instances[..., 0], dtype=torch.bool) if known.mask is None else known.mask
        weight = None if model.draws is None else model.draws.prior.log_weight[mask.sum(dim=1)]
        without, having = (
            log_joint(known.instances, self._means, self._scales, self._priors, share) for share in model.context
        )
        return bag_posterior(without, mask, weight, having if any(model.context) else None)

    def bayes_errors(self, split_bags: EvalSplit, split: Split = "validation") -> dict[str, float]:
        """Return the errors of the optimal decisions on bags drawn as those of a split, by metric."""
        return optimal_errors(split_bags, self.log_posterior, partial(self.posterior, split=split))

    def _model_of(self, split: Split) -> BagModel:
        return self._test if split == "test" else self._training

    def _numbers(self, count: int, model: BagModel, rng: torch.Generator) -> tuple[Tensor, ...]:
        """Return sizes (B, 1), what classes, normal noise (B, K, d), context and overlap (B, 2, K) are drawn by.

        The second are the classes (B, K) themselves where instances are independent, else uniform (B, 1+K), of the
        label set and of the positions.
        """
        low, high = model.sizes
        sizes = torch.randint(low, high + 1, (count, 1), generator=rng)
        if model.draws is None:
            chosen = torch.multinomial(self._priors, count * high, replacement=True, generator=rng).view(count, high)
        else:
            chosen = torch.rand(count, 1 + high, dtype=torch.float64, generator=rng)
        noise = torch.randn(count, high, self.dimension, generator=rng)
        near = torch.rand(count, high if any(model.context) else 0, generator=rng)
        return sizes, chosen, noise, near, torch.rand(count, 2 if self._overlap else 0, high, generator=rng)

    def _with_noise(self, bags: Bags, rng: torch.Generator) -> Bags:
        """Return bags with the errors of label sets that training bags have, and then without the truth.

        Counts and positions know of no such errors: losses that learn from them would have better labels than others.
        """
        if not any(self._noise) or bags.mask is None:
            return bags
        return replace(bags, labels=noisy_labels(bags.labels, bags.mask.sum(dim=1), *self._noise, rng), truth=None)

    def _emit(self, kinds: Tensor, noise: Tensor) -> Tensor:
        means, scales = self._placed
        return means[kinds] + scales[kinds].unsqueeze(-1) * to_device(noise, self._device)

    def _overlapped(self, instances: Tensor, known: Tensor, noise: Tensor, uniform: Tensor) -> Tensor:
        """Return instances (B, K, d) of which some are moved to a position of their bag that has another class.

        `known` (B, K) are their classes, -1 for background; by `uniform` (B, 2, K) the position and who is moved are
        drawn.
        """
        means, scales = self._placed
        place = uniform[:, 0].masked_fill(known < 0, -1).argmax(dim=1, keepdim=True)
        moved = (known >= 0) & (known != known.gather(1, place)) & (uniform[:, 1] < self._overlap)
        background = means[self.num_classes] + scales[self.num_classes] * noise
        taken = label_matrix(known.masked_fill(~moved, -1), self.num_classes).to(means) @ means[: self.num_classes]
        is_place = torch.zeros_like(moved).scatter(1, place, True)
        left = torch.where(moved.unsqueeze(2), background, instances)
        return left + is_place.unsqueeze(2) * taken.unsqueeze(1)

    def _eval_split(self, split: Split, count: int) -> EvalSplit:
        """Return the fixed bags of a split, and as many single instances, of each class as often as it is drawn."""
        rng = generator(self.name, self.revision, split)
        count = len(range(count)[: self.evaluation_limit])
        if self.imbalance == 1:
            classes = torch.randint(self.num_classes, (count, 1), generator=rng)
        else:
            classes = torch.multinomial(self._priors[:-1], count, replacement=True, generator=rng).unsqueeze(1)
        classes = classes.to(self._device)
        noise = torch.randn(count, 1, self.dimension, generator=rng)
        lone = Bags(self._emit(classes, noise), label_matrix(classes, self.num_classes))
        sizes = [min(_EVAL_BATCH, count - start) for start in range(0, count, _EVAL_BATCH)]
        return EvalSplit([lone], [self.draw(size, rng, split) for size in sizes])

    def _range(self, sizes: str) -> tuple[int, int]:
        low, high = map(int, sizes.split("-"))
        if low > high:
            raise self._wrong(f"test_sizes = {sizes}: the smallest is larger than the largest")
        return low, high

    def _wrong(self, what: str) -> UsageError:
        return UsageError(f"{self.name}: {what}")
