"""The epochs of a fit: when training ends, what is recorded, and which weights are kept.

A fit is a call of `BagClassifier.fit`. With a warm start it goes on from the weights of the fit
before.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from milbench.estimator.prediction import presence_scores
from milbench.estimator.training_bags import Examples
from milbench.estimator.weighted_training import Patience, Training, weights_of
from milbench.evaluation.thresholds import EVEN_ODDS, choose_threshold, predicted_sets
from milbench.training.training_setup import Model

PATIENCE = 10
"""By default training ends after this many epochs without improvement on validation bags."""


@dataclass
class History:
    """How training went: over the epochs of a fit and, with a warm start, of the fits before it."""

    losses: list[float] = field(default_factory=list)
    """The mean loss of the training bags in each epoch."""
    best_loss: float | None = None
    """The smallest of `losses`; None where validation bags decide which epoch is the best."""
    scores: list[float] | None = None
    """The share of validation bags whose label sets are right, after each epoch.

    None where there are no validation bags.
    """
    best_score: float | None = None
    """The largest of `scores`; None where there are no validation bags."""
    epochs: int = 0
    """The number of epochs of the last fit alone."""


@dataclass(frozen=True)
class FitRules:
    """Those parameters of `BagClassifier` that decide how a fit goes, as described there."""

    threshold: float | None
    n_iter_no_change: int | None
    tol: float
    verbose: bool


class Fit:
    """One fit, which trains until the last epoch or until nothing improves.

    Args:
        training: trains the network and the loss.
        examples: the training bags.
        history: how earlier fits went. The epochs of this fit are added to it.
        rules: the parameters that decide how the fit goes.
    """

    def __init__(
        self, training: Training, examples: Examples, history: History, rules: FitRules
    ) -> None:
        self._training = training
        self._examples = examples
        self._history = history
        self._rules = rules

    def train(self) -> Model:
        """Train, and return the model after the last epoch.

        Training ends early when the mean loss no longer improves, if the rules say so.
        """
        history = self._history
        # For `Patience` larger values are better, so that it is given the negative loss.
        best = None if history.best_loss is None else -history.best_loss
        # Without `n_iter_no_change` training does not end early.
        patience = Patience(best, self._rules.tol, epochs=self._rules.n_iter_no_change)
        for line, loss in self._epochs():
            patience.look_at(-loss)
            self._say(line)
            if patience.is_over:
                self._say_why_it_ends(patience)
                break
        history.best_loss = min(history.losses)
        return self._training.model

    def train_with_validation(self, validation: Examples) -> Model:
        """Train, and return the model with the best score on validation bags.

        The score is the share of these bags whose label sets are right. Training ends when it no
        longer improves. With a warm start, the best model may come from an earlier fit.
        """
        history = self._history
        epochs_to_wait = self._rules.n_iter_no_change or PATIENCE
        patience = Patience(history.best_score, self._rules.tol, epochs=epochs_to_wait)
        # With a warm start it can happen that no epoch of this fit is better than the weights that
        # it begins with.
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
        """Train epoch by epoch. After each epoch, yield a line to print, and its mean loss."""
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
        # Validation bags choose the epoch. The threshold is chosen on training bags.
        threshold = threshold_for(model, self._examples, self._rules.threshold)
        presence = presence_scores(model.network, model.loss, validation.bags)
        predicted = predicted_sets(presence, threshold)
        is_right = (predicted == validation.labels).all(axis=1)
        return float(np.average(is_right, weights=validation.weights))

    def _say_why_it_ends(self, patience: Patience) -> None:
        """Print that training ends early, and why."""
        waited = patience.without_improvement
        self._say(f"training ends: no better by {self._rules.tol:g} in the last {waited} epochs")

    def _say(self, line: str) -> None:
        """Print a line, if the fit is verbose."""
        if self._rules.verbose:
            print(line, flush=True)


def threshold_for(model: Model, examples: Examples, given: float | None) -> float:
    """Return the threshold that the user has given, else the best one on the training bags.

    A class is predicted where its presence score is at least the threshold. Training bags may be
    separated by a wide gap, in which all thresholds are equally good: then it is the one nearest
    to even odds.
    """
    if given is not None:
        return given
    presence = presence_scores(model.network, model.loss, examples.bags)
    return choose_threshold(
        presence, examples.labels, by="sets", near=EVEN_ODDS, weights=examples.weights
    )
