"""Bags of Gaussian instances from a known distribution, where the optimal errors are known."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from milbench import (
    BagFormat,
    Bags,
    EvalSplit,
    Evaluation,
    InstanceMLP,
    NetworkMaker,
    Origin,
    Recipe,
    ScoreFunction,
    Split,
    Task,
    UsageError,
    generator,
    label_matrix,
)
from milbench._utils.devices import to_device
from milbench.contracts.task import CPU
from milbench.evaluation.evaluate import evaluation_of
from milbench.families.decisions import (
    LEARNABLE,
    learnable_errors,
    optimal_errors,
    reference_errors,
    with_ratios,
)
from milbench.families.fixed_bags import EvaluatedBags, batched, draw_in_rounds, limited
from milbench.families.gaussian_bags import GaussianBags, noisy_labels
from milbench.families.label_set_prior import LabelSetKind, LabelSetRule

_EVAL_BATCH = 250
"""How many bags are scored at once."""
_DRAWN_TOGETHER = 10
"""How many training batches are sampled before the errors of their label sets are.

All come from one random generator, so that another number would change published results.
"""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]


class SyntheticBags(Task):
    """Find the class of every instance of an unordered bag in R^d, trained from label sets alone.

    The class of every instance is sampled independently: each class has the probability
    `class_rate`, and background the rest. An instance of class c is normal with unit variance
    around the point at separation/sqrt(2) on axis c, so that any two classes are `separation`
    standard deviations apart. Background is normal around 0 with the standard deviation
    `background_scale`. The size of a bag is uniform on min_size..max_size. The label set holds the
    classes of the instances, and is empty if all instances are background. Training bags are new in
    every epoch.

    With other `label_sets` or an `empty_share`, a label set is sampled after the size, and then the
    classes of the instances as above, on the condition that they have this label set. See
    `milbench.families.label_set_prior`.

    As the distribution is known, so are the optimal decisions: about an instance or the label set,
    given the whole bag, and about a single instance that is not background. They follow from the
    exact posterior. Each `bayes_*` metric is the error of the optimal decisions on the bags on
    which the loss is evaluated, and each `excess_*` metric is the error of the loss minus this
    error. Since both errors are on the same bags, the difference has little noise; it may be
    slightly negative.

    Where instances depend on each other, a network that sees them one by one cannot be expected to
    reach the optimum. So there is a reference, which knows the distribution but sees one instance
    at a time (`milbench.families.decisions`). Each `reference_*` metric is its error, and each
    `above_reference_*` metric is the error of the loss minus this error. It may be negative, as a
    network can learn what the reference ignores. Where label sets cannot tell a class from another
    class or from the background, `learnable_posterior_error` counts the two as one.

    Args:
        num_classes: C, the number of classes, background not counted.
        dimension: d, the number of features. It is at least C, and with `context` at least C+1.
        min_size: the smallest number of instances in a bag.
        max_size: the largest number of instances in a bag.
        class_rate: the probability that an instance is of a class, for each class; background has
            the probability 1 - C * class_rate.
        separation: the distance of any two classes, in standard deviations.
        background_scale: the standard deviation of the background.
        bags_per_epoch: the number of training bags in an epoch.
        label_sets: which classes occur together. `independent`: as above. `together`: classes 2i
            and 2i+1 occur only together. `exclusive`: they never occur together. `mostly-together`:
            nine times in ten as `together`, else as `exclusive`. `constant`: class 0 occurs in
            every bag. `uniform`: 1 to `labels_per_bag` classes, each number equally often.
        labels_per_bag: the largest number of classes in a bag, with `uniform` label sets.
        imbalance: the probability of class 0 divided by the probability of the last class. The
            probabilities of the classes between them fall geometrically, and the sum of all stays
            C * class_rate. Single instances to evaluate on have classes in the same proportions.
        empty_share: the share of bags without a class; None: the share that follows from the other
            parameters.
        labels_dropped: the probability that a class that occurs in a training bag is missing from
            its label set.
        labels_added: the probability that a class that does not occur in a training bag is added to
            its label set, unless the set would be larger than the bag.
        noise_in: the bags whose label sets have these errors. With `training+validation`,
            thresholds and settings are chosen by label sets with errors, as where nobody knows the
            true ones. Validation label sets get the same errors for all seeds. Validation bags then
            have no metrics of instances, optimum or reference, which would need the truth. Test
            label sets have no errors; optimum and reference on test bags stay the same.
        context: in bags with class 0, the share of the background that is normal with unit variance
            around the point at separation/sqrt(2) on axis C, as one more class would be.
        context_without: the same share in bags without class 0.
        context_swapped: whether test bags swap `context` and `context_without`.
        test_sizes: the smallest and largest size of test bags, such as "20-40"; None: as for all
            other bags.
        test_label_sets: `label_sets` of test bags; None: as for all other bags.
        overlap: the probability that an instance of a class moves to one position, which all
            instances that move share. This position is chosen at random from the positions with a
            class. It is normal around the sum of the points of the classes that it then shows. The
            instances that move leave background behind. Label sets stay the same. Metrics of
            instances, optimum and reference are left out, since a position may show several
            classes.
        training_bags: the number of training bags, made once for a seed. An epoch goes through them
            in random order, again and again, up to `bags_per_epoch`. 0: all training bags are new.
    """

    name = "synthetic-bags"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": partial(InstanceMLP, layers=2)}
    primary = "posterior_error"
    revision = 2
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 1000, "test": 4000}
    format: BagFormat
    amount_parameter = "training_bags"
    added: ClassVar[Mapping[str, Any]] = {"noise_in": "training"}
    """Parameters that are newer than stored cells: at these values the id of a cell omits them."""

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
        label_sets: LabelSetKind = "independent",
        labels_per_bag: Annotated[int, Field(ge=1)] | None = None,
        imbalance: Annotated[float, Field(ge=1, le=1e4)] = 1.0,
        empty_share: Share | None = None,
        labels_dropped: Share = 0.0,
        labels_added: Share = 0.0,
        context: Annotated[float, Field(ge=0, le=1)] = 0.0,
        context_without: Annotated[float, Field(ge=0, le=1)] = 0.0,
        context_swapped: bool = False,
        test_sizes: Annotated[str, Field(pattern=r"^[1-9]\d{0,3}-[1-9]\d{0,3}$")] | None = None,
        test_label_sets: LabelSetKind | None = None,
        training_bags: Annotated[int, Field(ge=0, le=10_000_000)] = 0,
        overlap: Annotated[float, Field(ge=0, le=1)] = 0.0,
        noise_in: Literal["training", "training+validation"] = "training",
    ) -> None:
        if min_size > max_size:
            raise UsageError(f"min_size = {min_size} is larger than max_size = {max_size}")
        sizes_in_test = (min_size, max_size)
        if test_sizes:
            sizes_in_test = _parse_sizes(test_sizes)
        label_sets_in_test = test_label_sets or label_sets
        if labels_per_bag is not None and "uniform" not in (label_sets, label_sets_in_test):
            raise UsageError(
                f"labels_per_bag = {labels_per_bag} is for label_sets = uniform, "
                f"not for {label_sets}"
            )
        self.training = GaussianBags(
            num_classes=num_classes,
            dimension=dimension,
            sizes=(min_size, max_size),
            mean_size=(min_size + max_size) / 2,
            class_rate=class_rate,
            separation=separation,
            background_scale=background_scale,
            rule=_rule(label_sets, labels_per_bag, empty_share),
            imbalance=imbalance,
            context=(context_without, context),
            overlap=overlap,
        )
        context_in_test = self.training.context
        if context_swapped:
            context_in_test = (context, context_without)
        self.test = replace(
            self.training,
            sizes=sizes_in_test,
            rule=_rule(label_sets_in_test, labels_per_bag, empty_share),
            context=context_in_test,
        )
        self.format = BagFormat(dimension, tuple(str(number) for number in range(num_classes)))
        self.bags_per_epoch = bags_per_epoch
        self.training_bags = training_bags
        self.noise = (labels_dropped, labels_added)
        self.validates_on_noise = noise_in == "training+validation" and any(self.noise)
        if overlap:
            self.primary = "set_error"

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        return f"generated, revision {self.revision}"

    def recipe(self) -> Recipe:
        return Recipe(lr=1e-2, epochs=20, evaluate_every=5, precision="float32")

    def load(
        self,
        data_dir: Path | None = None,  # noqa: ARG002
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> "SyntheticProblem":
        sources: Sources = (
            ("validation", self.training, limited(self.eval_bags["validation"], limit)),
            ("test", self.test, limited(self.eval_bags["test"], limit)),
        )
        splits = dict(_eval_splits(sources, self.revision, device))
        true_splits = splits
        if self.validates_on_noise:
            # Optimum and reference need true label sets, which only test bags have.
            true_splits = {"test": splits["test"]}
            noisy = self._noisy_validation(splits["validation"], device)
            splits = {"validation": noisy, "test": splits["test"]}
        pool = self._pool(seed, device) if self.training_bags else None
        smallest, largest = self.training.sizes
        return SyntheticProblem(
            task_name=self.name,
            seed=seed,
            format=self.format,
            typical_shape=((smallest + largest) // 2, self.format.inputs),
            batch_bags=32,
            splits=splits,
            max_labels=min(self.format.num_classes, largest),
            limit=limit,
            training=self.training,
            noise=self.noise,
            bags_per_epoch=self.bags_per_epoch,
            pool=pool,
            device=device,
            sources=sources,
            revision=self.revision,
            true_splits=true_splits,
            groups=self._groups,
        )

    def _pool(self, seed: int, device: torch.device) -> Bags:
        """Return the training bags of a seed, which are the same in every epoch."""
        rng = generator(self.name, self.revision, "training", seed)
        clean = self.training.draw(self.training_bags, rng)
        return with_noise(clean, self.noise, rng).to(device)

    def _noisy_validation(self, clean: EvalSplit, device: torch.device) -> EvalSplit:
        """Return the validation bags with errors in their label sets, the same for all seeds.

        Single instances are left out: they would tell the true class of an instance, which nobody
        with noisy label sets knows.
        """
        rng = generator(self.name, self.revision, "validation", "noise")
        noisy = [with_noise(bags.to(CPU), self.noise, rng).to(device) for bags in clean.bags]
        return EvalSplit((), noisy)

    @property
    def _groups(self) -> tuple[int, ...]:
        """For each channel, background last, its group: channels that label sets cannot tell apart.

        A group is named by one of its channels.
        """
        channels = range(self.format.num_classes + 1)
        kind = self.training.rule.kind
        if kind == "together":
            # Classes 2i and 2i+1 only occur together. As the number of classes is even, the
            # background stays by itself.
            return tuple(channel // 2 * 2 for channel in channels)
        if kind == "constant":
            # Class 0 is in every bag, like the background.
            background = self.format.num_classes
            return (background, *channels[1:])
        return tuple(channels)


def _parse_sizes(text: str) -> tuple[int, int]:
    """Return the two sizes in a text such as "20-40".

    Raises UsageError if the first is larger than the second.
    """
    first, last = text.split("-")
    smallest = int(first)
    largest = int(last)
    if smallest > largest:
        raise UsageError(f"test_sizes = {text}: the smallest is larger than the largest")
    return smallest, largest


def _rule(
    label_sets: LabelSetKind, labels_per_bag: int | None, empty_share: float | None
) -> LabelSetRule:
    """Return the rule of label sets. Only `uniform` keeps the number of labels."""
    if label_sets != "uniform":
        labels_per_bag = None
    return LabelSetRule(label_sets, labels_per_bag, empty_share)


@dataclass(kw_only=True, eq=False, repr=False)
class SyntheticProblem(EvaluatedBags):
    """Bags from a known distribution, with the errors of decisions that know it."""

    training: GaussianBags
    """The distribution of training bags."""
    noise: tuple[float, float]
    """The parameters `labels_dropped` and `labels_added` of the task."""
    bags_per_epoch: int
    pool: Bags | None
    """The training bags; None: new bags are made for every step."""
    device: torch.device
    sources: "Sources"
    """The distributions that bags to evaluate on come from."""
    revision: int
    """The revision of the task."""
    true_splits: dict[Split, EvalSplit]
    """The splits whose label sets have no errors."""
    groups: tuple[int, ...]
    """For each channel, background last, its group: channels that label sets cannot tell apart."""

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.bags_per_epoch / self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        if self.pool is None:
            return self._new_bags(rng)
        return self._bags_of(self.pool, rng)

    def _bags_of(self, pool: Bags, rng: torch.Generator) -> Iterator[Bags]:
        order = draw_in_rounds(len(pool), self.bags_per_epoch, rng)
        for numbers in order.split(self.batch_bags):
            yield pool.selected(to_device(numbers, self.device))

    def _new_bags(self, rng: torch.Generator) -> Iterator[Bags]:
        counts = [len(part) for part in torch.arange(self.bags_per_epoch).split(self.batch_bags)]
        for counts_together in batched(counts, _DRAWN_TOGETHER):
            clean = [self.training.draw(count, rng) for count in counts_together]
            for bags in clean:
                yield with_noise(bags, self.noise, rng).to(self.device)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of loss, optimum and reference, and the differences."""
        evaluated = super().evaluate(score)
        if self.training.overlap:
            return evaluated
        # For mypy: the base class always returns predictions.
        assert evaluated.predictions is not None  # noqa: S101
        learnable = learnable_errors(score, self.true_splits, self.groups)
        predictions = with_ratios(evaluated.predictions, LEARNABLE, learnable)
        return evaluation_of(replace(predictions, known=self.known_errors()))

    def known_errors(self) -> dict[str, float]:
        """Return the errors of the optimum and of the reference on bags with true label sets."""
        known = {}
        errors = _known_errors(self.sources, self.revision, self.device, self.groups)
        for name, error in errors.items():
            split, _, _ = name.partition("/")
            if split in self.true_splits:
                known[name] = error
        return known


