"""The training of `BagClassifier`: loss curve, early stopping and warm start.

Expected values come from plain loops and from scikit-learn's MLPClassifier.
"""

import pickle
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPClassifier

from milbench import BagClassifier, Recipe, UsageError
from milbench.contracts.registry import RegistryEntry
from milbench.estimator.weighted_training import Patience
from milbench.losses import Exact, NoisyOr
from milbench.optimizers.known_optimizers import optimizers

from .examples import SGD, Line, named, sample_bags, short, standardised

BAGS, LABELS = sample_bags(0)
NEW, TRUTH = sample_bags(1)
WEIGHTS = np.random.default_rng(2).uniform(0.1, 3, len(BAGS))
STILL: dict[str, Any] = {"recipe": SGD, "lr": 1e-12, "network": Line}
"""With these settings no weight moves."""
CONSTANT = {"lr": 1e-2, "schedule": "constant"}


class Watched(Line):
    """A network that counts the bags that it is trained on."""

    bags_trained_on = 0

    def forward(self, instances: torch.Tensor) -> torch.Tensor:
        if self.training:
            Watched.bags_trained_on += len(instances)
        return super().forward(instances)


def bag_losses(weights: Any = None) -> list[float]:
    """Return the loss of each bag by the untrained network `Line`."""
    network = Line(3, 2)
    found = []
    for bag, labels in zip(standardised(BAGS, weights), LABELS, strict=True):
        logits = network(bag.unsqueeze(0))
        found.append(Exact()(logits, torch.from_numpy(labels).bool().unsqueeze(0)).item())
    return found


def epochs_by_a_loop(values: list[float], tol: float, patience: int) -> int:
    """Return after how many epochs training ends, where larger values are better."""
    best = -np.inf
    without_improvement = 0
    for epoch, value in enumerate(values, 1):
        if value >= best + tol:
            without_improvement = 0
        else:
            without_improvement += 1
        best = max(best, value)
        if without_improvement > patience:
            return epoch
    return len(values)


def test_the_loss_curve_is_the_mean_over_bags() -> None:
    # The last batch of an epoch is smaller than the others.
    fitted = short(**STILL, epochs=2, batch_bags=7).fit(BAGS, LABELS)
    mean = np.mean(bag_losses())
    np.testing.assert_allclose(fitted.loss_curve_, [mean, mean], rtol=1e-5)


def test_the_loss_curve_counts_bags_by_their_weights() -> None:
    fitted = short(**STILL, epochs=1, batch_bags=7).fit(BAGS, LABELS, sample_weight=WEIGHTS)
    expected = np.average(bag_losses(WEIGHTS), weights=WEIGHTS)
    np.testing.assert_allclose(fitted.loss_curve_, [expected], rtol=1e-5)


def test_without_early_stopping_all_epochs_are_trained() -> None:
    fitted = short(**STILL, epochs=30).fit(BAGS, LABELS)
    assert fitted.n_iter_ == 30
    assert fitted.best_loss_ == min(fitted.loss_curve_)
    assert fitted.validation_scores_ is None


def test_training_ends_where_the_loss_stands_still() -> None:
    fitted = short(**STILL, epochs=30, n_iter_no_change=3).fit(BAGS, LABELS)
    # The first epoch counts as an improvement. Training ends when more than three epochs have not
    # improved, which is after four more.
    assert fitted.n_iter_ == 1 + 4


def test_verbose_prints_a_line_for_each_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    fitted = short(epochs=3, verbose=True).fit(BAGS, LABELS)
    first, second, third = fitted.loss_curve_
    assert capsys.readouterr().out.splitlines() == [
        f"epoch 1 of 3: loss {first:.6g}",
        f"epoch 2 of 3: loss {second:.6g}",
        f"epoch 3 of 3: loss {third:.6g}",
    ]


def test_verbose_says_why_training_ends(capsys: pytest.CaptureFixture[str]) -> None:
    short(**STILL, epochs=30, n_iter_no_change=3, verbose=True).fit(BAGS, LABELS)
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line == "training ends: no better by 0.0001 in the last 4 epochs"


def test_a_fit_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    short(epochs=1, early_stopping=True).fit(BAGS, LABELS)
    assert capsys.readouterr().out == ""


