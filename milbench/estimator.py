"""An estimator with scikit-learn's conventions: bags and their label sets in, label sets out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, check_random_state, column_or_1d, validate_data
from torch import Tensor

from milbench._utils.devices import resolve
from milbench.api.bags import Bags, pad_bags
from milbench.api.loss import Loss
from milbench.api.recipe import Recipe
from milbench.api.registry import tasks
from milbench.api.task import Evaluation, Network, ScoreFunction, Task
from milbench.engine.train import fit
from milbench.errors import UsageError, unknown
from milbench.evaluation.evaluate import EVEN_ODDS
from milbench.evaluation.metrics import best_threshold
from milbench.networks.instance import InstanceMLP, divisors
from milbench.networks.registry import load_network

EVAL_BATCH = 64
"""Bags that are predicted at once."""


class BagClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # not typed
    """Learn from bags which classes are in a bag, by one loss; with scikit-learn's conventions.

    It is trained as a cell of a comparison on the task feature-bags is: by the same loop, network and recipe, on
    features that are standardised by the training instances.

    Bags are a list of arrays (K_i, D), a row an instance; an array (B, K, D); an array (N, D) with `index`, the bag of
    each row, in the order in which bags first occur; or, without one, an array (B, D) of bags of one instance. Labels
    are y (B,), where the smaller of two values is a bag without the class, and of three or more values each is the one
    class of its bag; or label sets, as zeros and ones (B, C) or a list of collections. Predictions have the form of the
    labels. `cross_val_score` and others that split by label take them as numbers, not as a list of collections.

    Args:
        loss: a name, the path of a file, or a `Loss`.
        network: None: a perceptron with one hidden layer of 64 units for every instance; a name that `milbench list
            networks` shows; or a function from the number of features, that of classes and a seed to a `Network`.
        epochs: how many epochs are trained.
        batch_bags: the number of bags in a training batch.
        recipe: settings of `milbench.Recipe` in place of those of the task feature-bags, such as {"lr": 1e-2}.
        threshold: of presence scores, from which on a class is predicted; None: the best one for the training bags, and
            of those as good the nearest to even odds, as in a comparison.
        random_state: a seed, of the initial weights and the order of bags.
        device: cpu, cuda, cuda:N, or auto, which is cuda where there is one.

    Attributes:
        classes_: (C,) the classes.
        network_: the trained network.
        loss_: the loss, with its weights where it has any.
        threshold_: the one that is used.
        n_features_in_: D.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> bags = [rng.normal(size=(rng.integers(2, 6), 3)) for _ in range(60)]
        >>> y = [int(bag[:, 0].max() > 1) for bag in bags]  # whether an instance is large
        >>> classifier = BagClassifier(loss="exact").fit(bags[:40], y[:40])
        >>> classifier.predict(bags[40:45])
        array([0, 0, 1, 0, 0])
        >>> bool(classifier.score(bags[40:], y[40:]) > 0.8)
        True
    """

    def __init__(
        self,
        loss: str | Loss = "exact",
        *,
        network: str | Callable[[int, int, int], Network] | None = None,
        epochs: int = 40,
        batch_bags: int = 8,
        recipe: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        random_state: Any = 0,
        device: str = "auto",
    ) -> None:
        self.loss = loss
        self.network = network
        self.epochs = epochs
        self.batch_bags = batch_bags
        self.recipe = recipe
        self.threshold = threshold
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any, index: ArrayLike | None = None) -> Self:
        """Train on bags and their labels, in any of the forms that the class describes."""
        instances, sizes = self._checked(X, index, reset=True)
        labels = self._learn_labels(y, len(sizes))
        self._mean = instances.mean(axis=0, dtype=np.float64)
        self._scale = divisors(torch.from_numpy(self._mean), torch.from_numpy(instances.std(axis=0, dtype=np.float64)))
        seed = self.random_state
        if not isinstance(seed, int):
            seed = int(check_random_state(seed).randint(2**31))
        device = resolve(self.device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            task = _Arrays(self, self._tensors(instances, sizes), labels, device)
            with TemporaryDirectory() as folder:
                self.network_, self.loss_ = fit(task, self._new_loss(), self._recipe(task), seed, device, Path(folder))
        if self.threshold is None:
            presence = torch.cat([self.loss_.presence_scores(*of).cpu() for of in self._logits(task.parts)])
            self.threshold_ = best_threshold(presence, labels, near=EVEN_ODDS)
        else:
            self.threshold_ = self.threshold
        return self

    def predict(self, X: Any, index: ArrayLike | None = None) -> Any:
        """Return the labels of bags, in the form of those that were trained on."""
        decision = self.decision_function(X, index)
        if self._kind == "multiclass":
            return self.classes_[decision.argmax(axis=1)]
        found = decision >= 0
        if self._kind == "binary":
            return self.classes_[found.astype(int)]
        return self._sets.inverse_transform(found) if self._kind == "sets" else found.astype(int)

    def decision_function(self, X: Any, index: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return how far presence is above the threshold, (B, C), or (B,) of the class where y has two values."""
        check_is_fitted(self)
        found = self._each(X, index, self.loss_.presence_scores) - self.threshold_
        return found[:, 0] if self._kind == "binary" else found

    def predict_proba(self, X: Any, index: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return (B, C), the probability that each class is in a bag; of y (B,), that of each value, summing to 1.

        Raises:
            UsageError: the loss has no probabilities.
        """
        check_is_fitted(self)
        if not self.loss_.presence_is_log_odds:
            raise UsageError(f"{self.loss_.name} has no probabilities: use predict or decision_function")
        if self._kind == "multiclass":
            return self._each(X, index, self._one_class)
        found = self._each(X, index, lambda logits, mask: self.loss_.presence_scores(logits, mask).sigmoid())
        return np.concatenate([1 - found, found], axis=1) if self._kind == "binary" else found

    def score(self, X: Any, y: Any, sample_weight: Any = None, index: ArrayLike | None = None) -> float:
        """Return the share of bags whose labels are predicted, 1 - set error."""
        if self._kind == "sets":
            right = [{*found} == {*true} for found, true in zip(self.predict(X, index), y, strict=True)]
        else:
            found = self.predict(X, index)
            right = (np.asarray(y) == found).reshape(len(found), -1).all(axis=1)
        return float(np.average(right, weights=sample_weight))

    def _one_class(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the probability of each class, given that a bag has one."""
        sets = torch.eye(len(self.classes_), dtype=torch.bool, device=logits.device).expand(len(logits), -1, -1)
        found = [self.loss_.label_log_prob(logits, sets[:, c], mask) for c in range(sets.shape[1])]
        return torch.stack([each for each in found if each is not None], dim=1).softmax(dim=1)

    def _each(self, X: Any, index: Any, method: Callable[[Tensor, Tensor | None], Tensor]) -> NDArray[np.float64]:
        """Return what a method of the loss gives the logits of bags, in their order."""
        instances, sizes = self._checked(X, index, reset=False)
        bags = self._tensors(instances, sizes)
        parts = [bags[start : start + EVAL_BATCH] for start in range(0, len(bags), EVAL_BATCH)]
        return torch.cat([method(*of).double().cpu() for of in self._logits(parts)]).numpy()

    @torch.no_grad()
    def _logits(self, parts: Sequence[Sequence[Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits and mask of some bags at a time."""
        self.network_.eval()
        device = next(self.network_.parameters()).device
        for part in parts:
            instances, mask = pad_bags(part)
            bags = Bags(instances, torch.zeros(len(part), 0, dtype=torch.bool), mask).to(device)
            yield self.network_.logits_of(bags).float(), mask.to(device)

    def _tensors(self, instances: NDArray[np.float32], sizes: Sequence[int]) -> list[Tensor]:
        """Return bags of standardised features."""
        mean = torch.from_numpy(self._mean).float()
        return [*((torch.from_numpy(instances) - mean) / self._scale.float()).split([*sizes])]

    def _new_loss(self) -> Loss:
        from milbench import load_loss

        loss = copy.deepcopy(self.loss) if isinstance(self.loss, Loss) else load_loss(self.loss)
        if loss.target_kind != "labels":
            raise UsageError(f"BagClassifier trains on label sets; {loss.name} needs {loss.target_kind}")
        return loss

    def _recipe(self, task: Task) -> Recipe:
        given = {"epochs": self.epochs, **(self.recipe or {})}
        if wrong := given.keys() - Recipe.model_fields:
            raise unknown("setting of recipe", min(wrong), Recipe.model_fields)
        return Recipe(**(task.recipe().model_dump() | given))

    def _checked(self, X: Any, index: ArrayLike | None, *, reset: bool) -> tuple[NDArray[np.float32], list[int]]:
        """Return the instances (N, D) of all bags, in their order, and the size of each."""
        if hasattr(X, "__array__") and not hasattr(X, "shape"):
            X = np.asarray(X)
        if index is not None:
            order, sizes = _grouped(index)
            return validate_data(self, X, reset=reset, dtype=np.float32)[order], sizes
        if hasattr(X, "shape") and len(X.shape) != 3 and not (len(X.shape) == 1 and X.dtype.kind == "O"):
            rows = validate_data(self, X, reset=reset, dtype=np.float32)
            return rows, [1] * len(rows)
        bags = [np.atleast_2d(np.asarray(bag)) for bag in X]
        if len({bag.shape[1:] for bag in bags}) != 1 or bags[0].ndim != 2:
            given = ", ".join(sorted({str(bag.shape) for bag in bags})[:5]) or "none"
            raise UsageError(f"bags must be arrays (K, D) of instances with the same D features, got {given}")
        return validate_data(self, np.concatenate(bags), reset=reset, dtype=np.float32), [len(bag) for bag in bags]

    def _learn_labels(self, y: Any, count: int) -> Tensor:
        """Return label sets (B, C) bool, and remember which classes they have and in which form they were given."""
        if isinstance(y, (list, tuple)) and y and isinstance(y[0], (list, tuple, set, frozenset)):
            self._kind, self._sets = "sets", MultiLabelBinarizer()
            found = self._sets.fit_transform(y)
            self.classes_ = self._sets.classes_
        else:
            if y is None:
                raise UsageError("BagClassifier requires y to be passed, but the target y is None")
            if type_of_target(y) == "multilabel-indicator":
                self._kind, found = "numbers", np.asarray(y)
                self.classes_ = np.arange(found.shape[1])
            else:
                values = column_or_1d(y, warn=True)
                check_classification_targets(values)
                self.classes_, numbers = np.unique(values, return_inverse=True)
                if len(self.classes_) < 2:
                    raise UsageError(f"y has one class, {self.classes_[0]}: nothing can be learnt")
                self._kind = "binary" if len(self.classes_) == 2 else "multiclass"
                found = numbers[:, None] if self._kind == "binary" else np.eye(len(self.classes_))[numbers]
        if len(found) != count:
            raise UsageError(f"there are {count} bags and labels of {len(found)}")
        return torch.from_numpy(np.asarray(found) > 0)


class _Arrays(Task):
    """The training bags of a `BagClassifier`: batches, network and recipe are those of the task feature-bags."""

    name = "feature-bags"

    def __init__(self, of: BagClassifier, bags: list[Tensor], labels: Tensor, device: torch.device) -> None:
        self.of, self.bags, self.labels, self.device = of, bags, labels, device
        self.num_classes = labels.shape[1]
        self.max_labels = int(labels.sum(dim=1).max())
        self.positions = max(1, round(sum(map(len, bags)) / len(bags)))

    @property
    def parts(self) -> list[list[Tensor]]:
        return [self.bags[start : start + EVAL_BATCH] for start in range(0, len(self.bags), EVAL_BATCH)]

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.bags) // self.of.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        for numbers in torch.randperm(len(self.bags), generator=rng).split(self.of.batch_bags):
            instances, mask = pad_bags([self.bags[number] for number in numbers.tolist()])
            yield Bags(instances, self.labels[numbers], None if bool(mask.all()) else mask).to(self.device)

    def network(self, seed: int) -> Network:
        features, network = self.bags[0].shape[1], self.of.network
        if network is None:
            return InstanceMLP((features, 64, self.num_classes + 1), seed)
        if isinstance(network, str):
            return load_network(network, features, self.num_classes, seed)
        return network(features, self.num_classes, seed)

    def encoder(self, width: int, seed: int) -> Network:
        return InstanceMLP((self.bags[0].shape[1], 64, width), seed)

    def recipe(self) -> Recipe:
        task: Task = tasks().create(self.name, {"table": ""})
        return task.recipe()

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        return ""

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        pass

    def evaluate(self, score: ScoreFunction) -> Evaluation:  # noqa: ARG002
        return Evaluation({})

    def gallery(self) -> Bags:
        raise UsageError("bags of an estimator have no gallery")


def _grouped(index: ArrayLike) -> tuple[NDArray[np.int64], list[int]]:
    """Return the order of rows in which those of a bag follow one another, and the size of each bag."""
    values, first, inverse, counts = np.unique(
        np.asarray(index), return_index=True, return_inverse=True, return_counts=True
    )
    by_first = np.argsort(first, kind="stable")
    rank = np.empty(len(values), np.int64)
    rank[by_first] = np.arange(len(values))
    return np.argsort(rank[inverse.ravel()], kind="stable"), counts[by_first].tolist()