def with_noise(bags: Bags, noise: tuple[float, float], rng: torch.Generator) -> Bags:
    """Return bags with errors in their label sets.

    If there are errors, the bags lose their truth, which would contradict the label sets.
    """
    if not any(noise):
        return bags
    # For mypy: `GaussianBags.draw` always makes a mask.
    assert bags.mask is not None  # noqa: S101
    labels = noisy_labels(bags.labels, bags.mask.sum(dim=1), *noise, rng)
    return replace(bags, labels=labels, truth=None)


Sources = tuple[tuple[Split, GaussianBags, int], ...]
"""For each split, its name, the distribution of its bags, and their number."""


# Cached, so that the cells that one process computes share their bags.
@lru_cache(maxsize=1)
def _eval_splits(sources: Sources, revision: int, device: torch.device) -> dict[Split, EvalSplit]:
    """Return the bags of every split, the same for all seeds, and as many single instances."""
    splits: dict[Split, EvalSplit] = {}
    for split, model, count in sources:
        rng = generator(SyntheticBags.name, revision, split)
        single_instances = _single_instances(model, count, rng).to(device)
        batches = []
        for numbers in torch.arange(count).split(_EVAL_BATCH):
            bags = replace(model.draw(len(numbers), rng), origin=Origin(numbers))
            batches.append(bags.to(device))
        splits[split] = EvalSplit([single_instances], batches)
    return splits


