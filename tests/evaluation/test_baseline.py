"""The baseline of extra trees on pooled features, against direct calls of scikit-learn."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from milbench.contracts.predictions import Bools, Floats
from milbench.evaluation.baseline import baseline_metrics, class_probabilities, fit_trees, pool

SEED = 3


def sample_bags(count: int, classes: int, seed: int) -> tuple[Floats, Bools]:
    """Return pooled features whose first columns say, with some noise, which classes there are."""
    rng = np.random.default_rng(seed)
    labels = rng.random((count, classes)) < 0.4
    features = rng.normal(size=(count, classes + 3))
    features[:, :classes] += 1.5 * labels
    return features.astype(np.float32), labels


def test_a_bag_is_mean_largest_and_smallest_of_each_feature() -> None:
    bag = np.array([[1, 10], [2, -4], [6, 0]], np.float32)
    assert pool(bag).tolist() == [3, 2, 6, 10, 1, -4]


def test_without_validation_bags_even_odds_decide() -> None:
    features, labels = sample_bags(60, 3, seed=0)
    tested, truth = sample_bags(40, 3, seed=1)
    splits = {"calibration": (features, labels), "test": (tested, truth)}
    found = baseline_metrics((features, labels), splits, SEED)
    trees = ExtraTreesClassifier(n_estimators=100, random_state=SEED).fit(features, labels)
    votes = np.stack([of_class[:, 1] for of_class in trees.predict_proba(tested)], axis=1)
    wrong = (votes >= 0.5) != truth
    assert found["test/pooled_trees_set_error"] == pytest.approx(wrong.any(axis=1).mean())
    assert found["test/pooled_trees_label_error"] == pytest.approx(wrong.mean())


def test_validation_bags_choose_a_threshold_that_suits_them() -> None:
    features, labels = sample_bags(60, 3, seed=0)
    validation, _ = sample_bags(20, 3, seed=2)
    # Every class is in every bag, except for one class in one bag, which is easy to tell. Only a
    # low threshold suits these bags.
    all_but_one = np.ones((20, 3), bool)
    all_but_one[0, 0] = False
    validation[0, 0] = -9
    splits = {"validation": (validation, all_but_one), "test": (validation, all_but_one)}
    found = baseline_metrics((features, labels), splits, SEED)
    votes = class_probabilities(fit_trees(features, labels, SEED), validation)
    even_odds_error = ((votes >= 0.5) != all_but_one).any(axis=1).mean()
    assert found["test/pooled_trees_set_error"] < even_odds_error


def test_votes_for_one_class_agree_with_scikit_learn() -> None:
    features, labels = sample_bags(50, 1, seed=4)
    tested, _ = sample_bags(20, 1, seed=5)
    trees = ExtraTreesClassifier(n_estimators=100, random_state=SEED).fit(features, labels[:, 0])
    votes = class_probabilities(fit_trees(features, labels, SEED), tested)
    np.testing.assert_array_equal(votes, trees.predict_proba(tested)[:, 1:])


def test_a_class_of_all_training_bags_is_always_voted_for() -> None:
    features, labels = sample_bags(30, 3, seed=6)
    labels[:, 1] = True
    labels[:, 2] = False
    votes = class_probabilities(fit_trees(features, labels, SEED), features)
    assert (votes[:, 1] == 1).all()
    assert (votes[:, 2] == 0).all()


def test_one_class_of_all_training_bags_is_always_voted_for() -> None:
    features, _ = sample_bags(30, 1, seed=6)
    trees = fit_trees(features, np.ones((30, 1), bool), SEED)
    assert (class_probabilities(trees, features) == 1).all()


def test_a_seed_gives_the_same_numbers_twice() -> None:
    training = sample_bags(40, 2, seed=7)
    tested = sample_bags(30, 2, seed=8)
    splits = {"validation": tested, "test": tested}
    first = baseline_metrics(training, splits, SEED)
    second = baseline_metrics(training, splits, SEED)
    assert first == second
