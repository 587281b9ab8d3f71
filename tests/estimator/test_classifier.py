"""`BagClassifier`: scikit-learn's conventions, and every form of bags and labels."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from milbench import BagClassifier, Bags, UsageError
from milbench.losses import LogSumExp, NoisyOr

from .examples import NAMES, Line, named, sample_bags, short

# scikit-learn's own checks that are known to fail, and why.
CANNOT = {
    "check_methods_subset_invariance": "networks compute in float32, and its tolerance is 1e-7",
    "check_sample_weight_equivalence_on_dense_data": (
        "repeated bags make more batches, and so more steps"
    ),
}

BAGS, LABELS = sample_bags(0)
NEW, TRUTH = sample_bags(1)


class Pooled(Line):
    """A network with a single position for the whole bag."""

    def forward(self, instances: torch.Tensor) -> torch.Tensor:
        return super().forward(instances).mean(dim=2, keepdim=True)

    def mask_of(self, bags: Bags) -> None:
        return None


def names_of(rows: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """Return rows of zeros and ones as tuples of names, the form of predicted label sets."""
    return [tuple(NAMES[row > 0]) for row in rows]


@pytest.fixture(scope="module")
def by_numbers() -> BagClassifier:
    return short().fit(BAGS, LABELS)


@pytest.fixture(scope="module")
def by_names() -> BagClassifier:
    return short().fit(BAGS, named(LABELS))


def test_it_learns_label_sets(by_numbers: BagClassifier) -> None:
    assert by_numbers.score(NEW, TRUTH) > 0.9


def test_label_sets_of_names_are_predicted_as_names(
    by_numbers: BagClassifier, by_names: BagClassifier
) -> None:
    assert by_names.classes_.tolist() == ["owl", "wren"]
    assert by_names.predict(NEW) == names_of(by_numbers.predict(NEW))


def test_its_own_predictions_have_the_score_1(by_names: BagClassifier) -> None:
    assert by_names.score(NEW, by_names.predict(NEW)) == 1.0


def test_probabilities_do_not_depend_on_the_form_of_labels(
    by_numbers: BagClassifier, by_names: BagClassifier
) -> None:
    probs = by_numbers.predict_proba(NEW)
    assert probs.shape == TRUTH.shape
    assert np.array_equal(probs, by_names.predict_proba(NEW))


def test_lists_of_rows_are_label_sets(by_numbers: BagClassifier) -> None:
    nested = short().fit(BAGS, LABELS.tolist())
    assert np.array_equal(nested.predict(NEW), by_numbers.predict(NEW))


def test_a_series_of_label_sets_is_learnt(by_names: BagClassifier) -> None:
    series = short().fit(BAGS, pd.Series(named(LABELS)))
    assert series.predict(NEW) == by_names.predict(NEW)


def test_bags_of_one_size_may_be_an_array(by_numbers: BagClassifier) -> None:
    even = np.stack([bag[:2] for bag in NEW])
    assert np.array_equal(by_numbers.predict(even), by_numbers.predict(list(even)))


def yes_or_no(is_yes: NDArray[np.int64]) -> NDArray[Any]:
    return np.where(is_yes, "yes", "no")


@pytest.fixture(scope="module")
def of_two_classes() -> BagClassifier:
    return short().fit(BAGS, yes_or_no(LABELS[:, 0]))


@pytest.mark.parametrize(
    "truth",
    [
        pytest.param(yes_or_no(TRUTH[:, 0]), id="a row"),
        pytest.param(yes_or_no(TRUTH[:, :1]), id="a column, as of a table"),
    ],
)
def test_it_learns_one_label_a_bag(of_two_classes: BagClassifier, truth: NDArray[Any]) -> None:
    assert of_two_classes.score(NEW, truth) > 0.9


def test_the_second_class_is_predicted_from_zero_on(of_two_classes: BagClassifier) -> None:
    is_yes = of_two_classes.predict(NEW) == "yes"
    assert np.array_equal(is_yes, of_two_classes.decision_function(NEW) >= 0)


def test_the_probability_is_a_sigmoid_of_the_score(of_two_classes: BagClassifier) -> None:
    log_odds = of_two_classes.decision_function(NEW) + of_two_classes.threshold_
    expected = 1 / (1 + np.exp(-log_odds))
    assert np.allclose(of_two_classes.predict_proba(NEW)[:, 1], expected)


def as_a_search_sets_it() -> BagClassifier:
    """Return a classifier one of whose settings is a number of NumPy."""
    return short(loss="noisy-or", random_state=3, batch_bags=np.int64(32))


def test_scikit_learn_can_copy_it() -> None:
    classifier = as_a_search_sets_it()
    assert clone(classifier).get_params() == classifier.get_params()


def test_scikit_learn_can_chain_and_validate_it() -> None:
    chain = make_pipeline(FunctionTransformer(list), as_a_search_sets_it())
    scores = cross_val_score(chain, BAGS, LABELS[:, 0], cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.8


def test_a_pickled_classifier_predicts_as_one_fitted_again() -> None:
    fitted = as_a_search_sets_it().fit(BAGS, LABELS)
    unpickled = pickle.loads(pickle.dumps(fitted))
    fitted_again = clone(fitted).fit(BAGS, LABELS)
    assert np.array_equal(unpickled.predict_proba(NEW), fitted_again.predict_proba(NEW))


def test_a_search_finds_the_settings_that_learn() -> None:
    grid = {"lr": [1e-6, 1e-2], "epochs": [1, 8], "loss__head": ["sigmoid", "softmax"]}
    classifier = short(loss="noisy-or", recipe={"lr": 1.0, "epochs": 99})
    found = GridSearchCV(classifier, grid, cv=2).fit(BAGS, LABELS[:, 0])
    assert found.best_params_["lr"] == 1e-2
    assert found.best_params_["epochs"] == 8
    assert found.best_estimator_.loss_.head == found.best_params_["loss__head"]


def test_arguments_of_a_loss_are_parameters() -> None:
    classifier = clone(short(loss=LogSumExp(3.0)).set_params(loss__learn=False))
    params = classifier.get_params()
    assert params["loss__sharpness"] == 3.0
    assert params["loss__learn"] is False
    assert classifier.loss.log_factor is None


def test_arguments_of_a_loss_are_set_through_a_chain() -> None:
    chain = make_pipeline(FunctionTransformer(list), short())
    chain.set_params(bagclassifier__loss__rule="exact")
    assert chain[-1].loss.rule == "exact"


def test_an_argument_of_a_loss_that_is_misspelt_is_named() -> None:
    with pytest.raises(
        UsageError, match="unknown parameter of loss exact 'rul'; did you mean 'rule'"
    ):
        short().set_params(loss__rul="exact")


@pytest.mark.parametrize("kind", [set, frozenset, np.array, list, tuple])
def test_label_sets_of_any_collection_are_cross_validated(kind: Any) -> None:
    labels = [kind(names) for names in named(LABELS)]
    # scikit-learn refuses sequences of sequences where it makes the splitter itself.
    splitter = KFold(3) if kind in (list, tuple) else 3
    assert cross_val_score(short(), BAGS, labels, cv=splitter).mean() > 0.7


TRUE_INSTANCES = [(bag[:, :2] > 1.5).astype(int) for bag in NEW]
"""A class occurs where its feature is near 3, and nowhere else."""


def test_instances_of_two_classes_are_found() -> None:
    classifier = short().fit(BAGS, LABELS[:, 0])
    found = np.concatenate(classifier.predict_instances(NEW))
    truth = np.concatenate(TRUE_INSTANCES)[:, 0]
    assert np.mean(found == truth) > 0.95


def test_instances_of_label_sets_are_found(by_numbers: BagClassifier) -> None:
    found = by_numbers.predict_instances(NEW)
    assert [one.shape for one in found] == [one.shape for one in TRUE_INSTANCES]
    assert np.mean(np.concatenate(found) == np.concatenate(TRUE_INSTANCES)) > 0.95


def test_instances_have_labels_in_the_form_of_bags(
    by_numbers: BagClassifier, by_names: BagClassifier
) -> None:
    expected = names_of(by_numbers.predict_instances(NEW)[0])
    assert by_names.predict_instances(NEW)[0] == expected


def test_scores_of_instances_agree_with_the_network(by_numbers: BagClassifier) -> None:
    training = np.concatenate(BAGS)
    first = (NEW[0] - training.mean(axis=0)) / training.std(axis=0)
    given = torch.tensor(first).float().unsqueeze(0)
    with torch.no_grad():
        probs = by_numbers.network_(given).softmax(dim=1)
    # Background is left out, and each instance has a row.
    by_hand = probs[0, :2].T
    np.testing.assert_allclose(by_numbers.instance_scores(NEW)[0], by_hand, atol=1e-5)


def test_a_network_without_a_position_an_instance_has_no_scores() -> None:
    classifier = short(network=lambda features, classes, seed: Pooled(features, classes))
    classifier.fit(BAGS, LABELS[:, 0])
    with pytest.raises(
        UsageError, match=r"the network has \(1,\) positions, expected one for each of 5 instances"
    ):
        classifier.instance_scores(NEW)


FRAMES = [pd.DataFrame(bag, columns=["x", "y", "z"]) for bag in BAGS]


@pytest.fixture(scope="module")
def of_frames() -> BagClassifier:
    """Return a classifier that was fitted on data frames.

    All frames but the first have their columns in another order.
    """
    mixed = [FRAMES[0], *(frame[["z", "x", "y"]] for frame in FRAMES[1:])]
    return short().fit(mixed, pd.DataFrame(LABELS, columns=["owl", "wren"]))


def test_the_columns_of_labels_are_the_names_of_classes(of_frames: BagClassifier) -> None:
    assert of_frames.classes_.tolist() == ["owl", "wren"]


def test_training_goes_by_the_names_of_columns(
    of_frames: BagClassifier, by_numbers: BagClassifier
) -> None:
    assert np.array_equal(of_frames.decision_function(FRAMES), by_numbers.decision_function(BAGS))


def test_predictions_go_by_the_names_of_columns(of_frames: BagClassifier) -> None:
    others = [frame[["z", "y", "x"]].assign(note="unused") for frame in FRAMES]
    expected = of_frames.decision_function(FRAMES)
    assert np.array_equal(of_frames.decision_function(others), expected)


def test_a_column_that_is_missing_is_named(of_frames: BagClassifier) -> None:
    renamed = [frame.rename(columns={"x": "x1"}) for frame in FRAMES]
    with pytest.raises(
        UsageError, match=r"unknown column 'x'; did you mean 'x1'\? \(there are: x1, y, z\)"
    ):
        of_frames.predict(renamed)


def test_a_network_may_be_given() -> None:
    classifier = short(network=lambda features, classes, seed: Line(features, classes))
    assert isinstance(classifier.fit(BAGS, LABELS).network_, Line)


def test_a_loss_that_is_given_is_copied_and_not_trained() -> None:
    loss = NoisyOr("softmax")
    fitted = short(loss=loss).fit(BAGS, LABELS)
    assert fitted.loss_ is not loss
    assert fitted.loss_.head == "softmax"


def test_a_loss_is_built_for_the_number_of_classes() -> None:
    assert short(loss="attention", epochs=1).fit(BAGS, LABELS).loss_.num_classes == 2


def test_an_infinite_threshold_names_nothing_and_changes_no_probability() -> None:
    # An infinite threshold may be chosen: it is the best where naming nothing errs least.
    always = short(epochs=1, threshold=0.0).fit(BAGS, LABELS)
    never = short(epochs=1, threshold=float("inf")).fit(BAGS, LABELS)
    assert not never.predict(NEW).any()
    assert np.array_equal(never.predict_proba(NEW), always.predict_proba(NEW))


def test_scikit_learns_own_checks_pass() -> None:
    # These checks give matrices, whose rows are taken for bags of one instance.
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
    # All other parameters have their defaults.
    assert copied == BagClassifier().get_params() | changes


@pytest.mark.parametrize(
    ("params", "naming"),
    [
        pytest.param({"loss": "exat"}, "did you mean 'exact'", id="loss misspelt"),
        pytest.param(
            {"loss": "count"},
            "trains on label sets; count has count supervision",
            id="loss of other supervision",
        ),
        pytest.param(
            {"loss": 5}, "loss must be a name, a file or a Loss, got int", id="loss of a number"
        ),
        pytest.param(
            {"recipe": {"lrr": 1}},
            "unknown parameter of recipe 'lrr'; did you mean 'lr'",
            id="setting misspelt",
        ),
        pytest.param({"recipe": {"lr": -1}}, "recipe: lr = -1", id="setting out of range"),
        pytest.param({"recipe": 5}, "recipe must be a dict of settings, got 5", id="no settings"),
        pytest.param({"network": "mpl"}, "'mpl' is no network for", id="network misspelt"),
        pytest.param(
            {"network": torch.nn.Linear(3, 3)},
            "a name, a file, a class or a function, got Linear",
            id="module as network",
        ),
        pytest.param(
            {"network": lambda features, classes, seed: "net"},
            "network must return a milbench.Network, got str",
            id="function that makes no network",
        ),
        pytest.param(
            {"batch_bags": 0}, "batch_bags must be a whole number from 1 on, got 0", id="no bags"
        ),
        pytest.param(
            {"batch_bags": True},
            "batch_bags must be a whole number from 1 on, got True",
            id="truth value as number",
        ),
        pytest.param(
            {"threshold": np.nan}, "threshold must be a number, not NaN, got nan", id="NaN"
        ),
        pytest.param(
            {"threshold": "high"},
            "threshold must be a number, not NaN, got 'high'",
            id="threshold in words",
        ),
        pytest.param(
            {"random_state": 2**70}, "random_state must be a number of 64 bits", id="large seed"
        ),
    ],
)
def test_a_wrong_parameter_is_reported_in_one_line(params: dict[str, Any], naming: str) -> None:
    with pytest.raises(UsageError) as error:
        short(**params).fit(BAGS, LABELS)
    assert naming in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("bags", "labels", "naming"),
    [
        pytest.param(
            [*BAGS[:-1], np.zeros((2, 4))],
            LABELS,
            "instances with the same D features, got (2, 3), (2, 4)",
            id="other features",
        ),
        pytest.param(BAGS[:-1], LABELS, "59 bags and labels of 60", id="a bag too few"),
        pytest.param(
            [bag[:1] for bag in BAGS], LABELS, "no instance for every class", id="small bags"
        ),
        pytest.param(
            [*BAGS[:-1], np.zeros((0, 3))], LABELS, "bag 59 has no instances", id="an empty bag"
        ),
        pytest.param(BAGS, np.zeros(60, int), "y has 1 class, expected two", id="one class"),
        pytest.param(BAGS, LABELS.sum(axis=1), "For more give label sets", id="three classes"),
        pytest.param(BAGS, [[]] * 60, "all label sets are empty", id="empty label sets"),
    ],
)
def test_wrong_bags_or_labels_are_reported_in_one_line(bags: Any, labels: Any, naming: str) -> None:
    with pytest.raises(UsageError) as error:
        short().fit(bags, labels)
    assert naming in str(error.value)
    assert "\n" not in str(error.value)
