import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from milbench.data import bag_checks
from milbench.data.bag_checks import check_bags
from milbench.data.own_bags import OwnBags
from milbench.data.table import Annotation
from milbench.data.table_options import FeatureOptions, SequenceOptions, TableOptions
from milbench.likelihood import EXACT_LABEL_LIMIT
from tests._helpers.own_bags import own_bags, store_of

LABELS = [[True, False], [False, False], [True, True]]


def table(change: Any = None, **columns: Any) -> OwnBags:
    """Return three bags of 2, 1 and 3 instances of two features, after a change of all of them."""
    features = np.arange(12, dtype=np.float32).reshape(6, 2)
    if change is not None:
        change(features)
    parts, classes = np.split(features, [2, 3]), columns.pop("classes", ["cat", "dog"])
    return own_bags(parts, columns.pop("labels", LABELS), classes, **columns)


def found(
    bags: OwnBags,
    level: str,
    options: TableOptions = FeatureOptions(table=""),  # noqa: B008
) -> dict[str, str]:
    return {one.what: one.detail for one in check_bags(bags, options) if one.level == level}


def test_facts_are_counted() -> None:
    facts = found(table(), "fact")
    assert facts["bags"] == "3, with 6 instances"
    assert facts["bag sizes"] == "1 to 3, median 2"
    assert facts["classes"] == "2, a bag has 0 to 2 of them"
    assert facts["empty label sets"] == "1 of 3 bags"
    assert (facts["class cat"], facts["class dog"]) == ("in 2 of 3 bags", "in 1 of 3 bags")
    assert found(table(), "warning") == found(table(), "fatal") == {}