def trained_by_scikit_learn(*, early_stopping: bool) -> MLPClassifier:
    """Return scikit-learn's network, trained until 4 epochs bring no improvement of 0.01."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 5))
    y = rng.integers(0, 2, 200)
    settings: dict[str, Any] = {"n_iter_no_change": 4, "tol": 1e-2, "random_state": 0}
    reference = MLPClassifier(early_stopping=early_stopping, max_iter=500, **settings)
    with warnings.catch_warnings(action="ignore"):
        return reference.fit(features, y)


def assert_ends_as(reference: MLPClassifier, values: Iterable[float]) -> None:
    """Assert that patience ends at the last value of the reference, and not before."""
    patience = Patience(best=None, tol=1e-2, epochs=4)
    ends = []
    for value in values:
        patience.look_at(value)
        ends.append(patience.is_over)
    assert len(ends) == reference.n_iter_
    assert reference.n_iter_ < reference.max_iter
    assert ends == [False] * (len(ends) - 1) + [True]


def test_epochs_without_a_better_score_are_counted_as_by_scikit_learn() -> None:
    reference = trained_by_scikit_learn(early_stopping=True)
    assert_ends_as(reference, reference.validation_scores_)


def test_epochs_without_a_smaller_loss_are_counted_as_by_scikit_learn() -> None:
    reference = trained_by_scikit_learn(early_stopping=False)
    assert_ends_as(reference, -np.array(reference.loss_curve_))


def test_early_stopping_ends_where_the_validation_score_stands_still() -> None:
    settings: dict[str, Any] = {"epochs": 60, "n_iter_no_change": 4, "tol": 0.01}
    fitted = short(**settings, recipe=CONSTANT, early_stopping=True, validation_fraction=0.3)
    fitted.fit(BAGS, LABELS)
    scores = fitted.validation_scores_
    assert scores is not None
    assert fitted.n_iter_ < 60
    assert fitted.n_iter_ == epochs_by_a_loop(scores, 0.01, 4)
    assert len(scores) == len(fitted.loss_curve_) == fitted.n_iter_
    assert fitted.best_validation_score_ == max(scores)


def test_early_stopping_keeps_the_weights_of_the_best_epoch() -> None:
    settings: dict[str, Any] = {"recipe": CONSTANT, "early_stopping": True}
    stopped = short(**settings, epochs=30).fit(BAGS, LABELS)
    scores = stopped.validation_scores_
    assert scores is not None
    best_epoch = scores.index(max(scores)) + 1
    assert best_epoch < stopped.n_iter_
    # A training that ends with this epoch has the same weights.
    ended = short(**settings, epochs=best_epoch).fit(BAGS, LABELS)
    assert np.array_equal(stopped.decision_function(NEW), ended.decision_function(NEW))


def test_bags_for_validation_are_not_trained_on() -> None:
    Watched.bags_trained_on = 0
    fitted = short(network=Watched, epochs=2, early_stopping=True, validation_fraction=0.25)
    fitted.fit(BAGS, LABELS)
    # In each of two epochs, three quarters of the 60 bags are trained on.
    assert Watched.bags_trained_on == 2 * 45


FOUR_OF_FORTY = [1] * 4 + [0] * 36
"""Labels of forty bags. A quarter of them with the same share of both labels has one with a 1."""


def never_predicting() -> BagClassifier:
    """Return a classifier that never predicts the class, and sets a quarter of the bags aside."""
    return short(threshold=np.inf, early_stopping=True, validation_fraction=0.25)


def test_bags_of_both_labels_are_set_aside() -> None:
    never = never_predicting().fit(BAGS[:40], FOUR_OF_FORTY)
    # Of ten bags, the nine without the class are right.
    assert never.best_validation_score_ == 9 / 10


def test_the_validation_score_counts_bags_by_their_weights() -> None:
    weights = [3.0] * 4 + [1.0] * 36
    never = never_predicting().fit(BAGS[:40], FOUR_OF_FORTY, sample_weight=weights)
    # Nine bags of weight 1 are right, and one of weight 3 is wrong.
    assert never.best_validation_score_ == 9 / 12


def plain_sgd(model: torch.nn.Module, recipe: Recipe, seed: int) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=recipe.lr)


def test_two_fits_with_a_warm_start_are_one_long_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # A fit begins with a new optimiser. So this one, which has no memory of its steps, is needed
    # for equal results.
    entry = RegistryEntry("plain-sgd", "here", lambda: plain_sgd, __name__)
    monkeypatch.setitem(optimizers().entries, "plain-sgd", entry)
    recipe = SGD | {"optimizer": "plain-sgd"}
    settings: dict[str, Any] = {"recipe": recipe, "lr": 0.1, "loss": "attention"}
    warm = short(**settings, epochs=3, warm_start=True).fit(BAGS, LABELS)
    warm.set_params(epochs=4).fit(BAGS, LABELS)
    long = short(**settings, epochs=7).fit(BAGS, LABELS)
    assert np.array_equal(warm.decision_function(NEW), long.decision_function(NEW))
    assert warm.loss_curve_ == long.loss_curve_
    assert warm.n_iter_ == 4
    assert long.n_iter_ == 7


def test_a_warm_start_keeps_the_standardisation() -> None:
    warm = short(**STILL, epochs=1, warm_start=True).fit(BAGS, LABELS)
    before = warm.decision_function(NEW) + warm.threshold_
    warm.fit([100 * bag for bag in BAGS], LABELS)
    np.testing.assert_allclose(warm.decision_function(NEW) + warm.threshold_, before, atol=1e-5)


def test_without_a_warm_start_another_fit_starts_from_the_beginning() -> None:
    fitted_twice = short().fit(NEW, TRUTH).fit(BAGS, LABELS)
    fitted_once = short().fit(BAGS, LABELS)
    assert np.array_equal(fitted_twice.decision_function(NEW), fitted_once.decision_function(NEW))
    assert fitted_twice.loss_curve_ == fitted_once.loss_curve_


@pytest.mark.parametrize(
    ("changes", "y", "naming"),
    [
        pytest.param(
            {},
            LABELS[:, 0],
            "zeros and ones with the classes 0, 1; got one label a bag",
            id="one label a bag",
        ),
        pytest.param(
            {},
            LABELS[:, [0, 1, 1]],
            "0, 1; got zeros and ones with the classes 0, 1, 2",
            id="another number of classes",
        ),
        pytest.param(
            {},
            named(LABELS),
            "got collections of classes with the classes owl, wren",
            id="names of classes",
        ),
        pytest.param(
            {"loss": "noisy-or"},
            LABELS,
            "got noisy-or (head='sigmoid', weight=None, pos_weight=None)",
            id="another loss",
        ),
        pytest.param(
            {"loss": Exact(rule="exact")},
            LABELS,
            "got exact (divide_by='none', rule='exact'",
            id="another argument of the loss",
        ),
        pytest.param(
            {"network": Line},
            LABELS,
            "the network of the last fit, 'default'; got",
            id="another network",
        ),
    ],
)
def test_a_warm_start_with_something_else_is_reported_in_one_line(
    changes: dict[str, Any], y: Any, naming: str
) -> None:
    classifier = short(epochs=1, warm_start=True).fit(BAGS, LABELS).set_params(**changes)
    with pytest.raises(UsageError) as error:
        classifier.fit(BAGS, y)
    assert naming in str(error.value)
    assert "\n" not in str(error.value)


def test_a_fitted_classifier_with_everything_is_pickled() -> None:
    classifier = short(
        early_stopping=True, warm_start=True, class_weight="balanced", loss=NoisyOr("softmax")
    )
    fitted = classifier.fit(BAGS, LABELS, sample_weight=WEIGHTS)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(NEW), fitted.predict_proba(NEW))
    assert again.fit(BAGS, LABELS).n_iter_ > 0


@pytest.mark.parametrize(
    ("params", "naming"),
    [
        pytest.param({"tol": -1.0}, "tol must be a number, 0 or more, got -1.0", id="tol below 0"),
        pytest.param(
            {"tol": "small"}, "tol must be a number, 0 or more, got 'small'", id="tol in words"
        ),
        pytest.param(
            {"n_iter_no_change": 0},
            "n_iter_no_change must be a whole number from 1 on, got 0",
            id="no epoch to wait for",
        ),
        pytest.param(
            {"validation_fraction": 1.0},
            "validation_fraction must be a number, above 0 and below 1",
            id="all bags set aside",
        ),
        pytest.param(
            {"validation_fraction": 0.001},
            "sets 1 of 60 bags aside, expected at least 2",
            id="too few bags set aside",
        ),
        pytest.param(
            {"validation_fraction": 0.999},
            "early_stopping cannot set bags aside",
            id="no bag left to train on",
        ),
    ],
)
def test_a_wrong_setting_is_reported_in_one_line(params: dict[str, Any], naming: str) -> None:
    with pytest.raises(UsageError) as error:
        short(early_stopping=True, **params).fit(BAGS, LABELS)
    assert naming in str(error.value)
    assert "\n" not in str(error.value)


def test_a_warm_start_balances_by_the_new_bags() -> None:
    classifier = short(loss=NoisyOr(pos_weight="balanced"), epochs=1, warm_start=True)
    classifier.fit(BAGS, LABELS)
    # All bags without class 0, and a single bag with it.
    has_class_0 = LABELS[:, 0] == 1
    selected = [*np.flatnonzero(~has_class_0), has_class_0.argmax()]
    labels = torch.from_numpy(LABELS[selected])
    classifier.fit([BAGS[bag] for bag in selected], LABELS[selected])
    present = labels.sum(dim=0)
    absent = len(labels) - present
    by_hand = NoisyOr(pos_weight=(absent / present).tolist())
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(len(labels), labels.shape[1] + 1, 2, generator=rng)
    torch.testing.assert_close(classifier.loss_(logits, labels), by_hand(logits, labels))


def test_balanced_classes_and_weights_of_bags_go_together() -> None:
    classifier = short(loss=NoisyOr(pos_weight="balanced"), epochs=1)
    classifier.fit(BAGS, LABELS, sample_weight=WEIGHTS)
    assert np.isfinite(classifier.loss_curve_).all()


class Forgetful(NoisyOr):
    """A loss that does not keep its argument in an attribute of the same name."""

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        self.other_name = margin


def test_an_argument_that_a_loss_does_not_keep_is_named() -> None:
    with pytest.raises(UsageError, match=r"takes margin and does not keep it: .* self\.margin"):
        short(loss=Forgetful()).set_params(loss__margins=2.0)
