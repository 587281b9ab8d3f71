"""What every task must do, as tests to inherit."""

import hashlib
import json
import math
import pickle
import random
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from milbench import (
    BagFormat,
    Bags,
    Evaluation,
    Network,
    Problem,
    Scores,
    Split,
    Task,
    UsageError,
    generator,
    load_loss,
    load_task,
)
from milbench.contracts.bags import label_matrix
from milbench.contracts.loss import Head
from milbench.contracts.parameters import check_params, constructor_parameters
from milbench.contracts.problem import ScoreFunction
from milbench.experiment.expand_spec import changed_recipe
from milbench.networks.known_networks import make_network
from milbench.testing import common
from milbench.training.training_setup import typical_positions

LIMIT = 8
"""How many bags of each split are evaluated, and as many single instances."""
MANY = 300
"""How many bags of each split are compared with the bags of other splits."""
FEW = 4
"""How many bags a network gets in a test."""
SHAPES = {"images": (4, 1, 2), "sequences": (3, 1, 2), "sets": (3, 2, 1)}
"""For each kind of bag: the number of dimensions of a batch, and two of its dimensions.

The first is the dimension of channels or features. The second is the dimension of a mask:
instances or frames. Images have no mask.
"""
MOST_SHOWN = 64
"""The largest number of bags in a gallery, since more would fill a report."""


