"""Weights of bags and classes, against repeated bags, bags left out, and scikit-learn's weights."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.class_weight import compute_sample_weight
from torch.nn.utils import parameters_to_vector

from milbench import UsageError, load_loss
from milbench.contracts.registry import losses
from milbench.estimator.label_forms import learn_labels
from milbench.estimator.weighted_training import check_weighable
from milbench.estimator.weights import Floats, weigh_bags

from .examples import NAMES, SGD, named, sample_bags, short

BAGS, LABELS = sample_bags(0)
NEW, TRUTH = sample_bags(1)
OF_LABEL_SETS = [name for name in losses().names() if not load_loss(name).takes_target]
TIMES = np.random.default_rng(2).integers(0, 4, len(BAGS))
"""How often each bag is repeated, or the weight that it has instead; for some bags 0."""


def class_weights(class_weight: Any, y: Any, sample_weight: Floats | None = None) -> Any:
    """Return the weights of bags by their classes."""
    form, labels = learn_labels(y)
    return weigh_bags(sample_weight, class_weight, labels, form)


def repeated_bags() -> list[NDArray[np.float64]]:
    """Return each bag as often as TIMES says."""
    bags = []
    for bag, times in zip(BAGS, TIMES, strict=True):
        bags += [bag] * int(times)
    return bags


@pytest.mark.parametrize("loss", ["exact", "noisy-or", "max-pooling", "attention"])
def test_a_weight_of_two_is_the_bag_twice(loss: str) -> None:
    # All bags are in one batch, and each step is the gradient times the learning rate.
    settings: dict[str, Any] = {"loss": loss, "recipe": SGD, "lr": 0.1, "batch_bags": 1000}
    repeated = short(**settings).fit(repeated_bags(), LABELS.repeat(TIMES, axis=0))
    weighted = short(**settings).fit(BAGS, LABELS, sample_weight=TIMES)
    expected = parameters_to_vector(repeated.network_.parameters()).detach()
    found = parameters_to_vector(weighted.network_.parameters()).detach()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_, rtol=1e-5)


def test_bags_of_weight_zero_have_no_influence() -> None:
    is_kept = TIMES > 0
    weights = np.where(is_kept, 0.5, 0.0)
    with_nonsense = []
    kept = []
    for bag, keep in zip(BAGS, is_kept, strict=True):
        if keep:
            kept.append(bag)
            with_nonsense.append(bag)
        else:
            with_nonsense.append(bag + 1e6)
    weighted = short().fit(with_nonsense, LABELS, sample_weight=weights)
    left_out = short().fit(kept, LABELS[is_kept])
    found = weighted.decision_function(NEW)
    np.testing.assert_allclose(found, left_out.decision_function(NEW), atol=1e-4)


def test_the_unit_of_weights_does_not_matter() -> None:
    settings: dict[str, Any] = {"recipe": SGD, "lr": 0.1}
    one = short(**settings).fit(BAGS, LABELS, sample_weight=TIMES)
    other = short(**settings).fit(BAGS, LABELS, sample_weight=1000 * TIMES)
    np.testing.assert_allclose(one.predict_proba(NEW), other.predict_proba(NEW), atol=1e-5)


@pytest.mark.parametrize("heavy", [0, 1])
def test_the_threshold_follows_the_weights(heavy: int) -> None:
    # Of 40 bags with equal features half have the class. All 40 get the same prediction, which the
    # heavier half decides.
    undecided = np.ones((1, 1))
    without_class = np.zeros((1, 1))
    bags = [undecided] * 40 + [without_class] * 20
    y = np.array([1, 0] * 20 + [0] * 20)
    weights = np.where(y == heavy, 9.0, 1.0)
    fitted = short().fit(bags, y, sample_weight=weights)
    assert fitted.predict([undecided]) == [heavy]


@pytest.mark.parametrize(
    "y",
    [pytest.param(LABELS, id="label sets"), pytest.param(LABELS[:, 0], id="one label a bag")],
)
def test_balanced_weights_agree_with_scikit_learn(y: NDArray[np.int64]) -> None:
    expected = compute_sample_weight("balanced", y)
    np.testing.assert_allclose(class_weights("balanced", y), expected)


def test_balanced_weights_count_weighted_bags_as_repeated_ones() -> None:
    expected = compute_sample_weight("balanced", LABELS.repeat(TIMES, axis=0))
    weights = class_weights("balanced", LABELS, TIMES.astype(float))
    is_kept = TIMES > 0
    times = TIMES[is_kept]
    of_each_repetition = (weights[is_kept] / times).repeat(times)
    np.testing.assert_allclose(of_each_repetition, expected)
    assert not weights[~is_kept].any()


@pytest.mark.parametrize(
    ("class_weight", "y"),
    [
        pytest.param({0: 3.0, 1: 0.5}, LABELS, id="matrix"),
        pytest.param({"owl": 3.0, "wren": 0.5}, named(LABELS), id="lists"),
    ],
)
def test_a_bag_has_the_product_of_its_class_weights(class_weight: Any, y: Any) -> None:
    # scikit-learn has a dict for each column, with the weights of its values 0 and 1.
    of_owl = {0: 1, 1: 3.0}
    of_wren = {0: 1, 1: 0.5}
    expected = compute_sample_weight([of_owl, of_wren], LABELS)
    np.testing.assert_allclose(class_weights(class_weight, y), expected)


def test_one_label_a_bag_has_the_weight_of_that_label() -> None:
    y = NAMES[LABELS[:, 0]]
    expected = compute_sample_weight({"owl": 2.0, "wren": 5.0}, y)
    np.testing.assert_allclose(class_weights({"owl": 2.0, "wren": 5.0}, y), expected)


def test_a_class_that_is_not_named_weighs_one() -> None:
    expected = np.where(LABELS[:, 1], 4.0, 1.0)
    np.testing.assert_allclose(class_weights({1: 4.0}, LABELS), expected)


def test_weights_of_bags_and_classes_are_multiplied() -> None:
    given = TIMES.astype(float)
    of_classes = class_weights({0: 3.0}, LABELS)
    np.testing.assert_allclose(class_weights({0: 3.0}, LABELS, given), given * of_classes)


def test_a_bag_without_weight_may_have_classes_of_any_weight() -> None:
    labels = np.array([[1, 1], [1, 0], [0, 0]])
    # The weight of the first bag by its classes would be infinite, but the bag does not count.
    weights = class_weights({0: 1.0, 1: 1e308}, labels, np.array([0.0, 2.0, 1.0]))
    np.testing.assert_array_equal(weights, [0.0, 2.0, 1.0])
    weights = class_weights({0: 1e30, 1: 1e300}, labels, np.array([0.0, 2.0, 1.0]))
    np.testing.assert_array_equal(weights, [0.0, 2e30, 1.0])


def test_a_heavier_class_is_found_more_often() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(300) < 0.2).astype(int)
    bags = []
    for label in y:
        noise = rng.normal(size=(3, 2))
        # In bags with the class, about half of the features look like background.
        shift = rng.integers(0, 2, (3, 2))
        bags.append(noise + label * shift)
    alike = short().fit(bags[:200], y[:200]).predict(bags[200:])
    weighted = short(class_weight="balanced").fit(bags[:200], y[:200]).predict(bags[200:])
    has_class = y[200:] == 1
    assert weighted[has_class].mean() > alike[has_class].mean()


def test_weights_go_through_a_search() -> None:
    grid = {"class_weight": [None, "balanced", {0: 2.0}]}
    search = GridSearchCV(short(epochs=1), grid, cv=2).fit(BAGS, LABELS, sample_weight=TIMES)
    assert len(search.cv_results_["params"]) == 3
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_weights_go_through_cross_validation() -> None:
    scores = cross_val_score(short(epochs=1), BAGS, LABELS, cv=2, params={"sample_weight": TIMES})
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", OF_LABEL_SETS)
def test_the_loss_of_a_bag_is_its_own(name: str) -> None:
    check_weighable(load_loss(name).build(3), num_classes=3)


@pytest.mark.parametrize(
    ("loss", "params"),
    [
        pytest.param("max-pooling", {"loss__normalization": "batch"}, id="max-pooling"),
        pytest.param("exact", {"loss__divide_by": "batch"}, id="exact"),
    ],
)
def test_a_loss_of_the_whole_batch_takes_no_weights(loss: str, params: dict[str, str]) -> None:
    classifier = short(loss=loss, epochs=1).set_params(**params)
    classifier.fit(BAGS, LABELS)
    with pytest.raises(UsageError, match=f"bags have no weights with {loss} .*batch"):
        classifier.fit(BAGS, LABELS, sample_weight=TIMES)


@pytest.mark.parametrize(
    ("sample_weight", "naming"),
    [
        pytest.param(TIMES[:-1], "sample_weight has the shape (59,), expected (60,)", id="too few"),
        pytest.param(
            TIMES[:, None], "sample_weight has the shape (60, 1), expected (60,)", id="column"
        ),
        pytest.param(2.0, "sample_weight has the shape (), expected (60,)", id="scalar"),
        pytest.param(
            [*[1.0] * 59, -0.5],
            "sample_weight[59] is -0.5, expected a finite number, 0 or more",
            id="negative",
        ),
        pytest.param([np.nan, *[1.0] * 59], "sample_weight[0] is nan", id="NaN"),
        pytest.param([np.inf, *[1.0] * 59], "sample_weight[0] is inf", id="infinite"),
        pytest.param([0.0] * 60, "sample_weight is zero for every bag", id="zeros"),
        pytest.param(["much"] * 60, "sample_weight must have a number for each bag", id="words"),
        pytest.param(
            [10**400] * 60, "sample_weight must have a number for each bag", id="no float"
        ),
        pytest.param(
            [1e300] * 60,
            "sample_weight is too large: all together must be at most 3.4e+38",
            id="large",
        ),
        pytest.param(
            [1e-320] * 60,
            "sample_weight is too small: the largest must be at least 1.2e-38",
            id="small",
        ),
    ],
)
def test_a_wrong_sample_weight_is_reported_in_one_line(sample_weight: Any, naming: str) -> None:
    with pytest.raises(UsageError) as error:
        short().fit(BAGS, LABELS, sample_weight=sample_weight)
    assert naming in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("class_weight", "naming"),
    [
        pytest.param(
            "balance",
            "None, 'balanced' or a dict from classes to weights, got 'balance'",
            id="word",
        ),
        pytest.param(
            [1.0, 2.0],
            "None, 'balanced' or a dict from classes to weights, got [1.0, 2.0]",
            id="list",
        ),
        pytest.param(
            {"wrem": 2.0}, "unknown class in class_weight 'wrem'; did you mean 'wren'?", id="class"
        ),
        pytest.param(
            {"wren": -1.0},
            "class_weight['wren'] is -1.0, expected a finite number, 0 or more",
            id="negative",
        ),
        pytest.param({"wren": np.nan}, "class_weight['wren'] is nan", id="NaN"),
        pytest.param({"wren": "heavy"}, "class_weight['wren'] is 'heavy'", id="no number"),
        pytest.param(
            {"owl": 1e300, "wren": 1e300},
            "product over the classes of a bag is too large",
            id="product",
        ),
        pytest.param({"owl": 1e100}, "class_weight: the weight of a bag is too large", id="large"),
    ],
)
def test_a_wrong_class_weight_is_reported_in_one_line(class_weight: Any, naming: str) -> None:
    with pytest.raises(UsageError) as error:
        short(class_weight=class_weight).fit(BAGS, named(LABELS))
    assert naming in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_that_leave_no_bag_are_refused() -> None:
    y = [["owl"]] * 60
    with pytest.raises(UsageError, match="no bag has a weight above zero"):
        short(class_weight={"owl": 0}).fit(BAGS, y)
