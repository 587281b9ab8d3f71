"""An estimator with scikit-learn's conventions: bags and their label sets in, label sets out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import LabelBinarizer, MultiLabelBinarizer, StandardScaler
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, check_random_state, column_or_1d, validate_data
from torch import Tensor

from milbench._utils.devices import resolve
from milbench.api.bags import Bags, pad_bags
from milbench.api.load import load_loss
from milbench.api.loss import Loss
from milbench.api.network import Network, NetworkMaker
from milbench.api.recipe import Recipe
from milbench.api.registry import tasks
from milbench.api.resolver import add_object, read_edited
from milbench.api.task import Task
from milbench.api.validation import validated
from milbench.engine.train import fit
from milbench.errors import UsageError, positive
from milbench.evaluation.evaluate import EVEN_ODDS
from milbench.evaluation.metrics import best_threshold
from milbench.families.fixed_bags import FixedBags
from milbench.networks.instance import InstanceMLP
from milbench.networks.registry import make_network, network_name, networks, pools

EVAL_BATCH = 64  # bags that are predicted at once


class BagClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # not typed
    """Learn from bags which classes are in a bag, by one loss; with scikit-learn's conventions.

    It is trained as a cell of a comparison on the task feature-bags is: by the same loop, network and recipe, on
    features that are standardised by the training instances. Without a network of one's own it takes one thread, since
    more only wait for each other.

    Bags are a list of arrays (K_i, D), a row an instance; or an array (N, D) with `index`, the bag of each row, in the
    order in which bags first occur. An array (B, D) without `index` is B bags of one instance. Labels are y (B,), where
    the smaller of two values is a bag without the class; or label sets, as zeros and ones (B, C) or a list of
    collections. Predictions have the form of the labels.

    Args:
        loss: a name, the path of a file, or a `Loss`.
        network: the name of a network for the task feature-bags, `default` for a perceptron with one hidden layer of 64
            units for every instance; a file, a class, or a function from the number of features, that of classes and a
            seed to a `Network`.
        epochs: how many epochs are trained.
        batch_bags: the number of bags in a training batch.
        recipe: settings of `milbench.Recipe` in place of those of the task feature-bags, such as {"lr": 1e-2}.
        threshold: of presence scores, from which on a class is predicted; None: the best one for the training bags, and
            of those as good the nearest to even odds, as in a comparison; 0: even odds, as `predict_proba` has them.
        random_state: a seed, of the initial weights and the order of bags.
        device: cpu, cuda, cuda:N, or auto, which is cuda where there is one.

    Attributes:
        classes_: (C,) the classes.
        network_: the trained network.
        loss_: the loss, with its weights where it has any.
        threshold_: the one that is used.

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
        network: str | Callable[..., Network] = "default",
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
        rows, sizes = self._instances(X, index, reset=True)
        labels = self._learn_labels(y)
        if len(labels) != len(sizes):
            raise UsageError(f"there are {len(sizes)} bags and labels of {len(labels)}")
        self._scaler = StandardScaler().fit(rows)
        bags = self._standardised(rows, sizes)
        device, threads = resolve(self.device), torch.get_num_threads()
        random_state = self.random_state
        seed = (
            int(random_state) if isinstance(random_state, Integral) else check_random_state(random_state).randint(2**31)
        )
        task = _TrainingBags(self, bags, labels, device)
        torch.set_num_threads(threads if callable(self.network) else 1)
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                torch.manual_seed(seed)
                loss = self._new_loss().build(task.num_classes, seed)
                fitted = fit(task, self._new_network(task, loss, seed), loss, task.recipe(), seed, device)
        finally:
            torch.set_num_threads(threads)
        self.network_, self.loss_ = fitted
        best = best_threshold(self._presence(bags), labels, EVEN_ODDS)
        self.threshold_ = best if self.threshold is None else self.threshold
        return self

    def predict(self, X: Any, index: ArrayLike | None = None) -> Any:
        """Return the labels of bags, in the form of those that were trained on."""
        present = self.decision_function(X, index) >= 0
        return self._encoder.inverse_transform(present.astype(int))

    def decision_function(self, X: Any, index: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return how far presence is above the threshold, (B, C), or (B,) of the class where y has two values."""
        above = self._scored(X, index) - self.threshold_
        return above[:, 0] if self._is_binary else above

    def predict_proba(self, X: Any, index: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return (B, C), the probability that each class is in a bag; of two values, that of each.

        Raises:
            UsageError: the loss has no probabilities.
        """
        probs = expit(self._scored(X, index))
        if not self.loss_.presence_is_log_odds:
            raise UsageError(f"{self.loss_.name} has no probabilities: use predict or decision_function")
        return np.concatenate([1 - probs, probs], axis=1) if self._is_binary else probs

    def score(self, X: Any, y: Any, sample_weight: Any = None, index: ArrayLike | None = None) -> float:
        """Return the share of bags whose labels are predicted, 1 - set error."""
        predicted = self.predict(X, index)
        if isinstance(self._encoder, MultiLabelBinarizer):
            binarizer = MultiLabelBinarizer().fit([*y, *predicted])
            y, predicted = binarizer.transform(y), binarizer.transform(predicted)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def _scored(self, X: Any, index: ArrayLike | None) -> NDArray[np.float64]:
        check_is_fitted(self)
        scores: NDArray[np.float64] = (
            self._presence(self._standardised(*self._instances(X, index, reset=False))).double().numpy()
        )
        return scores

    @torch.no_grad()
    def _presence(self, bags: Sequence[Tensor]) -> Tensor:
        """Return the presence scores (B, C) of bags (K_i, D)."""
        device = next(self.network_.parameters()).device
        presence = []
        for start in range(0, len(bags), EVAL_BATCH):
            instances, mask = pad_bags(bags[start : start + EVAL_BATCH])
            batch = Bags(instances, torch.zeros(len(instances), 0, dtype=torch.bool), mask).to(device)
            logits = self.network_.logits_of(batch).float()
            presence.append(self.loss_.score(logits, self.network_.mask_of(batch)).presence.cpu())
        return torch.cat(presence)

    def _instances(self, X: Any, index: ArrayLike | None, *, reset: bool) -> tuple[NDArray[np.float32], list[int]]:
        """Return the instances (N, D) of all bags, one bag after another, and the size of each."""
        X = np.asarray(X) if hasattr(X, "__array__") and not hasattr(X, "shape") else X
        bag_of = None
        if index is not None:
            bag_of, _ = pd.factorize(column_or_1d(index))  # by first occurrence; -1 where it is missing
        elif not hasattr(X, "shape") or len(X.shape) == 3 or (len(X.shape) == 1 and X.dtype == object):
            bags = [np.atleast_2d(np.asarray(bag)) for bag in X]
            if len({bag.shape[1:] for bag in bags}) != 1 or bags[0].ndim != 2:
                given = ", ".join(sorted({str(bag.shape) for bag in bags})[:5]) or "none"
                raise UsageError(f"bags must be arrays (K, D) of instances with the same D features, got {given}")
            if empty := [number for number, bag in enumerate(bags) if not len(bag)]:
                raise UsageError(f"bag {empty[0]} has no instances: leave it out")
            X, bag_of = np.concatenate(bags), np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
        rows = validate_data(self, X, reset=reset, dtype=np.float32)
        if bag_of is None:
            bag_of = np.arange(len(rows))
        if len(bag_of) != len(rows) or (bag_of < 0).any():
            named = (bag_of >= 0).sum()
            raise UsageError(f"index must name the bag of each of the {len(rows)} rows, got {named} names")
        return rows[np.argsort(bag_of, kind="stable")], np.bincount(bag_of).tolist()

    def _standardised(self, rows: NDArray[np.float32], sizes: list[int]) -> list[Tensor]:
        return [*torch.from_numpy(self._scaler.transform(rows)).split(sizes)]

    def _learn_labels(self, y: Any) -> Tensor:
        """Return label sets (B, C) bool, and remember which classes they have and in which form they were given."""
        if y is None:
            raise UsageError("BagClassifier requires y to be passed, but the target y is None")
        if _are_collections(y):
            self._encoder, self._is_binary = MultiLabelBinarizer(), False
        else:
            self._encoder, self._is_binary = LabelBinarizer(), type_of_target(y) != "multilabel-indicator"
            y = column_or_1d(y, warn=True) if self._is_binary else y
        labels = self._encoder.fit_transform(y)
        self.classes_ = self._encoder.classes_
        if self._is_binary and len(self.classes_) != 2:
            if len(self.classes_) < 2:
                raise UsageError(f"y has one class, {self.classes_[0]}: nothing can be learnt")
            problem = f"y has {len(self.classes_)} classes"
            raise UsageError(f"{problem}. Only binary classification is supported. For more give label sets")
        if not labels.any():
            raise UsageError("all label sets are empty: nothing can be learnt")
        return torch.from_numpy(labels > 0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _new_loss(self) -> Loss:
        loss = copy.deepcopy(self.loss) if isinstance(self.loss, Loss) else load_loss(self.loss)
        if loss.takes_target:
            raise UsageError(f"BagClassifier trains on label sets; {loss.name} has {loss.supervision} supervision")
        return loss

    def _new_network(self, task: Task, loss: Loss, seed: int) -> Network:
        maker = self.network
        if callable(maker) and not isinstance(maker, torch.nn.Module) and not pools(maker):
            network: object = maker(task.inputs, task.num_classes, seed)
            if not isinstance(network, Network):
                raise UsageError(f"network must return a milbench.Network, got {type(network).__name__}")
            return network
        if callable(maker) and not isinstance(maker, torch.nn.Module):
            maker = add_object(networks(), maker)
        if not isinstance(maker, str):
            raise UsageError(f"network must be a name, a file, a class or a function, got {type(maker).__name__}")
        read_edited(networks())
        name = network_name(task, maker, loss.head)
        return make_network(task, name, {}, seed, loss.head)


class _TrainingBags(FixedBags):
    """The training bags of a `BagClassifier`; batches, networks and recipe are those of the task feature-bags."""

    name = "feature-bags"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": InstanceMLP}

    def __init__(self, classifier: BagClassifier, bags: Sequence[Tensor], labels: Tensor, device: torch.device) -> None:
        self.batch_bags = positive("batch_bags", classifier.batch_bags, least=1)
        self.classifier, self.bags, self.labels, self.device = classifier, bags, labels, device
        self.inputs = bags[0].shape[1]
        self.training_count, self.num_classes = labels.shape
        self.max_labels = int(labels.sum(dim=1).max())
        self.typical_size = (max(1, round(sum(map(len, bags)) / len(bags))),)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG002
        instances, mask = pad_bags([self.bags[number] for number in numbers.tolist()])
        return Bags(instances, self.labels[numbers], None if bool(mask.all()) else mask).to(self.device)

    def recipe(self) -> Recipe:
        default: Recipe = tasks().create(self.name, {"table": ""}).recipe()
        settings = {"epochs": self.classifier.epochs, **(self.classifier.recipe or {})}
        recipe: Recipe = validated("recipe", Recipe, default.model_dump() | settings)
        return recipe

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        return ""

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        pass


def _are_collections(y: Any) -> bool:
    """Return whether y is collections of classes; nested lists of zeros and ones are a matrix, as in scikit-learn."""
    kinds = (list, tuple, set, frozenset, np.ndarray)
    if getattr(y, "ndim", 1) != 1 or not isinstance(y, Iterable) or not all(isinstance(item, kinds) for item in y):
        return False
    try:
        return bool(type_of_target(y) != "multilabel-indicator")
    except ValueError:  # collections of different sizes
        return True
