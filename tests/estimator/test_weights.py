"""Weights of bags and classes, against repeated bags, bags left out, and scikit-learn's own."""

from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.class_weight import compute_sample_weight

from milbench import UsageError, load_loss
from milbench.contracts.registry import losses
from milbench.estimator.label_forms import learn_labels
from milbench.estimator.weighted_training import check_weighable
from milbench.estimator.weights import Floats, weigh_bags

from .examples import NAMES, SGD, drawn, named, short

BAGS, LABELS = drawn(0)
NEW, TRUTH = drawn(1)
OF_LABEL_SETS = [name for name in losses().names() if not load_loss(name).takes_target]
TIMES = np.random.default_rng(2).integers(0, 4, len(BAGS))


def class_weights(class_weight: Any, y: Any, sample_weight: Floats | None = None) -> Any:
    """Return the weights of bags by their classes."""
    form, labels = learn_labels(y)
    return weigh_bags(sample_weight, class_weight, labels, form)


@pytest.mark.parametrize("loss", ["exact", "noisy-or", "max-pooling", "attention"])
def test_a_weight_of_two_is_the_bag_twice(loss: str) -> None:
    """With all bags in one batch, whose gradient is followed as it is."""
    settings: dict[str, Any] = {"loss": loss, "recipe": SGD, "lr": 0.1, "batch_bags": 1000}
    repeated = short(**settings).fit(
        [bag for bag, times in zip(BAGS, TIMES, strict=True) for _ in range(times)],
        LABELS.repeat(TIMES, axis=0),
    )
    weighted = short(**settings).fit(BAGS, LABELS, sample_weight=TIMES)
    for one, other in zip(
        weighted.network_.parameters(), repeated.network_.parameters(), strict=True
    ):
        np.testing.assert_allclose(one.detach(), other.detach(), atol=1e-5)
    np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_, rtol=1e-5)


def test_bags_of_weight_zero_have_no_influence() -> None:
    is_kept = TIMES > 0
    nonsense = [bag if keep else 1e6 + bag for bag, keep in zip(BAGS, is_kept, strict=True)]
    weights = np.where(is_kept, 0.5, 0.0)
    kept = [bag for bag, keep in zip(BAGS, is_kept, strict=True) if keep]
    weighted = short().fit(nonsense, LABELS, sample_weight=weights)
    left_out = short().fit(kept, LABELS[is_kept])
    np.testing.assert_allclose(
        weighted.decision_function(NEW), left_out.decision_function(NEW), atol=1e-4
    )


def test_the_unit_of_weights_does_not_matter() -> None:
    settings: dict[str, Any] = {"recipe": SGD, "lr": 0.1}
    one = short(**settings).fit(BAGS, LABELS, sample_weight=TIMES)
    other = short(**settings).fit(BAGS, LABELS, sample_weight=1000 * TIMES)
    np.testing.assert_allclose(one.predict_proba(NEW), other.predict_proba(NEW), atol=1e-5)


def test_the_threshold_follows_the_weights() -> None:
    """Bags of equal features have a class in some and not in others: the heavier ones are right."""
    bags = [np.ones((1, 1))] * 40 + [np.zeros((1, 1))] * 20
    y = np.array([1, 0] * 20 + [0] * 20)
    one_heavy, zero_heavy = np.where(y == 1, 9.0, 1.0), np.where(y == 1, 1.0, 9.0)
    assert short().fit(bags, y, sample_weight=one_heavy).predict(bags[:1]) == [1]
    assert short().fit(bags, y, sample_weight=zero_heavy).predict(bags[:1]) == [0]


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    np.testing.assert_allclose(
        class_weights("balanced", LABELS), compute_sample_weight("balanced", LABELS)
    )
    np.testing.assert_allclose(
        class_weights("balanced", LABELS[:, 0]), compute_sample_weight("balanced", LABELS[:, 0])
    )


def test_balanced_weights_count_weighted_bags_as_repeated_ones() -> None:
    expected = compute_sample_weight("balanced", LABELS.repeat(TIMES, axis=0))
    weights = class_weights("balanced", LABELS, TIMES.astype(float))
    is_kept = TIMES > 0
    np.testing.assert_allclose((weights[is_kept] / TIMES[is_kept]).repeat(TIMES[is_kept]), expected)
    assert not weights[~is_kept].any()


@pytest.mark.parametrize("form", ["matrix", "lists"])
def test_a_bag_has_the_product_of_its_class_weights(form: str) -> None:
    expected = [{0: 1, 1: 3.0}, {0: 1, 1: 0.5}]  # by column, as scikit-learn has it
    if form == "matrix":
        weights = class_weights({0: 3.0, 1: 0.5}, LABELS)
    else:
        weights = class_weights({"owl": 3.0, "wren": 0.5}, named(LABELS))
    np.testing.assert_allclose(weights, compute_sample_weight(expected, LABELS))


def test_one_label_a_bag_has_the_weight_of_that_label() -> None:
    y = NAMES[LABELS[:, 0]]
    expected = compute_sample_weight({"owl": 2.0, "wren": 5.0}, y)
    np.testing.assert_allclose(class_weights({"owl": 2.0, "wren": 5.0}, y), expected)


