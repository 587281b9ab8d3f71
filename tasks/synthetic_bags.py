"""Bags of Gaussian instances from a known generator, to see how far from the optimum each loss ends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.recipe import Recipe
from milbench.api.task import Evaluation, Network, ScoreFunction, Split, Task
from milbench.errors import UsageError
from milbench.evaluation import metrics
from milbench.evaluation.evaluate import EvalSplit, evaluate, first_bags
from milbench.likelihood import best_label_set
from milbench.networks.instance import InstanceMLP

BATCH, EVAL_BATCH = 32, 250
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SyntheticBags(Task):
    """Unordered instances in R^d: every instance is independently of class c with `class_rate`, else background.

    Class c is normal with unit variance around its own axis' point at separation/sqrt(2), so that any two classes are
    `separation` standard deviations apart; the background is normal around 0, `background_scale` times as wide. The
    size of a bag is uniform on min_size..max_size and independent of all else; its label set is the set of the classes
    drawn, empty where all is background: negative bags belong to the game. Training bags are new in every epoch.

    As the generator is known, so are the best possible decisions: from the exact posterior of every instance, of a
    lone instance that is known to be of some class, and of the whole label set. Each `bayes_*` metric is what these
    decisions cost on the very bags that the loss is judged on, each `excess_*` the difference: a paired one, with
    little noise, that may end a little below 0 where luck beats the optimum on finitely many bags.
    """

    name = "synthetic-bags"
    primary = "posterior_error"
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 1000, "test": 2000}

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
        self.bags_per_epoch = bags_per_epoch
        self.positions = (min_size + max_size) // 2
        self._priors = torch.tensor([class_rate] * num_classes + [1 - num_classes * class_rate], dtype=torch.float64)
        self._means = torch.eye(num_classes + 1, dimension) * separation / math.sqrt(2)
        self._means[-1] = 0
        self._scales = torch.tensor([1.0] * num_classes + [background_scale])

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        """Say that nothing is read."""
        return f"generated, revision {self.revision}"

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:  # noqa: ARG002
        """Draw the fixed bags."""
        self._device = device
        self._eval_splits = {split: self._eval_split(split, count) for split, count in self.eval_bags.items()}

    @property
    def steps_per_epoch(self) -> int:
        """A fixed number of new bags."""
        return -(-self.bags_per_epoch // BATCH)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield new bags."""
        for start in range(0, self.bags_per_epoch, BATCH):
            yield self.draw(min(BATCH, self.bags_per_epoch - start), rng)

    def network(self, seed: int) -> Network:
        """Return a perceptron with two hidden layers, the same for every instance."""
        return InstanceMLP((self.dimension, 64, 64, self.num_classes + 1), seed)

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW."""
        return Recipe(lr=1e-2, epochs=20)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of lone instances (instance_error) and of the fixed bags, the optimal ones, the excess."""
        reached = evaluate(score, self._eval_splits)
        excess = {
            key.replace("bayes", "excess"): reached[key.replace("bayes_", "")] - v for key, v in self._bayes.items()
        }
        return Evaluation(reached | self._bayes | excess)

    def gallery(self) -> Bags:
        """Return eight test bags."""
        return first_bags(self._eval_splits["test"].bags[0], 8)

    @cached_property
    def _bayes(self) -> dict[str, float]:
        """What the optimal decisions cost on the fixed bags, by `split/bayes_metric`."""
        return {
            f"{s}/bayes_{k}": v
            for s, split_bags in self._eval_splits.items()
            for k, v in self.bayes_errors(split_bags).items()
        }

    def draw(self, count: int, rng: torch.Generator) -> Bags:
        """Draw `count` bags; instances (B, max_size, D) that do not exist are 0 and masked.

        Chance comes from the CPU, the bags are put together on the device.
        """
        low, high = self.size_range
        sizes = torch.randint(low, high + 1, (count, 1), generator=rng)
        mask = (torch.arange(high) < sizes).to(self._device)
        drawn = torch.multinomial(self._priors, count * high, replacement=True, generator=rng).view(count, high)
        drawn = drawn.to(self._device)
        classes = drawn.masked_fill(~mask, self.num_classes)
        instances = self._emit(drawn, rng) * mask.unsqueeze(2)
        known = classes.masked_fill(classes == self.num_classes, -1)
        labels = label_matrix(known, self.num_classes)
        return Bags(instances, labels, mask, Truth(known, position_classes=classes))

    def log_posterior(self, instances: Tensor) -> Tensor:
        """Return (B, C+1, K) float64, the log probability of every class given the instance (B, K, D)."""
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

    def _emit(self, classes: Tensor, rng: torch.Generator) -> Tensor:
        """Draw an instance of each class: (..., D)."""
        noise = torch.randn(*classes.shape, self.dimension, generator=rng).to(classes.device)
        means, scales = self._means.to(classes.device), self._scales.to(classes.device)
        return means[classes] + scales[classes].unsqueeze(-1) * noise

    def _eval_split(self, split: Split, count: int) -> EvalSplit:
        """Draw the fixed bags of a split and as many lone instances, all classes alike often."""
        rng = generator(self.name, self.revision, split)
        classes = torch.randint(self.num_classes, (count, 1), generator=rng).to(self._device)
        lone = Bags(self._emit(classes, rng), label_matrix(classes, self.num_classes))
        return EvalSplit([lone], [self.draw(EVAL_BATCH, rng) for _ in range(count // EVAL_BATCH)])