class TaskContract:
    """The contract tests of a task and of the problem that it loads. A test file inherits them:

        class TestMine(TaskContract):
            task = "mine.py"
            params = {"bags_per_epoch": 64}  # few, since an epoch is made several times

    They make batches, make the networks of the task, and evaluate the first network untrained. If
    the data of the task are files, override the fixture `data_dir`, and return a folder with small
    files. If a task cannot pass a test by its nature, override the test, with a docstring that says
    why.
    """  # noqa: D400 what follows is an example

    task: ClassVar[str]
    """The name of the task, or the path of its file, relative to the file of the test class."""
    params: ClassVar[dict[str, Any]] = {}
    """Arguments of its constructor."""

    @pytest.fixture
    def data_dir(self) -> Path | None:
        """Return the folder of the data; None: the default folder."""
        return None

    # All tests of a class share one problem, its batches and its evaluation, which no test changes.
    # A cache holds one value, so that the tests of the next class replace the values of this one.
    @classmethod
    @lru_cache(maxsize=1)
    def _loaded(cls, data_dir: Path | None) -> Problem:
        return cls().load(data_dir)

    @classmethod
    @lru_cache(maxsize=1)
    def _batches(cls, data_dir: Path | None) -> list[Bags]:
        return list(cls._loaded(data_dir).train_batches(0, generator("contract")))

    @classmethod
    @lru_cache(maxsize=1)
    def _evaluated(cls, data_dir: Path | None) -> Evaluation:
        problem = cls._loaded(data_dir)
        return problem.evaluate(untrained_scores(cls().describe(), problem))

    @pytest.fixture
    def described(self) -> Task:
        return self.describe()

    @pytest.fixture
    def problem(self, data_dir: Path | None) -> Problem:
        return self._loaded(data_dir)

    @pytest.fixture
    def batches(self, data_dir: Path | None) -> list[Bags]:
        return self._batches(data_dir)

    @pytest.fixture
    def evaluation(self, data_dir: Path | None) -> Evaluation:
        return self._evaluated(data_dir)

    def describe(self) -> Task:
        """Return a new task."""
        return load_task(common.reference_to(type(self), self.task), **self.params)

    def load(self, data_dir: Path | None, *, seed: int = 0, limit: int = LIMIT) -> Problem:
        """Return the problem of a seed, loaded again.

        It has at most `limit` bags of each split to evaluate, and as many single instances.
        """
        return self.describe().load(data_dir, seed, limit=limit)

    def test_it_says_what_it_is(self, described: Task, problem: Problem) -> None:
        assert described.networks, "a network that suits the task, the first by default"
        assert (type(described).__doc__ or "").strip(), (
            "milbench list tasks shows the first line of its docstring"
        )
        recipe = described.recipe()
        assert changed_recipe(recipe, {}) == recipe, "the recipe is valid"
        assert problem.task_name == described.name
        assert problem.batch_bags >= 1
        assert described.is_tested == ("test" in problem.splits)

    def test_its_format_says_what_bags_are_like(self, problem: Problem) -> None:
        assert problem.format.inputs >= 1
        assert problem.format.num_classes >= 1
        assert isinstance(problem.format.class_names, tuple)
        assert all(isinstance(name, str) for name in problem.format.class_names)

    def test_a_task_does_not_change(self, data_dir: Path | None) -> None:
        """No method changes the attributes of a task. What is loaded belongs to the problem."""
        task = self.describe()
        before = dict(vars(task))
        task.check_data(data_dir)
        task.folds(data_dir)
        task.overlap(data_dir)
        task.remarks(data_dir, [0])
        task.recipe()
        task.datasets()
        problem = task.load(data_dir, limit=LIMIT)
        next(iter(problem.train_batches(0, generator("contract"))))
        problem.gallery()
        task.format_from(problem.format.memory())
        after = vars(task)
        assert after.keys() == before.keys()
        assert all(after[name] is before[name] for name in before)

    def test_one_task_loads_problems_of_several_seeds(self, data_dir: Path | None) -> None:
        """To load the problem of another seed does not change a problem that was loaded before."""
        task = self.describe()
        first = task.load(data_dir, 0, limit=LIMIT)
        batch = _first_batch(first)
        gallery = first.gallery()
        second = task.load(data_dir, 1, limit=LIMIT)
        assert first.seed == 0
        assert second.seed == 1
        assert_same(_first_batch(first), batch)
        assert_same(first.gallery(), gallery)

    def test_one_seed_gives_one_problem(self, data_dir: Path | None, problem: Problem) -> None:
        again = self.load(data_dir)
        assert_same_format(again.format, problem.format)
        assert again.typical_shape == problem.typical_shape
        assert again.batch_bags == problem.batch_bags
        assert again.max_labels == problem.max_labels
        assert again.steps_per_epoch == problem.steps_per_epoch
        assert evaluated_digests(again) == evaluated_digests(problem)

    def test_parameters_can_be_stored_and_sent(self, described: Task) -> None:
        """A plan keeps parameters as JSON, and other processes make the task from them."""
        complete = check_params("the task", type(described), self.params)
        assert json.loads(json.dumps(complete)) == complete
        assert pickle.loads(pickle.dumps(complete)) == complete

    def test_a_wrong_parameter_is_one_line_that_names_it(self, described: Task) -> None:
        parameters = constructor_parameters(type(described))
        for name, parameter in parameters.items():
            assert parameter.annotation is not parameter.empty, (
                f"{name} has no annotation to be checked against"
            )
        reference = common.reference_to(type(self), self.task)
        for name in (*parameters, "no_such_parameter"):
            # No parameter accepts an object without properties.
            wrong = self.params | {name: object()}
            with pytest.raises(UsageError) as error:
                load_task(reference, **wrong)
            assert name in str(error.value)
            assert "\n" not in str(error.value)

    def test_the_digest_of_the_data_is_one_line_and_always_the_same(
        self, data_dir: Path | None
    ) -> None:
        first = self.describe().check_data(data_dir)
        again = self.describe().check_data(data_dir)
        assert first == again
        assert first.strip()
        assert "\n" not in first

    def test_batches_depend_on_the_generator_alone(
        self, data_dir: Path | None, batches: list[Bags]
    ) -> None:
        """All losses are compared on the same bags, so the global generators must not matter."""
        torch.manual_seed(12345)
        np.random.seed(12345)  # noqa: NPY002 the generator of the whole process is meant
        random.seed(12345)
        again = list(self.load(data_dir).train_batches(0, generator("contract")))
        assert len(again) == len(batches)
        for first, second in zip(batches, again, strict=True):
            assert_same(first, second)

    def test_an_earlier_epoch_does_not_matter(
        self, data_dir: Path | None, batches: list[Bags]
    ) -> None:
        """A cell that was killed goes on in a new process, at the beginning of its last epoch."""
        problem = self.load(data_dir)
        next(iter(problem.train_batches(3, generator("another"))))
        assert_same(_first_batch(problem), batches[0])

    def test_another_seed_or_epoch_gives_other_batches(
        self, problem: Problem, batches: list[Bags]
    ) -> None:
        """Training makes the generator of an epoch from the seed and the number of the epoch."""
        others = problem.train_batches(0, generator("another"))
        # Another generator may give another number of batches.
        pairs = zip(batches, others, strict=False)
        assert any(bag_digests(first) != bag_digests(second) for first, second in pairs)

    def test_batches_fit_together(
        self, described: Task, problem: Problem, batches: list[Bags]
    ) -> None:
        assert len(batches) == problem.steps_per_epoch
        classes = problem.format.num_classes
        dimensions, channel, masked = SHAPES[described.bag_kind]
        assert len(problem.typical_shape) == dimensions - 1
        assert problem.typical_shape[channel - 1] == problem.format.inputs
        for bags in batches:
            count = len(bags)
            assert count >= 1
            assert bags.instances.is_floating_point()
            assert bags.instances.ndim == dimensions, f"the bags are {described.bag_kind}"
            assert bags.instances.shape[channel] == problem.format.inputs
            is_valid = bags.instances.isfinite()
            if bags.mask is not None and described.bag_kind == "sequences":
                # Frames beyond the end of a shorter sequence are NaN.
                is_valid |= ~bags.mask.unsqueeze(1) & bags.instances.isnan()
            assert is_valid.all()
            assert bags.labels.shape == (count, classes)
            assert bags.labels.dtype == torch.bool
            if problem.max_labels is not None:
                largest = int(bags.labels.sum(dim=1).max())
                assert largest <= problem.max_labels <= classes
            if bags.mask is not None:
                assert bags.mask.dtype == torch.bool
                assert bags.mask.shape == (count, bags.instances.shape[masked]), (
                    "whether there is an instance"
                )

    def test_label_sets_agree_with_the_truth(self, problem: Problem, batches: list[Bags]) -> None:
        with_truth = [bags for bags in (*batches, problem.gallery()) if bags.truth is not None]
        if not with_truth:
            pytest.skip(
                "the task has no instance truth: losses are ranked by the error of label sets"
            )
        for bags in with_truth:
            assert_labels_agree_with_truth(bags, problem.format.num_classes)

    def test_every_network_fits_the_bags(
        self, described: Task, problem: Problem, batches: list[Bags]
    ) -> None:
        classes = problem.format.num_classes
        few_trained_on = batches[0].parts(FEW)[0]
        few_shown = problem.gallery().parts(FEW)[0]
        for network in networks_of(described, problem.format):
            for bags in (few_trained_on, few_shown):
                _, mask = common.checked_logits(network, bags, classes)
                positions_of_bags = mask.flatten(1).sum(dim=1)
                classes_of_bags = bags.labels.sum(dim=1)
                assert (classes_of_bags <= positions_of_bags).all(), "an instance for every class"
            typical = typical_positions(network, problem)
            network.start_at_prior(typical)
            bias = network.head.get_parameter("bias").tolist()
            assert bias == pytest.approx([-math.log(typical)] * classes + [0])
        for network in networks_of(described, problem.format, head="class"):
            logits = network.logits_of(few_trained_on).float()
            assert logits.flatten(2).shape[1:] == (classes + 1, 1), "a classifier has one position"

    def test_padding_does_not_reach_the_logits(
        self, described: Task, problem: Problem, batches: list[Bags]
    ) -> None:
        """For sets: a network that ignores the mask would take the padding for instances."""
        bags = batches[0].parts(FEW)[0]
        if bags.mask is None or described.bag_kind != "sets" or bags.mask.all():
            pytest.skip("no bag of the task is a set that is padded")
        for network in networks_of(described, problem.format):
            common.assert_padding_has_no_part(network, bags, "sets", problem.format.num_classes)

    def test_initial_weights_depend_on_the_seed_alone(
        self, described: Task, problem: Problem
    ) -> None:
        for name in described.networks:
            make = partial(network_of, described, problem.format, name)
            common.assert_weights_depend_on_the_seed_alone(make)

    def test_the_exact_loss_has_a_gradient_in_every_weight(
        self, described: Task, problem: Problem, batches: list[Bags]
    ) -> None:
        bags = next(bags.parts(FEW)[0] for bags in batches if bags.labels[:FEW].any())
        exact = load_loss("exact")
        for network in networks_of(described, problem.format):
            logits = network.logits_of(bags).float()
            value = exact(logits, bags.labels, network.mask_of(bags)).mean()
            value.backward()
            assert value.isfinite()
            common.assert_gradients(network)

    def test_a_trained_network_can_be_used_where_the_data_are_not(
        self, problem: Problem, batches: list[Bags]
    ) -> None:
        """The stored format of the bags and the trained weights give the same network again."""
        elsewhere = self.describe()
        remembered = elsewhere.format_from(json.loads(json.dumps(problem.format.memory())))
        assert_same_format(remembered, problem.format)
        bags = batches[0].parts(FEW)[0]
        heads: tuple[Head, ...] = ("softmax", "class")
        trained: list[Network] = []
        loaded: list[Network] = []
        for head in heads:
            trained += networks_of(self.describe(), problem.format, 0, head)
            # Another seed, so that the weights differ until they are loaded.
            loaded += networks_of(elsewhere, remembered, 1, head)
        for network, same in zip(trained, loaded, strict=True):
            same.load_state_dict(network.state_dict())
            with torch.no_grad():
                assert_close(same.eval().logits_of(bags), network.eval().logits_of(bags))

    def test_evaluations_are_always_the_same(
        self, data_dir: Path | None, described: Task, evaluation: Evaluation
    ) -> None:
        torch.manual_seed(7)
        again = self.load(data_dir)
        repeated = again.evaluate(untrained_scores(described, again))
        assert repeated.metrics == evaluation.metrics
        assert repeated.decoder == evaluation.decoder

    def test_the_metric_that_losses_are_ranked_by_is_measured(
        self, described: Task, evaluation: Evaluation
    ) -> None:
        assert f"test/{described.primary}" in evaluation.metrics
        for name, value in evaluation.metrics.items():
            assert isinstance(value, float), name
            assert not math.isnan(value), name

    def test_who_knows_the_label_sets_makes_no_set_error(
        self, described: Task, problem: Problem
    ) -> None:
        scores = untrained_scores(described, problem, knows_labels=True)
        metrics = problem.evaluate(scores).metrics
        if "test/set_error" not in metrics:
            pytest.skip("the task does not measure the set error")
        assert metrics["test/set_error"] == 0

    def test_no_bag_is_in_two_splits(self, data_dir: Path | None, batches: list[Bags]) -> None:
        """Bags are compared by content: a bag that is augmented or made again is not recognised."""
        evaluated = evaluated_digests(self.load(data_dir, limit=MANY))
        splits = [*evaluated.values(), digests_of(batches)]
        counted_by_split = sum(len(split) for split in splits)
        # A bag in two splits would be counted twice.
        assert counted_by_split == len(set().union(*splits))

    def test_origins_tell_evaluated_bags_apart(self, problem: Problem) -> None:
        """A task need not say where its bags come from: bags without an origin are independent."""
        for split in problem.splits.values():
            for batches in (split.bags, split.single_instance):
                assert_origins_tell_bags_apart([batches[n] for n in range(len(batches))])

    def test_the_task_says_where_seeds_split_the_same_bags(
        self, data_dir: Path | None, described: Task, batches: list[Bags]
    ) -> None:
        """Seeds that share bags, by content, are not independent.

        Without `Task.overlap` the intervals would be too narrow.
        """
        other = self.load(data_dir, seed=1, limit=MANY)
        if digests_of(batches) & evaluated_digests(other)["test"]:
            assert described.overlap(data_dir) > 0, (
                "what one seed trains on another one is tested on"
            )

    def test_the_gallery_is_a_few_bags_always_the_same(
        self, data_dir: Path | None, problem: Problem
    ) -> None:
        gallery = problem.gallery()
        assert 1 <= len(gallery) <= MOST_SHOWN
        assert gallery.labels.shape == (len(gallery), problem.format.num_classes)
        assert_same(gallery, self.load(data_dir).gallery())

    def test_pictures_are_read_as_bags_are(self, described: Task, problem: Problem) -> None:
        instances = problem.gallery().instances[0]
        try:
            picture = described.picture_from(instances)
        except UsageError:
            pytest.skip("the task has no pictures")
        # Two of the 256 levels of a pixel.
        two_levels = 1 / 128
        assert_close(described.instances_from(picture), instances, rtol=0, atol=two_levels)


