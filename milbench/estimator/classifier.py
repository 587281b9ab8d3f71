"""The classifier that users of scikit-learn call."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor

from milbench._utils.devices import resolve
from milbench.contracts.load import load_loss
from milbench.contracts.loss import Loss
from milbench.contracts.network import Network
from milbench.contracts.parameters import check_params, constructor_parameters
from milbench.contracts.problem import BagFormat
from milbench.contracts.recipe import Recipe
from milbench.contracts.registry import tasks
from milbench.contracts.resolver import add_object, reload_edited_plugins
from milbench.contracts.task import Task
from milbench.contracts.validation import validated
from milbench.errors import UsageError, positive
from milbench.estimator.instance_rows import read_rows, select_columns
from milbench.estimator.label_forms import Bools, LabelForm, learn_labels
from milbench.estimator.prediction import instance_probs, presence_scores
from milbench.estimator.training_bags import TASK_NAME, Examples, TrainingBags
from milbench.estimator.weighted_training import Patience, Training, check_weighable, weights_of
from milbench.estimator.weights import Floats, read_sample_weight, weigh_bags
from milbench.evaluation.thresholds import EVEN_ODDS, choose_threshold
from milbench.networks.known_networks import make_network, network_name, networks, takes_encoder
from milbench.training.training_setup import Model, build_loss

PATIENCE = 10
"""How many epochs without improvement early stopping waits for, where nothing else is said."""


@dataclass
class History:
    """How training went over the epochs of one fit, or of all fits of a warm start."""

    losses: list[float] = field(default_factory=list)
    best_loss: float | None = None
    scores: list[float] | None = None
    best_score: float | None = None
    epochs: int = 0
    """Of the last fit alone."""


class BagClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # not typed
    """Learn from bags which classes are in a bag, by one loss; with scikit-learn's conventions.

    It is trained as a cell of a comparison on the task feature-bags: by the same steps, network and
    recipe, on features that are standardised by the training instances. Without a network of one's
    own it takes one thread, since more only wait for each other.

    Bags are a list of arrays (K_i, D), a row an instance; an array (B, D) is B bags of one
    instance. Where they are data frames, features go by the names of columns.

    Labels are y (B,), where the smaller of two values is a bag without the class; or label sets, as
    zeros and ones (B, C) or a list of collections. Predictions have their form. In y (B,) a string
    is one class and must not contain a semicolon, which separates the classes of a bag in tables:
    give several classes as a list for each bag. In such a list any string is a class.

    Args:
        loss: a name, the path of a file, or a `Loss`; `loss__KEY` in `set_params` and searches is a
            parameter of it.
        network: a network of the task feature-bags (`default`: a perceptron with a hidden layer of
            64 units for every instance), a file, a class, or a function (features, classes, seed)
            -> `Network`.
        epochs: how many epochs are trained, at most; None: as `recipe` says, which is 40.
        lr: the learning rate; None: as `recipe` says, which is 1e-3.
        batch_bags: the number of bags in a training batch.
        recipe: settings of `milbench.Recipe` in place of those of the task feature-bags, such as
            {"optimizer": "sgd"}.
        threshold: of presence scores, from which on a class is predicted. None: the best one for
            the training bags, each by its weight, of several the nearest to even odds, as in a
            comparison. 0: even odds, as in `predict_proba`.
        random_state: a seed, of the initial weights, the order of bags, and the bags that early
            stopping sets aside.
        device: cpu, cuda, cuda:N, or auto, which is cuda where there is one.
        class_weight: how much a bag counts by its classes; its `sample_weight` is multiplied with
            this. None: all bags alike. A dict from classes to weights: a bag has the product of the
            weights of its classes, where a class that is not named, and an empty label set, has 1.
            "balanced": for each class the bags with it get the same total weight as those without
            it, and a bag the product over all classes, as in scikit-learn. With many classes these
            products become extreme.
        early_stopping: whether some bags are set aside, and training ends when the share of them
            whose labels are predicted no longer improves. The weights of the best epoch are kept.
        validation_fraction: the share of the bags that early stopping sets aside, of y (B,) the
            same share of both values.
        n_iter_no_change: after more epochs in a row without improvement training ends. None: 10
            with early stopping, and no end without it. A number without early stopping: the mean
            loss of an epoch has to improve.
        tol: an epoch improves where it is better than the best one by `tol`.
        warm_start: whether another `fit` goes on with the weights of the last one, and with its
            standardisation of features. Classes, loss and network must be the same. Optimiser,
            learning rate and the count of epochs without improvement begin anew.
        verbose: whether each epoch prints a line.

    The default schedule lowers the learning rate until the last of all `epochs`, also where
    training ends earlier: recipe={"schedule": "constant"} suits early stopping better. The default
    recipe scales the gradient of every batch to length 1, so that a weight counts against the other
    bags of its batch alone: with larger batches, or recipe={"gradient_norm": "none"}, it counts
    against more.

    After `fit`, `classes_` are the C classes, `network_` and `loss_` the trained network and loss,
    and `threshold_` is the one that is used. `loss_curve_` has the mean loss of the bags in each
    epoch, each by its weight, `best_loss_` is the smallest of these, and `n_iter_` the number of
    epochs of the last fit. With early stopping `validation_scores_` has the share of right label
    sets after each epoch, `best_validation_score_` is the largest, and `best_loss_` is None.

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

    network_: Network
    loss_: Loss

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
        class_weight: Mapping[Any, float] | str | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        tol: float = 1e-4,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.loss = loss
        self.network = network
        self.epochs = epochs
        self.lr = lr
        self.batch_bags = batch_bags
        self.recipe = recipe
        self.threshold = threshold
        self.random_state = random_state
        self.device = device
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; `deep`: those of the loss too, as `loss__KEY`."""
        params: dict[str, Any] = super().get_params(deep)
        if deep:
            # Where the loss does not exist, `fit` says so.
            with suppress(UsageError):
                for key, value in _arguments(self._new_loss()).items():
                    params[f"loss__{key}"] = value
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the loss as `loss__KEY`."""
        loss_params = {}
        for key in list(params):
            if key.startswith("loss__"):
                loss_params[key.removeprefix("loss__")] = params.pop(key)
        super().set_params(**params)
        if loss_params:
            loss = self._new_loss()
            self.loss = type(loss)(**_arguments(loss, **loss_params))
        return self

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on bags and their labels, in any of the forms that the class describes.

        Args:
            X: the bags.
            y: their labels.
            sample_weight: (B,), 0 or more, how much each bag counts: one of weight 2 as two such
                bags in the mean loss of a batch, one of weight 0 as none. Features are standardised
                and the threshold is chosen by them too. None: all bags alike.

        Raises:
            UsageError: an argument is wrong, or bags have weights and the loss of a bag depends on
                its batch.
            FloatingPointError: logits or loss are not finite.
        """
        self._check_settings()
        goes_on = bool(self.warm_start) and hasattr(self, "network_")
        recipe = self._full_recipe()
        if goes_on:
            # To start biases at the prior would undo what the network has learnt.
            recipe = recipe.model_copy(update={"head_init": "paper"})
        seed = self._draw_seed()
        form, examples, validation = self._read_examples(X, y, sample_weight, seed, goes_on=goes_on)
        bags = TrainingBags(
            examples,
            self._batch_size(),
            seed=seed,
            epochs_before=len(self.loss_curve_) if goes_on else 0,
            device=resolve(self.device),
        )
        history = self._history() if goes_on else History()
        with self._repeatable(seed, bags.device):
            training = self._start(bags, recipe, goes_on=goes_on)
            model = self._train(training, history, examples, validation)

        self._form = form
        self.classes_ = form.classes
        self.network_ = model.network.eval()
        self.loss_ = model.loss
        self._trained_network = self.network
        self.threshold_ = self._threshold_for(model, examples)
        self._keep(history)
        return self

    def predict(self, X: Any) -> Any:
        """Return the labels of bags, in the form of the training labels."""
        presence = self._presence(X)
        return self._form.decode(presence >= self.threshold_)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return (B, C), how far presence is above the threshold.

        Where y has two values it is (B,), of the class.
        """
        above: NDArray[np.float64] = self._presence(X) - self.threshold_
        return above[:, 0] if self._form.is_binary else above

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (B, C), the probability that each class is in a bag; of two values, that of each.

        Raises UsageError where the loss has no probabilities.
        """
        probs: NDArray[np.float64] = expit(self._presence(X))
        if not self.loss_.presence_is_log_odds:
            raise UsageError(
                f"{self.loss_.name} has no probabilities: use predict or decision_function"
            )
        return np.concatenate([1 - probs, probs], axis=1) if self._form.is_binary else probs

    def predict_instances(self, X: Any) -> list[Any]:
        """Return the label of each instance, its most probable class or background.

        They have the form of the labels of bags. Every bag has labels (K_i,), of two values that of
        the class or the other one; or (K_i, C), zeros and at most a one; or K_i tuples, of one
        class or none.
        """
        found = []
        for probs in self._instance_probs(X):
            # Background comes last, and has the empty label set.
            label_set_of = np.eye(probs.shape[1], dtype=bool)[:, :-1]
            found.append(self._form.decode(label_set_of[probs.argmax(axis=1)]))
        return found

    def instance_scores(self, X: Any) -> list[NDArray[np.float64]]:
        """Return the probability by the loss that an instance is of each class, for every instance.

        Every bag has (K_i, C), or (K_i,) of the class where y has two values. Raises UsageError
        where the network has another number of positions than there are instances.
        """
        bags = self._instance_probs(X)
        if self._form.is_binary:
            return [probs[:, 0] for probs in bags]
        return [probs[:, :-1] for probs in bags]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of bags whose labels are predicted, 1 - set error."""
        # The form of the labels is known after `predict` has checked that there was a fit.
        predicted = self.predict(X)
        return self._form.accuracy(y, predicted, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _presence(self, X: Any) -> NDArray[np.float64]:
        """Return the presence scores (B, C) of bags."""
        check_is_fitted(self)
        bags = self._scaled(*self._read_rows(X, reset=False))
        return presence_scores(self.network_, self.loss_, bags).astype(np.float64)

    def _instance_probs(self, X: Any) -> list[NDArray[np.float64]]:
        """Return the probabilities (K_i, C+1) of the classes and of background, for each bag."""
        check_is_fitted(self)
        bags = self._scaled(*self._read_rows(X, reset=False))
        return instance_probs(self.network_, self.loss_, bags)

    def _read_rows(self, X: Any, *, reset: bool) -> tuple[NDArray[np.float32], list[int]]:
        """Return the instances (N, D) of bags and the size of each.

        `reset`: learn what features there are.
        """
        rows, sizes = read_rows(X)
        if isinstance(rows, pd.DataFrame) and not reset and hasattr(self, "feature_names_in_"):
            rows = select_columns(rows, self.feature_names_in_)
        checked: NDArray[np.float32] = validate_data(self, rows, reset=reset, dtype=np.float32)
        if sizes is None:
            sizes = [1] * len(checked)
        return checked, sizes

    def _read_examples(
        self, X: Any, y: Any, sample_weight: Any, seed: int, *, goes_on: bool
    ) -> tuple[LabelForm, Examples, Examples | None]:
        """Return the form of the labels, the bags to train on, and those for validation, if any.

        Learn the features and their scale, unless training goes on with those of the last fit.
        """
        rows, sizes = self._read_rows(X, reset=not goes_on)
        form, labels = learn_labels(y)
        if len(labels) != len(sizes):
            raise UsageError(f"there are {len(sizes)} bags and labels of {len(labels)}")
        if goes_on:
            self._check_it_goes_on(form)
        given_weights = read_sample_weight(sample_weight, len(sizes))
        weights = weigh_bags(given_weights, self.class_weight, labels, form)
        training_bags, validation_bags = self._split(labels, weights, form, seed)
        if not labels[training_bags].any():
            raise UsageError(
                "all label sets are empty: nothing can be learnt without a bag that has a class"
            )
        if not goes_on:
            self._scaler = _fit_scaler(rows, sizes, training_bags, given_weights)
        everything = Examples(self._scaled(rows, sizes), labels, weights)
        training = everything.selected(training_bags)
        validation = everything.selected(validation_bags) if len(validation_bags) else None
        return form, training, validation

    def _scaled(self, rows: NDArray[np.float32], sizes: list[int]) -> list[Tensor]:
        """Return the standardised instances (K_i, D) of bags."""
        return list(torch.from_numpy(self._scaler.transform(rows)).split(sizes))

    def _check_settings(self) -> None:
        """Raise UsageError where a parameter that is no setting of the recipe is wrong."""
        self._batch_size()
        if self.n_iter_no_change is not None:
            positive("n_iter_no_change", self.n_iter_no_change, least=1)
        _check_number("tol", self.tol, "0 or more", lambda tol: 0 <= tol < np.inf)
        if self.threshold is not None:
            _check_number("threshold", self.threshold, "not NaN", lambda value: not np.isnan(value))
        if self.recipe is not None and not isinstance(self.recipe, Mapping):
            raise UsageError(f"recipe must be a dict of settings, got {self.recipe!r}")
        fraction = self.validation_fraction
        _check_number(
            "validation_fraction", fraction, "above 0 and below 1", lambda share: 0 < share < 1
        )

    def _batch_size(self) -> int:
        # A search may set a number of NumPy.
        return int(positive("batch_bags", self.batch_bags, least=1))

    def _full_recipe(self) -> Recipe:
        """Return the recipe of the task feature-bags with the changes of the user."""
        default: Recipe = _described_task().recipe()
        changes = dict(self.recipe or {})
        if self.epochs is not None:
            changes["epochs"] = self.epochs
        if self.lr is not None:
            changes["lr"] = self.lr
        recipe: Recipe = validated("recipe", Recipe, default.model_dump() | changes)
        return recipe

    def _draw_seed(self) -> int:
        if isinstance(self.random_state, Integral):
            seed = int(self.random_state)
            if not -(2**63) <= seed < 2**63:
                raise UsageError(f"random_state must be a number of 64 bits, got {seed}")
            return seed
        return int(check_random_state(self.random_state).randint(2**31))

    @contextmanager
    def _repeatable(self, seed: int, device: torch.device) -> Iterator[None]:
        """Seed torch inside the block, and give it as many threads as training takes."""
        threads = torch.get_num_threads()
        if not callable(self.network):
            torch.set_num_threads(1)
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                torch.manual_seed(seed)
                yield
        finally:
            torch.set_num_threads(threads)

    def _split(
        self, labels: Bools, weights: Floats | None, form: LabelForm, seed: int
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the numbers of the bags to train on, and of those that early stopping sets aside.

        Bags without weight are in neither. Only where y has two values are both parts given the same
        share of each.
        """
        numbers = np.arange(len(labels)) if weights is None else np.flatnonzero(weights)
        if not self.early_stopping:
            return numbers, numbers[:0]
        try:
            training, validation = train_test_split(
                numbers,
                test_size=self.validation_fraction,
                random_state=seed % 2**32,
                stratify=labels[numbers, 0] if form.is_binary else None,
            )
        except ValueError as error:
            raise UsageError(f"early_stopping cannot set bags aside: {error}") from None
        if len(validation) < 2:
            raise UsageError(
                f"early_stopping sets {len(validation)} of {len(numbers)} bags aside, expected at "
                "least 2: raise validation_fraction"
            )
        return np.sort(training), np.sort(validation)

    def _start(self, bags: TrainingBags, recipe: Recipe, *, goes_on: bool) -> Training:
        """Return a training of a new network and loss, or of copies of those of the last fit."""
        if goes_on:
            network = copy.deepcopy(self.network_)
            # Built for the bags of this fit, with the weights of the last one.
            loss = build_loss(self._new_loss(), bags, bags.seed)
            loss.load_state_dict(self.loss_.state_dict())
        else:
            loss = build_loss(self._new_loss(), bags, bags.seed)
            network = self._new_network(bags.format, loss, bags.seed)
        if bags.weights is not None:
            check_weighable(loss.to("cpu"), bags.format.num_classes)
        return Training(bags, recipe, network, loss)

    def _train(
        self,
        training: Training,
        history: History,
        examples: Examples,
        validation: Examples | None,
    ) -> Model:
        """Train for all epochs, or until nothing improves, note how it went, and return the model.

        With bags for validation it is the best model by them, which may be that of an earlier fit.
        """
        epochs = training.epochs
        patience = self._patience(history, is_validated=validation is not None)
        best_weights = weights_of(training.model)
        history.epochs = 0
        for epoch in range(epochs):
            loss = training.train_epoch(epoch)
            history.losses.append(loss)
            history.epochs += 1
            line = f"epoch {epoch + 1} of {epochs}: loss {loss:.6g}"
            value = -loss
            if validation is not None:
                value = self._validation_score(training.model, examples, validation)
                line += f", {value:.4f} of the validation bags are right"
                history.scores = [*(history.scores or []), value]
            is_best = patience.look_at(value)
            if is_best and validation is not None:
                best_weights = weights_of(training.model)
            self._say(line)
            if patience.is_over:
                waited = patience.without_improvement
                self._say(f"training ends: no better by {self.tol:g} in the last {waited} epochs")
                break
        model = training.model
        if validation is None:
            history.best_loss = min(history.losses)
            return model
        history.best_score = patience.best
        model.load_state_dict(best_weights)
        return model

    def _patience(self, history: History, *, is_validated: bool) -> Patience:
        if is_validated:
            return Patience(history.best_score, self.tol, self.n_iter_no_change or PATIENCE)
        best = None if history.best_loss is None else -history.best_loss
        return Patience(best, self.tol, self.n_iter_no_change)

    def _validation_score(self, model: Model, examples: Examples, validation: Examples) -> float:
        """Return the weighted share of validation bags whose label sets the model predicts."""
        threshold = self._threshold_for(model, examples)
        presence = presence_scores(model.network, model.loss, validation.bags)
        predicted = presence.astype(np.float64) >= threshold
        is_right = (predicted == validation.labels).all(axis=1)
        return float(np.average(is_right, weights=validation.weights))

    def _threshold_for(self, model: Model, examples: Examples) -> float:
        """Return the threshold that was given, or the best one for the training bags."""
        if self.threshold is not None:
            return self.threshold
        presence = presence_scores(model.network, model.loss, examples.bags)
        return choose_threshold(
            presence, examples.labels, by="sets", near=EVEN_ODDS, weights=examples.weights
        )

    def _say(self, line: str) -> None:
        if self.verbose:
            print(line, flush=True)

    def _history(self) -> History:
        """Return how the earlier fits went, as a copy."""
        scores = self.validation_scores_
        return History(
            losses=list(self.loss_curve_),
            best_loss=self.best_loss_,
            scores=None if scores is None else list(scores),
            best_score=self.best_validation_score_,
        )

    def _keep(self, history: History) -> None:
        self.loss_curve_ = history.losses
        self.best_loss_ = history.best_loss
        self.validation_scores_ = history.scores
        self.best_validation_score_ = history.best_score
        self.n_iter_ = history.epochs

    def _check_it_goes_on(self, form: LabelForm) -> None:
        """Raise UsageError where a warm start would need another network or loss than there is."""
        if not form.agrees_with(self._form):
            before = f"{self._form.kind} with the classes {_listed(self._form.classes)}"
            now = f"{form.kind} with the classes {_listed(form.classes)}"
            raise UsageError(f"warm_start needs the classes of the last fit, {before}; got {now}")
        loss = self._new_loss()
        if not _are_same(loss, self.loss_):
            raise UsageError(
                f"warm_start goes on with the loss of the last fit, {_described(self.loss_)}; "
                f"got {_described(loss)}"
            )
        if self.network != self._trained_network:
            raise UsageError(
                f"warm_start goes on with the network of the last fit, {self._trained_network!r}; "
                f"got {self.network!r}"
            )

    def _new_loss(self) -> Loss:
        if not isinstance(self.loss, str | Loss):
            raise UsageError(
                f"loss must be a name, a file or a Loss, got {type(self.loss).__name__}"
            )
        loss = copy.deepcopy(self.loss) if isinstance(self.loss, Loss) else load_loss(self.loss)
        if loss.takes_target:
            raise UsageError(
                f"BagClassifier trains on label sets; {loss.name} has {loss.supervision} "
                "supervision"
            )
        return loss

    def _new_network(self, bag_format: BagFormat, loss: Loss, seed: int) -> Network:
        maker: Any = self.network
        if not isinstance(maker, str):
            if isinstance(maker, torch.nn.Module) or not callable(maker):
                raise UsageError(
                    "network must be a name, a file, a class or a function, got "
                    f"{type(maker).__name__}"
                )
            if not takes_encoder(maker):
                network = maker(bag_format.inputs, bag_format.num_classes, seed)
                if not isinstance(network, Network):
                    raise UsageError(
                        f"network must return a milbench.Network, got {type(network).__name__}"
                    )
                return network
            maker = add_object(networks(), maker)
        reload_edited_plugins()
        task = _described_task()
        name = network_name(task, maker, loss.head)
        return make_network(task, bag_format, name, {}, seed, loss.head)


def _described_task() -> Task:
    """Return the task whose recipe and networks a classifier has."""
    task: Task = tasks().create(TASK_NAME, {"table": ""})
    return task


def _fit_scaler(
    rows: NDArray[np.float32],
    sizes: list[int],
    training_bags: NDArray[np.intp],
    weights: Floats | None,
) -> StandardScaler:
    """Return a scaler that is fitted on the training instances, each of which has the weight of its bag."""
    is_training = np.zeros(len(sizes), dtype=bool)
    is_training[training_bags] = True
    rows_are_training = np.repeat(is_training, sizes)
    row_weights = None if weights is None else np.repeat(weights, sizes)[rows_are_training]
    if not rows_are_training.all():
        rows = rows[rows_are_training]
    return StandardScaler().fit(rows, sample_weight=row_weights)


def _arguments(loss: Loss, **changes: Any) -> dict[str, Any]:
    """Return all arguments of a loss, some changed. Raises UsageError where one is wrong or not kept."""
    kept = loss.arguments
    arguments = {}
    for name in constructor_parameters(type(loss)):
        if name not in kept and name not in changes:
            raise UsageError(
                f"loss {loss.name} takes {name} and does not keep it: its constructor must set self.{name}, so that "
                "BagClassifier can make the loss again"
            )
        arguments[name] = changes.get(name, kept.get(name))
    return check_params(f"loss {loss.name}", type(loss), arguments | changes)


def _are_same(first: Loss, second: Loss) -> bool:
    """Return whether two losses are of one class and have the same arguments."""
    if type(first) is not type(second):
        return False
    others = _arguments(second)
    # An argument may be an array.
    return all(np.array_equal(value, others[key]) for key, value in _arguments(first).items())


def _described(loss: Loss) -> str:
    """Return a loss with its arguments, in words."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in _arguments(loss).items())
    return f"{loss.name} ({arguments})" if arguments else loss.name


def _listed(classes: Any) -> str:
    """Return the first classes, in words."""
    names = [str(name) for name in classes]
    shown = ", ".join(names[:5])
    return f"{shown}, …" if len(names) > 5 else shown


def _check_number(
    subject: str, value: Any, expected: str, is_right: Callable[[float], bool]
) -> None:
    """Raise UsageError unless a value is a number as expected."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not is_right(float(value)):
        raise UsageError(f"{subject} must be a number, {expected}, got {value!r}")
