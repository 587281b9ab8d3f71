"""Find columns that may say which bags belong together, though no option names them."""

import dataclasses
from collections.abc import Iterator, Mapping
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from milbench.data.findings import Finding
from milbench.data.group_columns import MISSING, stands_in_train_and_test
from milbench.data.own_bags import OwnBags
from milbench.data.splits import split_bags
from milbench.data.table_options import TableOptions
from milbench.errors import UsageError

_MOST_OF_ASKED = 2
"""A column cannot group bags if a part of the split would become this many times too large."""


def check_groups(
    bags: OwnBags, options: TableOptions, groups: Mapping[str, NDArray[np.int64]]
) -> Iterator[Finding]:
    """Yield a finding for each column whose equal values are in training bags and in test bags.

    Args:
        bags: the bags.
        options: of the task.
        groups: the columns, as `columns_to_group_by` returns them.
    """
    for name, values in groups.items():
        count = len(np.unique(values[values != MISSING]))
        empty = int((values == MISSING).sum())
        detail = f"{name}: {count:,} values, and bags that share one are trained and tested on"
        if name in bags.feature_names:
            detail += ", and it is taken for a feature"
        flag = f"-p task.group={quote(name)}"
        if bags.split or options.splits:
            detail += "; are they independent?"
        elif empty:
            detail += (
                f"; it is empty for {empty:,} bags, and once filled {flag} keeps the others in "
                "one part"
            )
        else:
            detail += f"; {flag} keeps them in one part of a split"
        yield Finding("warning", "a column that reads like a group", detail)


def columns_to_group_by(bags: OwnBags, options: TableOptions) -> dict[str, NDArray[np.int64]]:
    """Return the columns by which bags should perhaps be grouped.

    Each comes with a number for every bag: bags with equal numbers share a value.

    In such a column, bags to train on and bags to test on share a value. Also, the bags can be
    grouped by the column and then still be split as the options say. This excludes a column such as
    the sex of a patient, which has too few values.
    """
    if not bags.shared_columns:
        return {}
    try:
        split = split_bags(bags, options, 0)
    except UsageError:
        return {}
    found = {}
    for name, numbers in bags.shared_columns.items():
        values = np.asarray(numbers)
        is_in_both = stands_in_train_and_test(values, split.train, split.test)
        if is_in_both and _can_be_split_by(bags, options, values):
            found[name] = values
    return found


def _can_be_split_by(bags: OwnBags, options: TableOptions, values: NDArray[np.int64]) -> bool:
    """Return whether bags can be split with the values of a column as groups.

    The parts must not be much larger than the options say, and at least half of the classes in
    test bags must be in training bags, too. If they are not, the column probably repeats the
    labels in other words.
    """
    # A bag without a value is a group of its own.
    groups = [f"v{value}" if value != MISSING else f"bag {bag}" for bag, value in enumerate(values)]
    grouped = dataclasses.replace(bags, groups=groups, split=None)
    # Splits that the user gave may divide these groups, so the bags are split without them.
    without_splits = dataclasses.replace(options, splits="")
    try:
        split = split_bags(grouped, without_splits, 0)
    except UsageError:
        return False
    test_share = 1 / options.folds if options.folds else options.test
    most_tested = _MOST_OF_ASKED * max(1, test_share * len(bags))
    most_validated = _MOST_OF_ASKED * max(1, options.validation * len(bags))
    if len(split.test) > most_tested or len(split.validation) > most_validated:
        return False
    in_train = bags.labels[split.train].any(axis=0)
    in_test = bags.labels[split.test].any(axis=0)
    in_both = in_train & in_test
    return bool(in_both.sum() * 2 >= in_test.sum())
