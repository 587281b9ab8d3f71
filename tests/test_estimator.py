"""The estimator: scikit-learn's conventions, every form of bags and labels, and the training of a cell."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from milbench import BagClassifier, Network, UsageError
from milbench.losses import NoisyOr

CANNOT = {"check_methods_subset_invariance": "networks compute in float32, and its tolerance is 1e-7"}


def drawn(seed: int, count: int = 60) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Return bags of three features and label sets (B, 2): class c occurs where feature c of an instance is large."""
    rng = np.random.default_rng(seed)
    bags, labels = [], np.zeros((count, 2), np.int64)
    for bag in range(count):
        kinds = rng.integers(0, 4, rng.integers(2, 6))  # 2 and 3: background
        bags.append(0.3 * rng.normal(size=(len(kinds), 3)) + 3 * np.eye(4)[kinds][:, :3] * (kinds < 2)[:, None])
        labels[bag, [k for k in kinds if k < 2]] = 1
    return bags, labels


BAGS, LABELS = drawn(0)
NEW, TRUTH = drawn(1)


def short(**params: Any) -> BagClassifier:
    settings: dict[str, Any] = {"epochs": 8, "recipe": {"lr": 1e-2}, "device": "cpu"}
    return BagClassifier(**settings | params)


def test_it_learns_label_sets_in_the_form_in_which_they_are_given() -> None:
    names = [[n for n, has in zip(("owl", "wren"), row, strict=True) if has] for row in LABELS]
    by_numbers, by_names = short().fit(BAGS, LABELS), short().fit(BAGS, names)
    assert by_numbers.score(NEW, TRUTH) > 0.9
    predicted = by_numbers.predict(NEW)
    assert by_names.predict(NEW) == [tuple(np.array(["owl", "wren"])[row > 0]) for row in predicted]
    assert by_names.score(NEW, by_names.predict(NEW)) == 1.0
    assert np.array_equal(by_numbers.predict_proba(NEW), by_names.predict_proba(NEW))
    assert by_numbers.predict_proba(NEW).shape == TRUTH.shape
    assert by_names.classes_.tolist() == ["owl", "wren"]
    nested = short(epochs=1).fit(BAGS, LABELS.tolist())
    assert np.array_equal(nested.predict(NEW), short(epochs=1).fit(BAGS, LABELS).predict(NEW))
    series = short(epochs=1).fit(BAGS, pd.Series(names))
    assert series.predict(NEW) == short(epochs=1).fit(BAGS, names).predict(NEW)


def test_one_label_a_bag() -> None:
    two = short().fit(BAGS, np.where(LABELS[:, 0], "yes", "no"))
    assert two.score(NEW, np.where(TRUTH[:, 0], "yes", "no")) > 0.9
    assert two.score(NEW, np.where(TRUTH[:, :1], "yes", "no")) > 0.9  # a column, as of a table
    assert np.array_equal(two.predict(NEW) == "yes", two.decision_function(NEW) >= 0)
    assert np.allclose(two.predict_proba(NEW)[:, 1], 1 / (1 + np.exp(-two.decision_function(NEW) - two.threshold_)))


def test_bags_may_be_rows_with_an_index_or_arrays_of_one_size() -> None:
    listed = short(epochs=2).fit(BAGS, LABELS)
    index = np.repeat([f"bag {7 * i % 60}" for i in range(60)], [len(bag) for bag in BAGS])
    order = np.random.default_rng(0).permutation(len(index))
    first = list(dict.fromkeys(index[order]))
    numbers = [next(i for i in range(60) if f"bag {7 * i % 60}" == name) for name in first]
    indexed = short(epochs=2).fit(np.concatenate(BAGS)[order], LABELS[numbers], index=index[order])
    assert indexed.n_features_in_ == 3
    assert np.array_equal(listed.predict(BAGS), listed.predict(np.concatenate(BAGS), index=index))
    assert set(indexed.predict(np.concatenate(BAGS)[order], index=index[order]).ravel()) <= {0, 1}
    with pytest.raises(UsageError, match=f"index must name the bag of each of the {len(index)} rows"):
        short().fit(np.concatenate(BAGS), LABELS, index=index[:-1])
    even = np.stack([bag[:2] for bag in BAGS])
    assert np.array_equal(listed.predict(even), listed.predict([*even]))