def _single_instances(model: GaussianBags, count: int, rng: torch.Generator) -> Bags:
    """Return bags of one instance, on the CPU.

    The classes are as frequent as in the bags of the model; there is no background.
    """
    if model.imbalance == 1:
        classes = torch.randint(model.num_classes, (count, 1), generator=rng)
    else:
        rates = model.rates[:-1]
        classes = torch.multinomial(rates, count, replacement=True, generator=rng).unsqueeze(1)
    noise = torch.randn(count, 1, model.dimension, generator=rng)
    labels = label_matrix(classes, model.num_classes)
    return Bags(model.emit(classes, noise), labels, origin=Origin(torch.arange(count)))


# Cached, so that the cells that one process computes share these errors: to compute the optimum
# takes longer than an epoch.
@cache
def _known_errors(
    sources: Sources, revision: int, device: torch.device, groups: tuple[int, ...]
) -> dict[str, float]:
    """Return the errors of the optimum and of the reference on all splits, by `split/metric`."""
    splits = _eval_splits(sources, revision, device)
    # The reference knows the distribution of training bags. The first source, for validation, has
    # the same distribution.
    _, training, _ = sources[0]
    errors = reference_errors(training.marginal_log_posterior, splits, groups)
    for split, model, _ in sources:
        optimal = optimal_errors(splits[split], model.log_posterior, model.posterior)
        errors |= {f"{split}/bayes_{metric}": error for metric, error in optimal.items()}
    return errors
