"""The estimator: scikit-learn's conventions, and every form of bags and labels."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from milbench import BagClassifier, Bags, UsageError
from milbench.losses import LogSumExp, NoisyOr

from .examples import Line, drawn, short

CANNOT = {
    "check_methods_subset_invariance": "networks compute in float32, and its tolerance is 1e-7",
    "check_sample_weight_equivalence_on_dense_data": (
        "repeated bags make more batches, and so more steps"
    ),
}


BAGS, LABELS = drawn(0)
NEW, TRUTH = drawn(1)


class Pooled(Line):
    """It has one position in a bag."""

    def forward(self, instances: torch.Tensor) -> torch.Tensor:
        return super().forward(instances).mean(dim=2, keepdim=True)

    def mask_of(self, bags: Bags) -> None:
        return None


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
    nested, series = short().fit(BAGS, LABELS.tolist()), short().fit(BAGS, pd.Series(names))
    assert np.array_equal(nested.predict(NEW), predicted)
    assert series.predict(NEW) == by_names.predict(NEW)
    even = np.stack([bag[:2] for bag in NEW])
    assert np.array_equal(by_numbers.predict(even), by_numbers.predict([*even]))


def test_one_label_a_bag() -> None:
    two = short().fit(BAGS, np.where(LABELS[:, 0], "yes", "no"))
    assert two.score(NEW, np.where(TRUTH[:, 0], "yes", "no")) > 0.9
    assert two.score(NEW, np.where(TRUTH[:, :1], "yes", "no")) > 0.9  # a column, as of a table
    assert np.array_equal(two.predict(NEW) == "yes", two.decision_function(NEW) >= 0)
    assert np.allclose(
        two.predict_proba(NEW)[:, 1], 1 / (1 + np.exp(-two.decision_function(NEW) - two.threshold_))
    )


def test_scikit_learn_can_copy_validate_and_chain_it() -> None:
    classifier = short(
        loss="noisy-or", random_state=3, batch_bags=np.int64(32)
    )  # as a search by NumPy sets it
    assert clone(classifier).get_params() == classifier.get_params()
    scores = cross_val_score(
        make_pipeline(FunctionTransformer(list), classifier), BAGS, LABELS[:, 0], cv=3
    )
    assert scores.shape == (3,)
    assert scores.mean() > 0.8
    fitted = classifier.fit(BAGS, LABELS)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(
        again.predict_proba(NEW), clone(classifier).fit(BAGS, LABELS).predict_proba(NEW)
    )


def test_a_search_sets_rate_epochs_and_arguments_of_the_loss() -> None:
    y, grid = (
        LABELS[:, 0],
        {"lr": [1e-6, 1e-2], "epochs": [1, 8], "loss__head": ["sigmoid", "softmax"]},
    )
    found = GridSearchCV(short(loss="noisy-or", recipe={"lr": 1.0, "epochs": 99}), grid, cv=2).fit(
        BAGS, y
    )
    assert (found.best_params_["lr"], found.best_params_["epochs"]) == (1e-2, 8), (
        "the settings that learn"
    )
    assert found.best_estimator_.loss_.head == found.best_params_["loss__head"]
    changed = clone(short(loss=LogSumExp(3.0)).set_params(loss__learn=False))
    assert [changed.get_params()[f"loss__{key}"] for key in ("sharpness", "learn")] == [3.0, False]
    assert changed.loss.log_factor is None
    chained = make_pipeline(FunctionTransformer(list), short()).set_params(
        bagclassifier__loss__rule="exact"
    )
    assert chained[-1].loss.rule == "exact"
    with pytest.raises(
        UsageError, match="unknown parameter of loss exact 'rul'; did you mean 'rule'"
    ):
        short().set_params(loss__rul="exact")


@pytest.mark.parametrize("kind", [set, frozenset, np.array, list, tuple])
def test_label_sets_of_any_collection_are_cross_validated(kind: Any) -> None:
    """scikit-learn refuses sequences of sequences where it makes the splitter itself."""
    y = [kind([n for n, has in zip(("owl", "wren"), row, strict=True) if has]) for row in LABELS]
    splitter = KFold(3) if kind in (list, tuple) else 3
    assert cross_val_score(short(), BAGS, y, cv=splitter).mean() > 0.7


def test_instances_have_scores_and_labels_in_the_form_of_bags() -> None:
    """A class occurs where its feature is near 3, and nowhere else."""
    names = [{n for n, has in zip(("owl", "wren"), row, strict=True) if has} for row in LABELS]
    truth = [(bag[:, :2] > 1.5).astype(int) for bag in NEW]
    binary, sets, named = (short().fit(BAGS, y) for y in (LABELS[:, 0], LABELS, names))
    assert (
        np.mean(np.concatenate(binary.predict_instances(NEW)) == np.concatenate(truth)[:, 0]) > 0.95
    )
    assert [found.shape for found in sets.predict_instances(NEW)] == [one.shape for one in truth]
    assert np.mean(np.concatenate(sets.predict_instances(NEW)) == np.concatenate(truth)) > 0.95
    expected = [tuple(np.array(["owl", "wren"])[row > 0]) for row in sets.predict_instances(NEW)[0]]
    assert named.predict_instances(NEW)[0] == expected
    given = torch.tensor(
        (NEW[0] - np.concatenate(BAGS).mean(axis=0)) / np.concatenate(BAGS).std(axis=0)
    ).float()
    with torch.no_grad():
        by_hand = sets.network_(given.unsqueeze(0)).softmax(dim=1)[0, :2].T
    np.testing.assert_allclose(sets.instance_scores(NEW)[0], by_hand, atol=1e-5)
    pooled = short(network=lambda features, classes, seed: Pooled(features, classes)).fit(
        BAGS, LABELS[:, 0]
    )
    with pytest.raises(
        UsageError, match=r"the network has \(1,\) positions, expected one for each of 5 instances"
    ):
        pooled.instance_scores(NEW)


def test_data_frames_go_by_the_names_of_columns() -> None:
    frames = [pd.DataFrame(bag, columns=["x", "y", "z"]) for bag in BAGS]
    mixed = [frames[0], *(frame[["z", "x", "y"]] for frame in frames[1:])]
    fitted = short().fit(mixed, pd.DataFrame(LABELS, columns=["owl", "wren"]))
    assert [*fitted.classes_] == ["owl", "wren"]
    assert np.array_equal(
        fitted.decision_function(frames), short().fit(BAGS, LABELS).decision_function(BAGS)
    )
    others = [frame[["z", "y", "x"]].assign(note="unused") for frame in frames]
    assert np.array_equal(fitted.decision_function(others), fitted.decision_function(frames))
    with pytest.raises(
        UsageError, match=r"unknown column 'x'; did you mean 'x1'\? \(there are: x1, y, z\)"
    ):
        fitted.predict([frame.rename(columns={"x": "x1"}) for frame in frames])


def test_a_loss_and_a_network_may_be_given() -> None:
    loss = NoisyOr("softmax")
    fitted = short(loss=loss, network=lambda features, classes, seed: Line(features, classes)).fit(
        BAGS, LABELS
    )
    assert isinstance(fitted.network_, Line)
    assert fitted.loss_ is not loss
    assert fitted.loss_.head == "softmax"
    assert short(loss="attention", epochs=1).fit(BAGS, LABELS).loss_.num_classes == 2


def test_probabilities_do_not_depend_on_the_threshold() -> None:
    """The best threshold may be infinite, where naming nothing is best."""
    always, never = (
        short(epochs=1, threshold=threshold).fit(BAGS, LABELS) for threshold in (0.0, float("inf"))
    )
    assert np.array_equal(never.predict_proba(NEW), always.predict_proba(NEW))
    assert not never.predict(NEW).any()


def test_scikit_learns_own_checks_pass() -> None:
    """Its arrays of rows are bags of one instance."""
    check_estimator(short(epochs=10, threshold=0.0), expected_failed_checks=CANNOT)


def test_print_shows_what_differs_from_the_defaults() -> None:
    assert repr(BagClassifier()) == "BagClassifier()"
    changed = BagClassifier("noisy-or", tol=0.01, class_weight={"owl": 2.0}, warm_start=True)
    shown = " ".join(repr(changed).split())
    assert shown == (
        "BagClassifier(class_weight={'owl': 2.0}, loss='noisy-or', tol=0.01, warm_start=True)"
    )


def test_every_parameter_is_copied_by_clone() -> None:
    changes: dict[str, Any] = {
        "class_weight": "balanced",
        "early_stopping": True,
        "validation_fraction": 0.3,
        "n_iter_no_change": 5,
        "tol": 0.1,
        "warm_start": True,
        "verbose": True,
    }
    copied = clone(BagClassifier().set_params(**changes)).get_params()
    assert {name: copied[name] for name in changes} == changes


@pytest.mark.parametrize(
    ("params", "bags", "labels", "naming"),
    [
        ({"loss": "exat"}, BAGS, LABELS, "did you mean 'exact'"),
        ({"loss": "count"}, BAGS, LABELS, "trains on label sets; count has count supervision"),
        (
            {"recipe": {"lrr": 1}},
            BAGS,
            LABELS,
            "unknown parameter of recipe 'lrr'; did you mean 'lr'",
        ),
        ({"network": "mpl"}, BAGS, LABELS, "'mpl' is no network for"),
        (
            {},
            [*BAGS[:-1], np.zeros((2, 4))],
            LABELS,
            "instances with the same D features, got (2, 3), (2, 4)",
        ),
        ({}, BAGS[:-1], LABELS, "59 bags and labels of 60"),
        ({}, [bag[:1] for bag in BAGS], LABELS, "no instance for every class"),
        ({}, BAGS, LABELS[:, 0] * 0, "y has 1 class, expected two"),
        ({}, BAGS, LABELS.sum(axis=1), "For more give label sets"),
        ({}, BAGS, [[]] * 60, "all label sets are empty"),
        ({}, [*BAGS[:-1], np.zeros((0, 3))], LABELS, "bag 59 has no instances"),
        (
            {"network": torch.nn.Linear(3, 3)},
            BAGS,
            LABELS,
            "a name, a file, a class or a function, got Linear",
        ),
        ({"batch_bags": 0}, BAGS, LABELS, "batch_bags must be a whole number from 1 on, got 0"),
        (
            {"batch_bags": True},
            BAGS,
            LABELS,
            "batch_bags must be a whole number from 1 on, got True",
        ),
        ({"recipe": {"lr": -1}}, BAGS, LABELS, "recipe: lr = -1"),
        ({"recipe": 5}, BAGS, LABELS, "recipe must be a dict of settings, got 5"),
        ({"threshold": np.nan}, BAGS, LABELS, "threshold must be a number, not NaN, got nan"),
        ({"threshold": "high"}, BAGS, LABELS, "threshold must be a number, not NaN, got 'high'"),
        ({"random_state": 2**70}, BAGS, LABELS, "random_state must be a number of 64 bits"),
    ],
)
def test_a_mistake_is_one_line(params: dict[str, Any], bags: Any, labels: Any, naming: str) -> None:
    with pytest.raises(UsageError) as error:
        short(**params).fit(bags, labels)
    assert naming in str(error.value)
    assert "\n" not in str(error.value)
