"""An estimator with scikit-learn's conventions: bags and their label sets in, label sets out."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import LabelBinarizer, MultiLabelBinarizer, StandardScaler
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    check_is_fitted,
    check_random_state,
    column_or_1d,
    validate_data,
)
from torch import Tensor

from milbench._utils.devices import resolve
from milbench._utils.words import counted
from milbench.api.bags import Bags, pad_bags
from milbench.api.load import load_loss
from milbench.api.loss import Loss
from milbench.api.network import Network, NetworkMaker
from milbench.api.parameters import check_params
from milbench.api.recipe import Recipe
from milbench.api.registry import tasks
from milbench.api.resolver import add_object, read_edited
from milbench.api.scores import Scores
from milbench.api.task import Task
from milbench.api.validation import validated
from milbench.engine.train import fit
from milbench.errors import UsageError, positive, unknown
from milbench.evaluation.thresholds import EVEN_ODDS, choose_threshold
from milbench.families.fixed_bags import FixedBags
from milbench.networks.instance import InstanceMLP
from milbench.networks.registry import make_network, network_name, networks, takes_encoder

EVAL_BATCH = 64  # bags that are predicted at once


class BagClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # not typed
    """Learn from bags which classes are in a bag, by one loss; with scikit-learn's conventions.

    It is trained as a cell of a comparison on the task feature-bags: by the same loop, network and recipe, on features
    that are standardised by the training instances. Without a network of one's own it takes one thread, since more only
    wait for each other.

    Bags are a list of arrays (K_i, D), a row an instance; an array (B, D) is B bags of one instance. Where they are
    data frames, features go by the names of columns. Labels are y (B,), where the smaller of two values is a bag
    without the class; or label sets, as zeros and ones (B, C) or a list of collections. Predictions have their form.

    Args:
        loss: a name, the path of a file, or a `Loss`; `loss__KEY` in `set_params` and searches is a parameter of it.
        network: a network of the task feature-bags (`default`: a perceptron with a hidden layer of 64 units
            for every instance), a file, a class, or a function (features, classes, seed) -> `Network`.
        epochs: how many epochs are trained; None: as `recipe` says, which is 40.
        lr: the learning rate; None: as `recipe` says, which is 1e-3.
        batch_bags: the number of bags in a training batch.
        recipe: settings of `milbench.Recipe` in place of those of the task feature-bags, such as {"optimizer": "sgd"}.
        threshold: of presence scores, from which on a class is predicted; None: the best one for the training bags, of
            several the nearest to even odds, as in a comparison; 0: even odds, as in `predict_proba`.
        random_state: a seed, of the initial weights and the order of bags.
        device: cpu, cuda, cuda:N, or auto, which is cuda where there is one.

    After `fit`, `classes_` are the C classes, `network_` and `loss_` the trained network and loss, and `threshold_` is
    the one that is used.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> bags = [rng.normal(size=(rng.integers(2, 6), 3)) for _ in range(60)]
        >>> y = [int(bag[:, 0].max() > 1) for bag in bags]  # whether an instance is large
        >>> classifier = BagClassifier(loss="exact").fit(bags[:40], y[:40])
        >>> classifier.predict(bags[40:45])
        array([0, 0, 1, 0, 0])
        >>> classifier.predict_instances(bags[42:44])
        [array([0, 0, 1, 0]), array([0, 0, 0, 0])]
        >>> bool(classifier.score(bags[40:], y[40:]) > 0.8)
        True
    """

    def __init__(
        self,
        loss: str | Loss = "exact",
        *,
        network: str | Callable[..., Network] = "default",
        epochs: int | None = None,
        lr: float | None = None,
        batch_bags: int = 8,
        recipe: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        random_state: Any = 0,
        device: str = "auto",
    ) -> None:
        self.loss, self.network, self.epochs, self.lr = loss, network, epochs, lr
        self.batch_bags, self.recipe, self.threshold = batch_bags, recipe, threshold
        self.random_state, self.device = random_state, device

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; `deep`: those of the loss too, as `loss__KEY`."""
        params: dict[str, Any] = super().get_params(deep)
        if deep:
            with suppress(UsageError):  # of a loss that does not exist `fit` says so
                params |= {
                    f"loss__{key}": value for key, value in _arguments(self._new_loss()).items()
                }
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the loss as `loss__KEY`."""
        loss_params = {
            key.removeprefix("loss__"): params.pop(key)
            for key in [*params]
            if key.startswith("loss__")
        }
        super().set_params(**params)
        if loss_params:
            loss = self._new_loss()
            self.loss = type(loss)(**_arguments(loss, **loss_params))
        return self

    def fit(self, X: Any, y: Any) -> Self:
        """Train on bags and their labels, in any of the forms that the class describes."""
        bags, labels = self._bags(X, reset=True), self._learn_labels(y)
        if len(labels) != len(bags):
            raise UsageError(f"there are {len(bags)} bags and labels of {len(labels)}")
        device, threads, state = resolve(self.device), torch.get_num_threads(), self.random_state
        seed = (
            int(state) if isinstance(state, Integral) else check_random_state(state).randint(2**31)
        )
        task = _TrainingBags(self, bags, labels, device)
        torch.set_num_threads(threads if callable(self.network) else 1)
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                torch.manual_seed(seed)
                loss = self._new_loss().build(task.num_classes, seed)
                network = self._new_network(task, loss, seed)
                self.network_, self.loss_ = fit(task, network, loss, task.recipe(), seed, device)
        finally:
            torch.set_num_threads(threads)
        best = choose_threshold(
            self._presence(bags).cpu().numpy(), labels.cpu().numpy(), by="sets", near=EVEN_ODDS
        )
        self.threshold_ = best if self.threshold is None else self.threshold
        return self

    def predict(self, X: Any) -> Any:
        """Return the labels of bags, in the form of the training labels."""
        above = self.decision_function(X) >= 0  # which checks that there is an encoder
        return self._encoder.inverse_transform(above.astype(int))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return how far presence is above the threshold, (B, C), or (B,) of the class where y has two values."""
        above = self._presence(self._bags(X)).double().numpy() - self.threshold_
        return above[:, 0] if self._is_binary else above

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (B, C), the probability that each class is in a bag; of two values, that of each.

        Raises UsageError where the loss has no probabilities.
        """
        probs = expit(self._presence(self._bags(X)).double().numpy())
        if not self.loss_.presence_is_log_odds:
            raise UsageError(
                f"{self.loss_.name} has no probabilities: use predict or decision_function"
            )
        return np.concatenate([1 - probs, probs], axis=1) if self._is_binary else probs

    def predict_instances(self, X: Any) -> list[Any]:
        """Return the label of each instance, its most probable class or background, in the form of those of bags.

        Every bag has labels (K_i,), of two values that of the class or the other one; or (K_i, C), zeros and at most a
        one; or K_i tuples, of one class or none.
        """
        bags = self._instance_probs(X)
        indicators = np.eye(bags[0].shape[1], dtype=int)[:, :-1]  # of each class, background last
        return [self._encoder.inverse_transform(indicators[probs.argmax(axis=1)]) for probs in bags]

    def instance_scores(self, X: Any) -> list[NDArray[np.float64]]:
        """Return the probability by the loss that an instance is of each class, for every instance.

        Every bag has (K_i, C), or (K_i,) of the class where y has two values. Raises UsageError where the network has
        another number of positions than there are instances.
        """
        return [
            probs[:, 0] if self._is_binary else probs[:, :-1] for probs in self._instance_probs(X)
        ]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of bags whose labels are predicted, 1 - set error."""
        predicted = self.predict(X)
        if isinstance(self._encoder, MultiLabelBinarizer):
            binarizer = MultiLabelBinarizer().fit([*y, *predicted])
            y, predicted = binarizer.transform(y), binarizer.transform(predicted)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def _presence(self, bags: Sequence[Tensor]) -> Tensor:
        """Return the presence scores (B, C) of bags (K_i, D)."""
        return torch.cat([scores.presence.cpu() for scores, _ in self._scores(bags)])

    def _instance_probs(self, X: Any) -> list[NDArray[np.float64]]:
        """Return the probabilities (K_i, C+1) of the classes and of background for the instances of each bag."""
        parts: list[NDArray[np.float64]] = []
        for scores, mask in self._scores(self._bags(X)):
            if scores.instances.shape[2:] != mask.shape[1:]:
                got = tuple(scores.instances.shape[2:])
                raise UsageError(
                    f"the network has {got} positions, expected one for each of {mask.shape[1]} instances"
                )
            probs = scores.instances.cpu().double().movedim(1, 2)
            parts += [bag[bag_mask].numpy() for bag, bag_mask in zip(probs, mask, strict=True)]
        return parts

    @torch.no_grad()
    def _scores(self, bags: Sequence[Tensor]) -> Iterator[tuple[Scores, Tensor]]:
        """Yield the scores of bags (K_i, D), batch by batch, and the mask (B, K) of their instances."""
        device = next(self.network_.parameters()).device
        for start in range(0, len(bags), EVAL_BATCH):
            instances, mask = pad_bags(bags[start : start + EVAL_BATCH])
            batch = Bags(instances, torch.zeros(len(instances), 0, dtype=torch.bool), mask).to(
                device
            )
            yield (
                self.loss_.score(
                    self.network_.logits_of(batch).float(), self.network_.mask_of(batch)
                ),
                mask,
            )

    def _bags(self, X: Any, *, reset: bool = False) -> list[Tensor]:
        """Return the standardised instances (K_i, D) of bags; `reset`: learn how, and what features there are."""
        if not reset:
            check_is_fitted(self)
        X = np.asarray(X) if hasattr(X, "__array__") and not hasattr(X, "shape") else X
        sizes = None
        if (
            not hasattr(X, "shape")
            or len(X.shape) == 3
            or (len(X.shape) == 1 and X.dtype == object)
        ):
            X, sizes = _concatenated([*X])
        if isinstance(X, pd.DataFrame) and not reset and hasattr(self, "feature_names_in_"):
            X = _select_columns(X, self.feature_names_in_)
        rows = validate_data(self, X, reset=reset, dtype=np.float32)
        if reset:
            self._scaler = StandardScaler().fit(rows)
        return [*torch.from_numpy(self._scaler.transform(rows)).split(sizes or 1)]

    def _learn_labels(self, y: Any) -> Tensor:
        """Return label sets (B, C) bool, and keep their classes and their form for predictions."""
        if y is None:
            raise UsageError("BagClassifier requires y to be passed, but the target y is None")
        if _are_collections(y):
            self._encoder, self._is_binary = MultiLabelBinarizer(), False
        else:
            self._encoder, self._is_binary = (
                LabelBinarizer(),
                type_of_target(y) != "multilabel-indicator",
            )
            y = column_or_1d(y, warn=True) if self._is_binary else y
        labels = self._encoder.fit_transform(y)
        self.classes_ = (
            y.columns
            if isinstance(y, pd.DataFrame) and not self._is_binary
            else self._encoder.classes_
        )
        if self._is_binary and len(self.classes_) != 2:
            count = f"y has {counted(len(self.classes_), 'class', 'classes')}, expected two"
            raise UsageError(
                f"{count}. Only binary classification is supported. For more give label sets"
            )
        if not labels.any():
            raise UsageError("all label sets are empty: nothing can be learnt")
        return torch.from_numpy(labels > 0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _new_loss(self) -> Loss:
        if not isinstance(self.loss, str | Loss):
            raise UsageError(
                f"loss must be a name, a file or a Loss, got {type(self.loss).__name__}"
            )
        loss = copy.deepcopy(self.loss) if isinstance(self.loss, Loss) else load_loss(self.loss)
        if loss.takes_target:
            raise UsageError(
                f"BagClassifier trains on label sets; {loss.name} has {loss.supervision} supervision"
            )
        return loss

    def _new_network(self, task: Task, loss: Loss, seed: int) -> Network:
        maker: Any = self.network
        if not isinstance(maker, str):
            if isinstance(maker, torch.nn.Module) or not callable(maker):
                raise UsageError(
                    f"network must be a name, a file, a class or a function, got {type(maker).__name__}"
                )
            if not takes_encoder(maker):
                network = maker(task.inputs, task.num_classes, seed)
                if not isinstance(network, Network):
                    raise UsageError(
                        f"network must return a milbench.Network, got {type(network).__name__}"
                    )
                return network
            maker = add_object(networks(), maker)
        read_edited()
        return make_network(task, network_name(task, maker, loss.head), {}, seed, loss.head)


def _concatenated(bags: list[Any]) -> tuple[Any, list[int]]:
    """Return the rows (N, D) of listed bags, a data frame where bags are, and their sizes. Raises UsageError."""
    if bags and all(isinstance(bag, pd.DataFrame) for bag in bags):
        bags = [_select_columns(bag, bags[0].columns) for bag in bags]
        rows: Any = pd.concat(bags)
    else:
        bags = [np.atleast_2d(np.asarray(bag)) for bag in bags]
        if len({bag.shape[1:] for bag in bags}) != 1 or bags[0].ndim != 2:
            shapes = ", ".join(sorted({str(bag.shape) for bag in bags})[:5]) or "none"
            raise UsageError(
                f"bags must be arrays (K, D) of instances with the same D features, got {shapes}"
            )
        rows = np.concatenate(bags)
    if empty := [number for number, bag in enumerate(bags) if not len(bag)]:
        raise UsageError(f"bag {empty[0]} has no instances: leave it out")
    return rows, [*map(len, bags)]


def _select_columns(frame: pd.DataFrame, columns: Iterable[Any]) -> pd.DataFrame:
    """Return some columns of a data frame by their names. Raises UsageError where one is missing."""
    for name in columns:
        if name not in frame:
            raise unknown("column", str(name), map(str, frame.columns))
    return frame[[*columns]]


def _arguments(loss: Loss, **changes: Any) -> dict[str, Any]:
    """Return all arguments of a loss, some of them changed. Raises UsageError where one is wrong."""
    return check_params(f"loss {loss.name}", type(loss), {**loss.arguments, **changes})


class _TrainingBags(FixedBags):
    """The training bags of a `BagClassifier`; batches, networks and recipe are those of the task feature-bags."""

    name = "feature-bags"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": InstanceMLP}

    def __init__(
        self,
        classifier: BagClassifier,
        bags: Sequence[Tensor],
        labels: Tensor,
        device: torch.device,
    ) -> None:
        self.batch_bags = int(
            positive("batch_bags", classifier.batch_bags, least=1)
        )  # of NumPy, in a search
        self.classifier, self.bags, self.labels, self.device = classifier, bags, labels, device
        self.inputs = bags[0].shape[1]
        self.training_count, self.num_classes = labels.shape
        self.max_labels = int(labels.sum(dim=1).max())
        self.typical_size = (max(1, round(sum(map(len, bags)) / len(bags))),)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG002
        instances, mask = pad_bags([self.bags[number] for number in numbers.tolist()])
        return Bags(instances, self.labels[numbers], None if bool(mask.all()) else mask).to(
            self.device
        )

    def recipe(self) -> Recipe:
        default: Recipe = tasks().create(self.name, {"table": ""}).recipe()
        arguments = {"epochs": self.classifier.epochs, "lr": self.classifier.lr}
        changes = dict(self.classifier.recipe or {}) | {
            k: v for k, v in arguments.items() if v is not None
        }
        recipe: Recipe = validated("recipe", Recipe, default.model_dump() | changes)
        return recipe

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        return ""

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        pass


def _are_collections(y: Any) -> bool:
    """Return whether y is collections of classes; nested lists of zeros and ones are a matrix, as in scikit-learn."""
    kinds = (list, tuple, set, frozenset, np.ndarray)
    if (
        getattr(y, "ndim", 1) != 1
        or not isinstance(y, Iterable)
        or not all(isinstance(item, kinds) for item in y)
    ):
        return False
    try:
        return bool(type_of_target(y) != "multilabel-indicator")
    except ValueError:  # collections of different sizes
        return True