def test_bags_of_equal_content_are_named_and_those_in_two_parts_of_a_split() -> None:
    one, other = np.arange(2.0).reshape(1, 2), np.full((1, 2), 9.0)
    twin = replace(table(), store=store_of([one, other, one]))
    warnings = found(twin, "warning")
    assert warnings["bags of equal content"] == warnings["equal bags, other labels"] == "1: a = c"
    assert "equal bags in two parts" not in warnings
    assert (
        found(replace(twin, split=["train", "train", "test"]), "warning")["equal bags in two parts"]
        == "1: a = c"
    )
    assert "equal bags in two parts" not in found(
        replace(twin, split=["test", "train", "test"]), "warning"
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_feature_that_is_not_finite_is_fatal_and_placed(value: float) -> None:
    def broken(features: Any) -> None:
        features[4, 1] = value

    (text,) = found(table(broken), "fatal").values()
    assert text == f"1, the first in bags.csv, row 6: g is {value} in single precision"


def test_constant_features_are_a_warning_and_fatal_where_all_are() -> None:
    assert found(table(lambda features: features[:, 1].fill(3)), "warning") == {
        "constant features": "1: g"
    }
    assert (
        "all are constant" in found(table(lambda features: features.fill(3)), "fatal")["features"]
    )


def features_of(*columns: NDArray[Any]) -> OwnBags:
    """Return a table with these features in bags of two."""
    bags = len(columns[0]) // 2
    labels = np.arange(bags)[:, None] % 3 < [1, 2]
    return own_bags(np.split(np.stack(columns, axis=1), bags), labels, ["cat", "dog"])


@pytest.mark.parametrize(
    ("value", "scale", "gone", "count"), [(-9999, 100, 3, 300), (-1, 0.01, 6, 30)]
)
def test_values_that_may_stand_for_missing_ones_are_placed(
    value: float, scale: float, gone: int, count: int
) -> None:
    rng = np.random.default_rng(0)
    column, normal = rng.uniform(0, scale, size=count), rng.normal(size=count)
    column[5 : 5 + gone] = value
    text = found(features_of(normal, column), "warning")["values far from all others"]
    assert (
        text == f"g is {value:g} in {gone} instances, the first in row 7; are they missing values?"
    )


def test_values_that_are_merely_rare_or_large_are_not_called_missing() -> None:
    rng = np.random.default_rng(0)
    rare, spike = np.zeros(300), np.full(300, -0.03)
    rare[[7, 90]], spike[:40] = 5, np.linspace(-0.05, 0.03, 40)
    spike[41] = 36.8  # one real instance of its kind
    for column in (
        rng.lognormal(0, 3, size=300),
        rng.standard_t(2, size=300),
        rng.poisson(0.1, size=300),
        rare,
        spike,
    ):
        assert "values far from all others" not in found(
            features_of(rng.normal(size=300), column), "warning"
        )
    few = found(features_of(np.r_[1.0, 2, -9999, -9999], np.arange(4.0)), "warning")
    assert "values far from all others" not in few, "of four instances nothing is known"


def test_large_label_sets_say_what_exact_does_and_too_large_ones_are_fatal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert bag_checks.EXACT_LABEL_LIMIT == EXACT_LABEL_LIMIT
    monkeypatch.setattr(bag_checks, "EXACT_LABEL_LIMIT", 1)
    assert "certified lower bound" in found(table(), "warning")["large label sets"]
    fatal = found(table(labels=[[True, False], [True, True], [True, True]]), "fatal")
    assert "1 have more classes than instances: b" in fatal["bags with too few instances"]


def test_classes_that_are_everywhere_or_missing_from_a_part_are_named() -> None:
    assert found(table(split=["train", "test", "train"]), "warning") == {
        "classes missing from a part of the split": "2: cat from test, dog from test",
        "classes in every bag of a part of the split": "1: cat in train",
    }
    everywhere = table(labels=[[True, False], [True, False], [True, True]])
    assert "is in every bag" in found(everywhere, "warning")["class cat"]


def frames() -> list[NDArray[Any]]:
    """Return sequences of 4, 6 and 10 frames of two features."""
    return [np.arange(2.0 * length).reshape(2, length).T for length in (4, 6, 10)]


def sequences(some: Any = None, **changes: Any) -> OwnBags:
    """Return a table of three sequences, two frames a second."""
    names, path = ["a.wav", "b.wav", "c.wav"], Path("t.csv")
    columns = {"frames_per_second": 2.0, "rows": None, **changes}
    return own_bags(some or frames(), LABELS, ["cat", "dog"], bags=names, path=path, **columns)


def of_sequences(table: OwnBags, level: str) -> dict[str, str]:
    return found(table, level, SequenceOptions(table=""))


@pytest.mark.parametrize(("length", "level"), [(1, "fatal"), (4, "warning"), (5, None)])
def test_sequences_with_more_classes_than_frames_or_blocks_of_four_are_placed(
    length: int, level: str | None
) -> None:
    short = sequences([*frames()[:2], np.arange(2.0 * length).reshape(2, length).T])
    for one in ("fatal", "warning"):
        named = [text for what, text in of_sequences(short, one).items() if "too few" in what]
        assert named == [f"1: c.wav (row 4) has 2 classes and {length} frames"] * (one == level)


def test_events_that_begin_after_the_end_are_placed() -> None:
    (found,) = of_sequences(sequences(marks=[[Annotation(0, (2, 3))], [], []]), "fatal").values()
    assert found == "1: a.wav (row 2) lasts 2 seconds and has 'cat' from 2"
    assert not of_sequences(sequences(marks=[[Annotation(0, (1.9, 3))], [], []]), "fatal"), (
        "its end is cut off"
    )
    broken = [frames()[0], np.full((6, 2), np.nan), frames()[2]]
    assert of_sequences(sequences(broken), "fatal") == {
        "sequences with values that are not finite": "1: b.wav (row 3)"
    }


def test_equal_sequences_are_fatal_where_nothing_keeps_them_in_one_part() -> None:
    """Network and loss could know a test recording from training."""
    one, other, _ = frames()
    twins = [one, other, one.copy()]
    expected = "1: a.wav (row 2) = c.wav (row 4)"
    for changes, refused in (
        ({}, True),
        ({"groups": ["x", "x", "y"]}, True),
        ({"groups": ["x", "y", "x"]}, False),
        ({"split": ["train", "test", "test"]}, True),
        ({"split": ["test", "train", "test"]}, False),
    ):
        assert (
            list(of_sequences(sequences(twins, **changes), "fatal").values())
            == [expected] * refused
        ), changes
        assert (
            of_sequences(sequences(twins, **changes), "warning")["sequences of equal content"]
            == expected
        )


FEW = ("only one bag", "only one group", "two bags", "two groups")


@pytest.mark.parametrize(("names", "columns", "level"), [
    (["a"], {}, "fatal"),
    (["a", "b"], {}, "warning"),
    (["a", "b", "c"], {}, None),
    (["a", "b", "c"], {"groups": ["x"] * 3}, "fatal"),
    (["a", "b", "c"], {"groups": ["x", "y", "y"]}, "warning"),
    (["a", "b"], {"split": ["train", "test"]}, None),
])  # fmt: skip
def test_too_few_bags_or_groups_for_a_split_are_found(
    names: list[str], columns: dict[str, list[str]], level: str | None
) -> None:
    labels = np.array([[True, False]] * len(names))
    bags = own_bags(
        [*np.arange(2.0 * len(names)).reshape(-1, 1, 2)],
        labels,
        ["cat", "dog"],
        bags=names,
        **columns,
    )
    few = [
        finding.level
        for finding in check_bags(bags, FeatureOptions(table=""))
        if finding.what in FEW
    ]
    assert few == ([level] if level else [])


def test_a_table_is_checked_without_torch(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("bag,labels,f\na,x,1\nb,,2\nc,x,3\n")
    code = (
        "import sys; sys.argv = ['milbench', 'data', 'check', sys.argv[1]]\nfrom milbench.cli.main import main\n"
        "try: main()\nfinally: print('torch' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t.csv")], capture_output=True, text=True
    )
    assert ran.stdout.splitlines()[-1] == "False", ran.stderr


def test_a_group_in_two_parts_of_a_split_is_fatal() -> None:
    assert found(table(groups=["x", "y", "x"], split=["train", "test", "train"]), "fatal") == {}
    apart = found(table(groups=["x", "y", "x"], split=["train", "train", "test"]), "fatal")
    assert apart == {"groups in two parts of the split": "1: x"}
