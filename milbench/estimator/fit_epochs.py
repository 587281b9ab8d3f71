"""The epochs of a fit: when they end, what is noted of each, and which weights are kept."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from milbench.estimator.prediction import presence_scores
from milbench.estimator.training_bags import Examples
from milbench.estimator.weighted_training import Patience, Training, weights_of
from milbench.evaluation.thresholds import EVEN_ODDS, choose_threshold, predicted_sets
from milbench.training.training_setup import Model

PATIENCE = 10
"""How many epochs without improvement early stopping waits for, where nothing else is said."""


@dataclass
class History:
    """How training went over the epochs of one fit, or of all fits of a warm start."""

    losses: list[float] = field(default_factory=list)
    """The mean loss of the training bags in each epoch."""
    best_loss: float | None = None
    scores: list[float] | None = None
    """The share of validation bags whose label sets are right after each epoch; None: there are no such bags."""
    best_score: float | None = None
    epochs: int = 0
    """The number of epochs of the last fit alone."""


@dataclass(frozen=True)
class FitRules:
    """What the parameters of `BagClassifier`, which describes them, say of the epochs of a fit."""

    threshold: float | None
    n_iter_no_change: int | None
    tol: float
    verbose: bool


class Fit:
    """One fit: trains until its last epoch, or until nothing improves, and notes how it goes.

    Args:
        training: the network and loss that are trained.
        examples: the training bags.
        history: how earlier fits went; this one is added to it.
        rules: when it ends.
    """

    def __init__(
        self, training: Training, examples: Examples, history: History, rules: FitRules
    ) -> None:
        self._training = training
        self._examples = examples
        self._history = history
        self._rules = rules

    def train(self) -> Model:
        """Train, and return the model after the last epoch. Training ends where the loss no longer improves."""
        history = self._history
        # Patience waits for larger values, and a loss is better if it is smaller.
        best = None if history.best_loss is None else -history.best_loss
        patience = Patience(best, self._rules.tol, self._rules.n_iter_no_change)
        for line, loss in self._epochs():
            patience.look_at(-loss)
            self._say(line)
            if patience.is_over:
                self._say_why_it_ends(patience)
                break
        history.best_loss = min(history.losses)
        return self._training.model

    def train_with_validation(self, validation: Examples) -> Model:
        """Train, and return the best model by other bags, which may be that of an earlier fit.

        Training ends where the share of these bags whose label sets are right no longer improves.
        """
        history = self._history
        epochs_to_wait = self._rules.n_iter_no_change or PATIENCE
        patience = Patience(history.best_score, self._rules.tol, epochs_to_wait)
        best_weights = weights_of(self._training.model)
        for line, _ in self._epochs():
            score = self._validation_score(validation)
            history.scores = [*(history.scores or []), score]
            is_best = patience.look_at(score)
            if is_best:
                best_weights = weights_of(self._training.model)
            self._say(f"{line}, {score:.4f} of the validation bags are right")
            if patience.is_over:
                self._say_why_it_ends(patience)
                break
        history.best_score = patience.best
        model = self._training.model
        model.load_state_dict(best_weights)
        return model

    def _epochs(self) -> Iterator[tuple[str, float]]:
        """Train epoch by epoch, and yield after each a line on it and its mean loss."""
        epochs = self._training.epochs
        self._history.epochs = 0
        for epoch in range(epochs):
            loss = self._training.train_epoch(epoch)
            self._history.losses.append(loss)
            self._history.epochs += 1
            yield f"epoch {epoch + 1} of {epochs}: loss {loss:.6g}", loss

    def _validation_score(self, validation: Examples) -> float:
        """Return the weighted share of validation bags whose label sets the model predicts."""
        model = self._training.model
        threshold = threshold_for(model, self._examples, self._rules.threshold)
        presence = presence_scores(model.network, model.loss, validation.bags)
        predicted = predicted_sets(presence, threshold)
        is_right = (predicted == validation.labels).all(axis=1)
        return float(np.average(is_right, weights=validation.weights))

    def _say_why_it_ends(self, patience: Patience) -> None:
        waited = patience.without_improvement
        self._say(f"training ends: no better by {self._rules.tol:g} in the last {waited} epochs")

    def _say(self, line: str) -> None:
        if self._rules.verbose:
            print(line, flush=True)


def threshold_for(model: Model, examples: Examples, given: float | None) -> float:
    """Return the threshold that was given, or the best one of a model for the training bags."""
    if given is not None:
        return given
    presence = presence_scores(model.network, model.loss, examples.bags)
    return choose_threshold(
        presence, examples.labels, by="sets", near=EVEN_ODDS, weights=examples.weights
    )