def test_a_class_that_is_not_named_weighs_one() -> None:
    np.testing.assert_allclose(class_weights({1: 4.0}, LABELS), np.where(LABELS[:, 1], 4.0, 1.0))


def test_weights_of_bags_and_classes_are_multiplied() -> None:
    given = TIMES.astype(float)
    of_classes = class_weights({0: 3.0}, LABELS)
    np.testing.assert_allclose(class_weights({0: 3.0}, LABELS, given), given * of_classes)


def test_a_heavier_class_is_found_more_often() -> None:
    """Its instances look like background half of the time."""
    rng = np.random.default_rng(0)
    y = (rng.random(300) < 0.2).astype(int)
    bags = [rng.normal(size=(3, 2)) + label * rng.integers(0, 2, (3, 2)) for label in y]
    alike = short().fit(bags[:200], y[:200]).predict(bags[200:])
    weighted = short(class_weight="balanced").fit(bags[:200], y[:200]).predict(bags[200:])
    has_class = y[200:] == 1
    assert weighted[has_class].mean() > alike[has_class].mean()


def test_weights_go_through_a_search() -> None:
    grid = {"class_weight": [None, "balanced", {0: 2.0}]}
    search = GridSearchCV(short(epochs=1), grid, cv=2).fit(BAGS, LABELS, sample_weight=TIMES)
    assert len(search.cv_results_["params"]) == 3
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    scores = cross_val_score(short(epochs=1), BAGS, LABELS, cv=2, params={"sample_weight": TIMES})
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", OF_LABEL_SETS)
def test_the_loss_of_a_bag_is_its_own(name: str) -> None:
    check_weighable(load_loss(name).build(3), num_classes=3)


@pytest.mark.parametrize(
    ("loss", "params"),
    [
        ("max-pooling", {"loss__normalization": "batch"}),
        ("exact", {"loss__divide_by": "batch"}),
    ],
    ids=["max-pooling", "exact"],
)
def test_a_loss_of_the_whole_batch_takes_no_weights(loss: str, params: dict[str, str]) -> None:
    classifier = short(loss=loss, epochs=1).set_params(**params)
    classifier.fit(BAGS, LABELS)
    with pytest.raises(UsageError, match=f"bags have no weights with {loss} .*batch"):
        classifier.fit(BAGS, LABELS, sample_weight=TIMES)


@pytest.mark.parametrize(
    ("sample_weight", "naming"),
    [
        (TIMES[:-1], "sample_weight has the shape (59,), expected (60,)"),
        (TIMES[:, None], "sample_weight has the shape (60, 1), expected (60,)"),
        (2.0, "sample_weight has the shape (), expected (60,)"),
        ([1.0] * 59 + [-0.5], "sample_weight[59] is -0.5, expected a finite number, 0 or more"),
        ([np.nan] + [1.0] * 59, "sample_weight[0] is nan"),
        ([np.inf] + [1.0] * 59, "sample_weight[0] is inf"),
        ([0.0] * 60, "sample_weight is zero for every bag"),
        (["much"] * 60, "sample_weight must have a number for each bag"),
        ([10**400] * 60, "sample_weight must have a number for each bag"),
        ([1e300] * 60, "sample_weight is too large: all together must be at most 3.4e+38"),
        ([1e-320] * 60, "sample_weight is too small: one must be at least 1.2e-38"),
    ],
    ids=[
        "too few",
        "column",
        "scalar",
        "negative",
        "NaN",
        "infinite",
        "zeros",
        "words",
        "no float",
        "large",
        "small",
    ],
)
def test_a_wrong_sample_weight_is_one_line(sample_weight: Any, naming: str) -> None:
    with pytest.raises(UsageError) as error:
        short().fit(BAGS, LABELS, sample_weight=sample_weight)
    assert naming in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("class_weight", "naming"),
    [
        ("balance", "None, 'balanced' or a dict from classes to weights, got 'balance'"),
        ([1.0, 2.0], "None, 'balanced' or a dict from classes to weights, got [1.0, 2.0]"),
        ({"wrem": 2.0}, "unknown class in class_weight 'wrem'; did you mean 'wren'?"),
        ({"wren": -1.0}, "class_weight['wren'] is -1.0, expected a finite number, 0 or more"),
        ({"wren": np.nan}, "class_weight['wren'] is nan"),
        ({"wren": "heavy"}, "class_weight['wren'] is 'heavy'"),
        ({"owl": 1e300, "wren": 1e300}, "product over the classes of a bag is too large"),
        ({"owl": 1e100}, "class_weight: the weight of a bag is too large"),
    ],
    ids=["word", "list", "class", "negative", "NaN", "no number", "product", "large"],
)
def test_a_wrong_class_weight_is_one_line(class_weight: Any, naming: str) -> None:
    with pytest.raises(UsageError) as error:
        short(class_weight=class_weight).fit(BAGS, named(LABELS))
    assert naming in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_that_leave_no_bag_are_refused() -> None:
    y = [["owl"]] * 60
    with pytest.raises(UsageError, match="no bag has a weight above zero"):
        short(class_weight={"owl": 0}).fit(BAGS, y)
