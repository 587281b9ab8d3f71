"""Bags of Gaussian instances from a known distribution, to measure how far from the optimum each loss ends."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from milbench._utils.devices import all_to_device, to_device
from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.recipe import Recipe
from milbench.api.task import Evaluation, Network, ScoreFunction, Split, Task
from milbench.errors import UsageError
from milbench.evaluation import metrics
from milbench.evaluation.evaluate import EvalSplit, evaluate_bags, limited
from milbench.likelihood import best_label_set
from milbench.networks.instance import InstanceMLP

_BATCH, _EVAL_BATCH = 32, 250
_TOGETHER = 10
"""How many training batches are drawn at once: the calls of torch take more time than their numbers."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Key = tuple[type, str]
_PREPARED = ("_key", "_eval_splits", "_placed")
"""The attributes that follow from the others."""
# The cells of a comparison that one process computes share the bags and their optimum.
_last_bags: dict[_Key, dict[Split, EvalSplit]] = {}
_optima: dict[tuple[type, str, int | None], dict[str, float]] = {}
"""By the key of the bags, and how many of them are evaluated."""


class SyntheticBags(Task):
    """Find the class of every instance of an unordered bag in R^d, given the label set.

    Every instance is, independently, of class c with probability `class_rate` for each c, else background. Class c is
    normal with unit variance around the point at separation/sqrt(2) on axis c, so that any two classes are `separation`
    standard deviations apart. The background is normal around 0 with the standard deviation `background_scale`. The
    size of a bag is uniform on min_size..max_size and independent of everything else. The label set is the set of the
    classes drawn; it is empty where all instances are background, so that there are negative bags. Training bags are
    new in every epoch.

    As the distribution is known, so are the optimal decisions: from the exact posterior of every instance, of a single
    instance that is not background, and of the label set. Each `bayes_*` metric is the error of these decisions on the
    bags on which the loss is evaluated, and each `excess_*` metric is the difference. It is paired, has little noise,
    and may be slightly negative on finitely many bags.

    Args:
        num_classes: C, the background not counted.
        dimension: d, at least C.
        min_size: the smallest number of instances in a bag.
        max_size: the largest.
        class_rate: the probability of each class, so that background has 1 - C * class_rate.
        separation: the distance of any two classes, in standard deviations.
        background_scale: the standard deviation of the background.
        bags_per_epoch: the number of training bags.
    """

    name = "synthetic-bags"
    primary = "posterior_error"
    revision = 2
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 1000, "test": 4000}

    def __init__(
        self,
        num_classes: Annotated[int, Field(ge=1, le=10)] = 5,
        dimension: Annotated[int, Field(ge=1)] = 8,
        min_size: Annotated[int, Field(ge=1)] = 4,
        max_size: Annotated[int, Field(ge=1)] = 16,
        class_rate: Annotated[float, Field(gt=0, lt=1)] = 0.06,
        separation: Positive = 5.0,
        background_scale: Positive = 2.0,
        bags_per_epoch: Annotated[int, Field(ge=1)] = 3200,
    ) -> None:
        if dimension < num_classes:
            raise UsageError(
                f"{self.name}: {num_classes} classes need as many axes, dimension = {dimension} is too small"
            )
        if min_size > max_size:
            raise UsageError(f"{self.name}: min_size = {min_size} is larger than max_size = {max_size}")
        if num_classes * class_rate >= 1:
            raise UsageError(
                f"{self.name}: {num_classes} classes of class_rate = {class_rate:g} leave no room for background"
            )
        self.num_classes = num_classes
        self.dimension = dimension
        self.size_range = min_size, max_size
        self.max_labels = min(num_classes, max_size)
        self.bags_per_epoch = bags_per_epoch
        self.positions = (min_size + max_size) // 2
        self._priors = torch.tensor([class_rate] * num_classes + [1 - num_classes * class_rate], dtype=torch.float64)
        self._means = torch.eye(num_classes + 1, dimension) * separation / math.sqrt(2)
        self._means[-1] = 0
        self._scales = torch.tensor([1.0] * num_classes + [background_scale])

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        """Return a constant, because no data are read."""
        return f"generated, revision {self.revision}"

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:  # noqa: ARG002
        """Draw the fixed bags, or take those of the task that this process prepared last, if they are the same."""
        self._device = device
        self._placed = self._means.to(device), self._scales.to(device)
        self._key = self._drawn_from()
        splits = _last_bags.get(self._key)
        if splits is None:
            splits = {split: self._eval_split(split, count) for split, count in self.eval_bags.items()}
            _last_bags.clear()
            _last_bags[self._key] = splits
        self._eval_splits = splits

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of batches of the new bags of an epoch; the last one may be smaller."""
        return -(-self.bags_per_epoch // _BATCH)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield batches of new bags."""
        counts = [min(_BATCH, self.bags_per_epoch - start) for start in range(0, self.bags_per_epoch, _BATCH)]
        for start in range(0, len(counts), _TOGETHER):
            yield from self.draw_batches(counts[start : start + _TOGETHER], rng)

    def network(self, seed: int) -> Network:
        """Return a perceptron with two hidden layers, the same for every instance."""
        return InstanceMLP((self.dimension, 64, 64, self.num_classes + 1), seed)

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW."""
        return Recipe(lr=1e-2, epochs=20, evaluate_every=5)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of single instances (instance_error) and of bags, those of the optimum, and the excess."""
        found = evaluate_bags(score, self._eval_splits, limit=self.evaluation_limit)
        reached, best = found.metrics, self._bayes
        excess = {key.replace("bayes", "excess"): reached[key.replace("bayes_", "")] - v for key, v in best.items()}
        return Evaluation(reached | best | excess, outcomes=found.outcomes)

    def gallery(self) -> Bags:
        """Return eight test bags."""
        return self._eval_splits["test"].bags[0].part(0, 8)

    @property
    def _bayes(self) -> dict[str, float]:
        """The errors of the optimal decisions on the bags that are evaluated, by `split/bayes_metric`."""
        key = (*self._key, self.evaluation_limit)
        if key not in _optima:
            _optima[key] = {
                f"{s}/bayes_{k}": v
                for s, split_bags in self._eval_splits.items()
                for k, v in self.bayes_errors(limited(split_bags, self.evaluation_limit)).items()
            }
        return _optima[key]

    def _drawn_from(self) -> _Key:
        """Return all that the fixed bags depend on: class, revision, their number, every attribute, the device."""
        state = {k: v.tolist() if isinstance(v, Tensor) else v for k, v in vars(self).items() if k not in _PREPARED}
        return type(self), repr((self.revision, self.eval_bags, self.evaluation_limit, sorted(state.items())))

    def draw(self, count: int, rng: torch.Generator) -> Bags:
        """Return random bags with instances (B, max_size, d); those beyond the size of a bag are 0 and masked.

        Args:
            count: B, the number of bags, which are made on the device of `prepare`.
            rng: a generator on the CPU.
        """
        (bags,) = self.draw_batches([count], rng)
        return bags

    def draw_batches(self, counts: Sequence[int], rng: torch.Generator) -> list[Bags]:
        """Return the bags that `draw` returns for each count in turn, in less time than these calls take."""
        low, high = self.size_range
        sizes, drawn, noise = [], [], []
        for count in counts:
            sizes.append(torch.randint(low, high + 1, (count, 1), generator=rng))
            some = torch.multinomial(self._priors, count * high, replacement=True, generator=rng)
            drawn.append(some.view(count, high))
            noise.append(torch.randn(count, high, self.dimension, generator=rng))
        all_sizes, all_drawn = all_to_device([torch.cat(sizes), torch.cat(drawn)], self._device)
        mask = torch.arange(high, device=self._device) < all_sizes
        classes = all_drawn.masked_fill(~mask, self.num_classes)
        instances = self._emit(all_drawn, torch.cat(noise)) * mask.unsqueeze(2)
        known = classes.masked_fill(classes == self.num_classes, -1)
        bags = Bags(instances, label_matrix(known, self.num_classes), mask, Truth(known, position_classes=classes))
        stops = [*itertools.accumulate(counts)]
        return [bags.part(stop - count, stop) for count, stop in zip(counts, stops, strict=True)]

    def log_posterior(self, instances: Tensor) -> Tensor:
        """Return the log posterior (B, C+1, K) float64 of the class of each of the instances (B, K, d)."""
        x = instances.cpu().double()
        squares = (x.unsqueeze(-2) - self._means.double()).square().sum(dim=-1)
        scales = self._scales.double()
        log_joint = self._priors.log() - self.dimension * scales.log() - squares / (2 * scales.square())
        return log_joint.log_softmax(dim=-1).transpose(1, 2)

    def bayes_errors(self, split_bags: EvalSplit) -> dict[str, float]:
        """Return the errors of the optimal decisions on a split, by metric."""
        lone = torch.cat([self.log_posterior(bags.instances)[:, :-1, 0] for bags in split_bags.single_instance])
        truth = torch.cat([bags.labels.cpu() for bags in split_bags.single_instance])
        wrong_sets, wrong_instances = [], []
        for bags in split_bags.bags:
            posterior, known = self.log_posterior(bags.instances), bags.to(torch.device("cpu"))
            best = best_label_set(posterior, known.mask, validate=False).labels[:, 0]
            wrong_sets.append((best != known.labels).any(dim=1))
            wrong_instances.append(metrics.wrong_instances(posterior, known.truth, known.mask))
        return {
            "instance_error": metrics.instance_error(lone, truth.int().argmax(dim=1)),
            "set_error": metrics.share(torch.cat(wrong_sets)),
            "posterior_error": metrics.share(torch.cat(wrong_instances)),
        }

    def _emit(self, classes: Tensor, noise: Tensor) -> Tensor:
        """Return the instances (..., d) of the classes (...), from standard normal noise (..., d)."""
        means, scales = self._placed
        return means[classes] + scales[classes].unsqueeze(-1) * to_device(noise, self._device)

    def _eval_split(self, split: Split, count: int) -> EvalSplit:
        """Return the fixed bags of a split, and as many single instances of uniformly random classes."""
        rng = generator(self.name, self.revision, split)
        count = len(range(count)[: self.evaluation_limit])
        classes = torch.randint(self.num_classes, (count, 1), generator=rng).to(self._device)
        noise = torch.randn(count, 1, self.dimension, generator=rng)
        lone = Bags(self._emit(classes, noise), label_matrix(classes, self.num_classes))
        sizes = [min(_EVAL_BATCH, count - start) for start in range(0, count, _EVAL_BATCH)]
        return EvalSplit([lone], [self.draw(size, rng) for size in sizes])