def test_scikit_learn_can_copy_validate_and_chain_it() -> None:
    classifier = short(loss="noisy-or", random_state=3)
    assert clone(classifier).get_params() == classifier.get_params()
    scores = cross_val_score(make_pipeline(FunctionTransformer(list), classifier), BAGS, LABELS[:, 0], cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.8
    fitted = classifier.fit(BAGS, LABELS)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(NEW), clone(classifier).fit(BAGS, LABELS).predict_proba(NEW))


def test_a_loss_and_a_network_may_be_given() -> None:
    class Line(Network):
        def __init__(self, features: int, classes: int) -> None:
            super().__init__()
            self.head = torch.nn.Linear(features, classes + 1)

        def forward(self, instances: torch.Tensor) -> torch.Tensor:
            fitted: torch.Tensor = self.head(instances).transpose(1, 2)
            return fitted

    loss = NoisyOr("softmax")
    fitted = short(loss=loss, network=lambda features, classes, seed: Line(features, classes)).fit(BAGS, LABELS)
    assert isinstance(fitted.network_, Line)
    assert fitted.loss_ is not loss
    assert fitted.loss_.head == "softmax"
    assert short(loss="attention", epochs=1).fit(BAGS, LABELS).loss_.num_classes == 2


def test_probabilities_do_not_depend_on_the_threshold() -> None:
    """The best threshold may be infinite, where naming nothing is best."""
    always, never = (short(epochs=1, threshold=threshold).fit(BAGS, LABELS) for threshold in (0.0, float("inf")))
    assert np.array_equal(never.predict_proba(NEW), always.predict_proba(NEW))
    assert not never.predict(NEW).any()


def test_scikit_learns_own_checks_pass() -> None:
    """Its arrays of rows are bags of one instance."""
    check_estimator(short(epochs=10, threshold=0.0), expected_failed_checks=CANNOT)


@pytest.mark.parametrize(
    ("params", "bags", "labels", "naming"),
    [
        ({"loss": "exat"}, BAGS, LABELS, "did you mean 'exact'"),
        ({"loss": "count"}, BAGS, LABELS, "trains on label sets; count has count supervision"),
        ({"recipe": {"lrr": 1}}, BAGS, LABELS, "unknown parameter of recipe 'lrr'; did you mean 'lr'"),
        ({"network": "mpl"}, BAGS, LABELS, "unknown network 'mpl'"),
        ({}, [*BAGS[:-1], np.zeros((2, 4))], LABELS, "instances with the same D features, got (2, 3), (2, 4)"),
        ({}, BAGS[:-1], LABELS, "59 bags and labels of 60"),
        ({}, [bag[:1] for bag in BAGS], LABELS, "no instance for every class"),
        ({}, BAGS, LABELS[:, 0] * 0, "y has one class, 0: nothing can be learnt"),
        ({}, BAGS, LABELS.sum(axis=1), "For more give label sets"),
        ({}, BAGS, [[]] * 60, "all label sets are empty"),
        ({}, [*BAGS[:-1], np.zeros((0, 3))], LABELS, "bag 59 has no instances"),
        (
            {"network": torch.nn.Linear(3, 3)},
            BAGS,
            LABELS,
            "must be a name, a file, a class or a function, got Linear",
        ),
        ({"batch_bags": 0}, BAGS, LABELS, "batch_bags must be a whole number from 1 on, got 0"),
        ({"recipe": {"lr": -1}}, BAGS, LABELS, "recipe: lr = -1"),
    ],
)
def test_a_mistake_is_one_line(params: dict[str, Any], bags: Any, labels: Any, naming: str) -> None:
    with pytest.raises(UsageError) as error:
        short(**params).fit(bags, labels)
    assert naming in str(error.value)
    assert "\n" not in str(error.value)