def _first_batch(problem: Problem) -> Bags:
    return next(iter(problem.train_batches(0, generator("contract"))))


def network_of(
    task: Task, bag_format: BagFormat, name: str, seed: int = 0, head: Head = "softmax"
) -> Network:
    """Return a network of a task, for losses with this head, as a cell with this seed makes it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make_network(task, bag_format, name, {}, seed, head)


def networks_of(
    task: Task, bag_format: BagFormat, seed: int = 0, head: Head = "softmax"
) -> list[Network]:
    """Return all networks of a task that are for losses with this head."""
    makers = task.classifiers if head == "class" else task.networks
    return [network_of(task, bag_format, name, seed, head) for name in makers]


def evaluated_digests(problem: Problem) -> dict[Split, set[str]]:
    """Return the digests of the bags of each split to evaluate on."""
    digests: dict[Split, set[str]] = {}
    for name, split in problem.splits.items():
        digests[name] = digests_of([split.bags[number] for number in range(len(split.bags))])
    return digests


def digests_of(batches: Sequence[Bags]) -> set[str]:
    """Return the digests of all bags of some batches."""
    digests: set[str] = set()
    for bags in batches:
        digests.update(bag_digests(bags))
    return digests


def untrained_scores(task: Task, problem: Problem, *, knows_labels: bool = False) -> ScoreFunction:
    """Return a function that scores bags by an untrained network.

    The score of a class is its largest probability in the bag. With `knows_labels` it is 1 for the
    classes of the label set, and 0 for the others.
    """
    network = network_of(task, problem.format, next(iter(task.networks)))

    @torch.no_grad()
    def score(bags: Bags) -> Scores:
        probs = network.logits_of(bags).float().softmax(dim=1)
        mask = network.mask_of(bags)
        of_classes = probs[:, :-1]
        if mask is not None:
            of_classes = of_classes.masked_fill(~mask.unsqueeze(1), 0)
        presence = of_classes.flatten(2).amax(dim=2)
        if knows_labels:
            presence = bags.labels.float()
        return Scores(presence, presence, probs, mask=mask, centres=network.centres_in(bags))

    return score


def assert_labels_agree_with_truth(bags: Bags, num_classes: int) -> None:
    """Assert that the label sets hold the classes of the instances, and those of the positions."""
    truth = bags.truth
    assert truth is not None
    is_class = (truth.classes >= -1) & (truth.classes < num_classes)
    assert is_class.all(), "classes are 0 to C-1, and -1 for none"
    assert torch.equal(label_matrix(truth.classes, num_classes), bags.labels)
    if truth.boxes is not None:
        assert truth.boxes.shape == (*truth.classes.shape, 4)
    classes = truth.position_classes
    if classes is None:
        return
    is_class = (classes >= 0) & (classes <= num_classes)
    assert is_class.all(), "position_classes are 0 to C-1, C: background"
    shows_none = classes == num_classes
    if bags.mask is not None:
        shows_none = shows_none | ~bags.mask
    things = classes.masked_fill(shows_none, -1).flatten(1)
    assert torch.equal(label_matrix(things, num_classes), bags.labels)


def assert_same_format(bag_format: BagFormat, other: BagFormat) -> None:
    """Assert that two formats are equal."""
    assert bag_format.inputs == other.inputs
    assert bag_format.class_names == other.class_names
    assert bag_format.frames_per_second == other.frames_per_second
    assert bag_format.memory() == other.memory()


def assert_same(bags: Bags, other: Bags) -> None:
    """Assert that two batches are equal, bit for bit."""
    for name in ("instances", "labels", "mask"):
        first = getattr(bags, name)
        second = getattr(other, name)
        if first is None or second is None:
            assert first is second, name
            continue
        # A sequence is padded with NaN up to the longest of its batch.
        assert_close(first, second, rtol=0, atol=0, equal_nan=True, msg=name)


def assert_origins_tell_bags_apart(batches: Sequence[Bags]) -> None:
    """Assert that origins have a row for each bag, and bags of a split different numbers."""
    numbers: list[int] = []
    for bags in batches:
        origin = bags.origin
        if origin is None:
            continue
        assert origin.bag.shape == (len(bags),)
        numbers += origin.bag.tolist()
        if origin.group is not None:
            assert origin.group.shape == (len(bags),)
        if origin.items is not None:
            assert origin.items.ndim == 2
            assert len(origin.items) == len(bags)
            assert (origin.items >= -1).all(), "-1 stands where a bag has fewer items"
    assert len(set(numbers)) == len(numbers), "two bags of a split have the same number"


def bag_digests(bags: Bags) -> list[str]:
    """Return a digest of the instances of every bag.

    Padding is left out, since it depends on the other bags of the batch.
    """
    hashes = []
    for i, instances in enumerate(bags.instances.cpu()):
        mask = None if bags.mask is None else bags.mask[i].cpu()
        # Sequences are padded with NaN, and the padding of sets is where the mask is False.
        values = instances[~instances.isnan()]
        has_nan = len(values) < instances.numel()
        if mask is not None and mask.shape == instances.shape[:1] and not has_nan:
            values = instances[mask]
        hashes.append(hashlib.sha256(values.contiguous().numpy().tobytes()).hexdigest())
    return hashes
