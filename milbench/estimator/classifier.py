"""`BagClassifier`, the classifier that users of scikit-learn call."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor

from milbench._utils.devices import resolve
from milbench.contracts.loss import Loss
from milbench.contracts.network import Network
from milbench.contracts.recipe import Recipe
from milbench.contracts.validation import validated
from milbench.errors import UsageError, positive
from milbench.estimator.fit_epochs import Fit, FitRules, History, threshold_for
from milbench.estimator.given_loss import (
    are_same_losses,
    arguments_of,
    describe_loss,
    new_loss,
    with_arguments,
)
from milbench.estimator.given_network import described_task, new_network
from milbench.estimator.instance_rows import read_rows, select_columns
from milbench.estimator.label_forms import Bools, LabelForm, learn_labels
from milbench.estimator.prediction import instance_probs, presence_scores
from milbench.estimator.training_bags import Examples, TrainingBags
from milbench.estimator.validation_bags import Numbers, set_bags_aside
from milbench.estimator.weighted_training import Training, check_weighable
from milbench.estimator.weights import Floats, read_sample_weight, weigh_bags
from milbench.evaluation.thresholds import predicted_sets
from milbench.training.training_setup import build_loss

SHOWN_CLASSES = 5
"""How many classes a message lists."""


class BagClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # not typed
    """Learn from bags and their labels which classes are in a bag, as an estimator of scikit-learn.

    It trains a network by a loss, as a cell of a comparison on the task feature-bags does: with the
    same steps, network and recipe. Features are standardised by the training instances. Unless
    `network` is a class or a function, training takes one thread, as the networks of the task are
    small and more threads would only wait for each other.

    Bags are given as a list of arrays (K_i, D) with a row for each instance. An array (B, D) is B
    bags of one instance. If bags are data frames, features are found by the names of columns.

    Labels are given in one of three forms, and predictions have the same form:

    - y (B,) of two values; the smaller value means that the class is not in the bag;
    - zeros and ones (B, C), a column for each class;
    - a list with a collection of classes for each bag.

    In the first form, a string with a semicolon is refused, as tables separate the classes of a bag
    by semicolons. In the third form, any string can be a class.

    Args:
        loss: a name, the path of a file, or a `Loss`. In `set_params` and in searches, `loss__KEY`
            is its parameter KEY.
        network: a network of the task feature-bags, a file, a class, or a function that makes a
            `Network` from (features, classes, seed). `default` is a perceptron for every instance,
            with a hidden layer of 64 units.
        epochs: the largest number of epochs; None: as `recipe` says, by default 40.
        lr: the learning rate; None: as `recipe` says, by default 1e-3.
        batch_bags: the number of bags in a training batch.
        recipe: settings of `milbench.Recipe` that replace those of the task feature-bags, such as
            {"optimizer": "sgd"}.
        threshold: a class is predicted where its presence score is at or above the threshold. None:
            the best threshold for the label sets of the training bags, where each bag counts by its
            weight; if several are equally good, the one nearest to even odds. 0: even odds, as in
            `predict_proba`.
        random_state: the seed of the initial weights, of the order of bags, and of the choice of
            bags that early stopping sets aside.
        device: cpu, cuda, cuda:N, or auto, which is cuda where there is a GPU.
        class_weight: a weight for each bag by its classes, which is multiplied with its
            `sample_weight`. None: 1 for all bags. A dict from classes to weights: the weight of a
            bag is the product of the weights of its classes; a class that is not named, and an
            empty label set, has 1. "balanced": for each class, the bags with it get the same total
            weight as the bags without it, and the weight of a bag is the product over all classes,
            as in scikit-learn. With many classes these products become extreme.
        early_stopping: whether some bags are set aside, and training ends when the share of them
            whose labels are predicted no longer improves. The weights of the best epoch are kept.
        validation_fraction: the share of the bags that early stopping sets aside. Where labels are
            y (B,), it is the share of the bags of each value.
        n_iter_no_change: training ends after more than this number of epochs in a row without
            improvement. None: 10 with early stopping; without it, training does not end early.
            If it is a number without early stopping, the mean loss of an epoch has to improve.
        tol: an epoch is an improvement if it is better than the best epoch by at least `tol`.
        warm_start: whether another `fit` starts from the weights of the last fit, and keeps its
            standardisation of features. Classes, loss and network must be the same. Optimiser,
            learning rate and the count of epochs without improvement start again.
        verbose: whether each epoch prints a line.

    The default schedule lowers the learning rate until the last of all `epochs`, which early
    stopping may not reach: recipe={"schedule": "constant"} suits early stopping better. The default
    recipe scales the gradient of every batch to length 1. The weight of a bag then only matters
    against the other bags of its batch: use larger batches, or recipe={"gradient_norm": "none"}, to
    compare it with more bags.

    After `fit`, `classes_` are the C classes, `network_` and `loss_` the trained network and loss,
    and `threshold_` is the threshold that predictions use. `loss_curve_` has the weighted mean loss
    of the bags in each epoch, `best_loss_` is the smallest of these, and `n_iter_` is the number of
    epochs of the last fit. With early stopping `best_loss_` is None, `validation_scores_` has the
    share of right label sets after each epoch, and `best_validation_score_` is the largest of
    these.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> bags = [rng.normal(size=(rng.integers(2, 6), 3)) for _ in range(60)]
        >>> y = [int(bag[:, 0].max() > 1) for bag in bags]  # whether any first feature is above 1
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
        """Return the parameters; with `deep`, also the parameters of the loss, as `loss__KEY`."""
        params: dict[str, Any] = super().get_params(deep)
        if deep:
            # Where the loss does not exist, it is `fit` that raises the error.
            with suppress(UsageError):
                for key, value in arguments_of(new_loss(self.loss)).items():
                    params[f"loss__{key}"] = value
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters. The parameter KEY of the loss is set as `loss__KEY`."""
        loss_params = {}
        for key in list(params):
            if key.startswith("loss__"):
                loss_params[key.removeprefix("loss__")] = params.pop(key)
        super().set_params(**params)
        if loss_params:
            self.loss = with_arguments(new_loss(self.loss), loss_params)
        return self

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on bags and their labels, in any of the forms that the class describes.

        Args:
            X: the bags.
            y: the labels of the bags.
            sample_weight: (B,), 0 or more, how much each bag counts. In the mean loss of a batch a
                bag of weight 2 counts as two equal bags, and a bag of weight 0 does not count. The
                weights also count when features are standardised and the threshold is chosen.
                None: all bags count the same.

        Raises:
            UsageError: an argument is wrong, or bags have weights and the loss of a bag depends on
                the other bags of its batch.
            FloatingPointError: logits or loss are not finite.
        """
        self._check_settings()
        recipe = self._full_recipe()
        seed = self._choose_seed()
        goes_on = bool(self.warm_start) and hasattr(self, "network_")
        if goes_on:
            # The biases of the head must stay as they were learnt. With "paper", training does not
            # set them to the prior at the start.
            recipe = recipe.model_copy(update={"head_init": "paper"})
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
            loss, network = self._old_parts(bags) if goes_on else self._new_parts(bags)
            if bags.weights is not None:
                check_weighable(loss.to("cpu"), bags.format.num_classes)
            training = Training(bags, recipe, network, loss)
            fit = Fit(training, examples, history, self._fit_rules())
            model = fit.train() if validation is None else fit.train_with_validation(validation)

        self._form = form
        self.classes_ = form.classes
        self.network_ = model.network.eval()
        self.loss_ = model.loss
        self._trained_network = self.network
        self.threshold_ = threshold_for(model, examples, self.threshold)
        self._keep(history)
        return self

    def predict(self, X: Any) -> Any:
        """Return the labels of bags, in the form of the training labels."""
        presence = self._presence(X)
        return self._form.decode(predicted_sets(presence, self.threshold_))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return how far presence scores are above the threshold.

        It is (B, C), or (B,) where y has two values.
        """
        above: NDArray[np.float64] = self._presence(X) - self.threshold_
        return above[:, 0] if self._form.is_binary else above

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (B, C), the probability that each class is in a bag.

        Where y has two values it is (B, 2), the probabilities of the smaller and of the larger
        value. Raises UsageError where the loss has no probabilities.
        """
        probs: NDArray[np.float64] = expit(self._presence(X))
        if not self.loss_.presence_is_log_odds:
            raise UsageError(
                f"{self.loss_.name} has no probabilities: use predict or decision_function"
            )
        if self._form.is_binary:
            return np.concatenate([1 - probs, probs], axis=1)
        return probs

    def predict_instances(self, X: Any) -> list[Any]:
        """Return the labels of the instances of each bag: the most probable class, or background.

        For a bag of K_i instances they depend on the form of the labels y:

        - If y is (B,), they are (K_i,): the larger value for the class, else the smaller value.
        - If y is zeros and ones (B, C), they are (K_i, C), with at most one 1 in each row.
        - If y is collections, they are K_i tuples, each with one class, or empty for background.
        """
        found = []
        for probs in self._instance_probs(X):
            # A label set for each class, and last the empty label set of background.
            label_set_of_class = np.eye(probs.shape[1], dtype=bool)[:, :-1]
            label_sets = label_set_of_class[probs.argmax(axis=1)]
            found.append(self._form.decode(label_sets))
        return found

    def instance_scores(self, X: Any) -> list[NDArray[np.float64]]:
        """Return for each bag the probability that each instance is of each class, by the loss.

        It is (K_i, C), or (K_i,) where y has two values. Raises UsageError where the network has
        another number of positions than there are instances.
        """
        bags = self._instance_probs(X)
        if self._form.is_binary:
            return [probs[:, 0] for probs in bags]
        return [probs[:, :-1] for probs in bags]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of bags whose labels are predicted, 1 - set error."""
        # `predict` first checks that there was a fit: only then `_form` exists.
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
        """Return the instances (N, D) of all bags, and the size of each bag.

        With `reset`, the names and the number of features are learnt, else they are checked.
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

        The features and their scale are learnt, unless training goes on from the last fit.
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
        examples = Examples(self._scaled(rows, sizes), labels, weights)
        training = examples.selected(training_bags)
        validation = examples.selected(validation_bags) if len(validation_bags) else None
        return form, training, validation

    def _scaled(self, rows: NDArray[np.float32], sizes: list[int]) -> list[Tensor]:
        """Return the standardised instances (K_i, D) of bags."""
        return list(torch.from_numpy(self._scaler.transform(rows)).split(sizes))

    def _check_settings(self) -> None:
        """Raise UsageError where a parameter is wrong that does not belong to the recipe."""
        # Called for its check.
        self._batch_size()
        if self.n_iter_no_change is not None:
            positive("n_iter_no_change", self.n_iter_no_change, least=1)
        if not _is_number(self.tol) or not 0 <= self.tol < np.inf:
            raise UsageError(f"tol must be a number, 0 or more, got {self.tol!r}")
        # An infinite threshold is allowed: no class is then predicted.
        threshold = self.threshold
        if threshold is not None and (not _is_number(threshold) or np.isnan(float(threshold))):
            raise UsageError(f"threshold must be a number, not NaN, got {threshold!r}")
        if self.recipe is not None and not isinstance(self.recipe, Mapping):
            raise UsageError(f"recipe must be a dict of settings, got {self.recipe!r}")
        fraction = self.validation_fraction
        if not _is_number(fraction) or not 0 < fraction < 1:
            raise UsageError(
                f"validation_fraction must be a number, above 0 and below 1, got {fraction!r}"
            )

    def _batch_size(self) -> int:
        """Return `batch_bags` as an int. Raises UsageError where it is not a positive number."""
        # A search may set it to an integer of NumPy, which torch does not take.
        return int(positive("batch_bags", self.batch_bags, least=1))

    def _full_recipe(self) -> Recipe:
        """Return the recipe of the task feature-bags with the changes of the user."""
        default: Recipe = described_task().recipe()
        changes = dict(self.recipe or {})
        if self.epochs is not None:
            changes["epochs"] = self.epochs
        if self.lr is not None:
            changes["lr"] = self.lr
        recipe: Recipe = validated("recipe", Recipe, default.model_dump() | changes)
        return recipe

    def _choose_seed(self) -> int:
        """Return `random_state`, or a random integer where it is None or a generator of NumPy."""
        if not isinstance(self.random_state, Integral):
            return int(check_random_state(self.random_state).randint(2**31))
        seed = int(self.random_state)
        if not -(2**63) <= seed < 2**63:
            raise UsageError(f"random_state must be a number of 64 bits, got {seed}")
        return seed

    @contextmanager
    def _repeatable(self, seed: int, device: torch.device) -> Iterator[None]:
        """Seed torch inside the block, and set its number of threads."""
        threads = torch.get_num_threads()
        if not callable(self.network):
            # The networks of the task are small: more threads only wait for each other.
            torch.set_num_threads(1)
        gpus = [device] if device.type == "cuda" else []
        try:
            with torch.random.fork_rng(gpus):
                torch.manual_seed(seed)
                yield
        finally:
            torch.set_num_threads(threads)

    def _split(
        self, labels: Bools, weights: Floats | None, form: LabelForm, seed: int
    ) -> tuple[Numbers, Numbers]:
        """Return the indices of the bags to train on, and of those that early stopping sets aside.

        Bags with the weight 0 are left out.
        """
        numbers = np.arange(len(labels)) if weights is None else np.flatnonzero(weights)
        if not self.early_stopping:
            none = numbers[:0]
            return numbers, none
        # Only labels y (B,) are stratified. There may be so many different label sets that both
        # parts cannot get the same share of each.
        classes = labels[numbers, 0] if form.is_binary else None
        return set_bags_aside(numbers, self.validation_fraction, seed, classes)

    def _new_parts(self, bags: TrainingBags) -> tuple[Loss, Network]:
        """Return a new loss and network."""
        loss = build_loss(new_loss(self.loss), bags, bags.seed)
        network = new_network(self.network, bags.format, loss, bags.seed)
        return loss, network

    def _old_parts(self, bags: TrainingBags) -> tuple[Loss, Network]:
        """Return copies of the loss and network of the last fit."""
        network = copy.deepcopy(self.network_)
        # A loss is built for the bags of this fit, then gets the weights of the last fit.
        loss = build_loss(new_loss(self.loss), bags, bags.seed)
        loss.load_state_dict(self.loss_.state_dict())
        return loss, network

    def _fit_rules(self) -> FitRules:
        """Return those parameters that decide how a fit goes."""
        return FitRules(
            threshold=self.threshold,
            n_iter_no_change=self.n_iter_no_change,
            tol=self.tol,
            verbose=self.verbose,
        )

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
        """Set the attributes that say how training went."""
        self.loss_curve_ = history.losses
        self.best_loss_ = history.best_loss
        self.validation_scores_ = history.scores
        self.best_validation_score_ = history.best_score
        self.n_iter_ = history.epochs

    def _check_it_goes_on(self, form: LabelForm) -> None:
        """Raise UsageError where classes, loss or network differ from the last fit."""
        if not form.agrees_with(self._form):
            before = f"{self._form.kind} with the classes {_listed(self._form.classes)}"
            now = f"{form.kind} with the classes {_listed(form.classes)}"
            raise UsageError(f"warm_start needs the classes of the last fit, {before}; got {now}")
        loss = new_loss(self.loss)
        if not are_same_losses(loss, self.loss_):
            raise UsageError(
                f"warm_start goes on with the loss of the last fit, {describe_loss(self.loss_)}; "
                f"got {describe_loss(loss)}"
            )
        if self.network != self._trained_network:
            raise UsageError(
                f"warm_start goes on with the network of the last fit, {self._trained_network!r}; "
                f"got {self.network!r}"
            )


def _fit_scaler(
    rows: NDArray[np.float32],
    sizes: list[int],
    training_bags: NDArray[np.intp],
    weights: Floats | None,
) -> StandardScaler:
    """Return a scaler that is fitted to the training instances.

    An instance has the weight of its bag.
    """
    is_training = np.zeros(len(sizes), dtype=bool)
    is_training[training_bags] = True
    rows_are_training = np.repeat(is_training, sizes)
    row_weights = None if weights is None else np.repeat(weights, sizes)[rows_are_training]
    # Selecting copies the rows, which may be large, and is not needed where all are selected.
    if not rows_are_training.all():
        rows = rows[rows_are_training]
    return StandardScaler().fit(rows, sample_weight=row_weights)


def _listed(classes: Any) -> str:
    """Return the names of the first SHOWN_CLASSES classes, with … where there are more."""
    names = [str(name) for name in classes]
    listed = ", ".join(names[:SHOWN_CLASSES])
    return f"{listed}, …" if len(names) > SHOWN_CLASSES else listed


def _is_number(value: Any) -> bool:
    """Return whether a value is a number. True and False do not count as numbers."""
    return isinstance(value, Real) and not isinstance(value, bool)
