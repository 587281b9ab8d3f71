"""Choose the columns of a table that are features."""

from pathlib import Path

from milbench.data.label_sets import label_columns
from milbench.data.table import TEXT_COLUMNS, Table
from milbench.data.table_files import column_names, require_columns, shown_names
from milbench.data.table_options import (
    FEATURE_FILES,
    LIST_MARK,
    UNREAD_FILES,
    FeatureOptions,
    chosen_and_left_out,
)
from milbench.errors import UsageError

_BAG = "the bag that an instance belongs to"


def check_columns(path: Path, options: FeatureOptions) -> None:
    """Raise UsageError where a table lacks a needed column, or `features` names an unfit file."""
    require_columns(path, options.form, {options.bag: _BAG})
    pattern = options.features
    ending = Path(pattern).suffix.lower()
    if options.of_files or pattern in column_names(path, options.form):
        return
    if ending in FEATURE_FILES:
        expected = f"such as task.features='features/*{ending}', where * is the name of the bag"
        raise UsageError(
            f"task.features={pattern!r} is one file, expected a file for each bag, {expected}"
        )
    if ending in UNREAD_FILES:
        raise UsageError(
            f"task.features={pattern!r}: files {ending} are not read, "
            f"expected {', '.join(FEATURE_FILES)}"
        )


def feature_names(table: Table, options: FeatureOptions) -> list[str]:
    """Return the columns that are features.

    These are the columns that the parameter `features` names. If it names none, they are all
    columns of numbers that have no other use.

    Raises:
        UsageError: where no column is a feature, where a column of names or labels is named as a
            feature, or where `coords` does not name two columns.
    """
    coords = table.matching(options.coords, "of x and y")
    if len(coords) not in (0, 2):
        columns = "1 column" if len(coords) == 1 else f"{len(coords)} columns"
        raise UsageError(
            f"{table.path}: task.coords={options.coords!r} names {columns}, expected x and y"
        )
    reserved = {
        *label_columns(table, options.labels),
        *TEXT_COLUMNS,
        options.bag,
        options.group,
        options.split,
    }
    wanted, unwanted = chosen_and_left_out(options.features)
    left_out = set(table.matching(LIST_MARK.join(unwanted), "to leave out of the features"))
    if wanted:
        names = _wanted_features(table, options, wanted, reserved)
        names = [name for name in names if name not in left_out]
    else:
        used = {*reserved, *coords, *left_out}
        names = table.holds_numbers([name for name in table.columns if name not in used])
    if not names:
        raise UsageError(
            f"{table.path} has no column of numbers for features "
            f"(it has: {shown_names(table.columns)})"
        )
    return names


def _wanted_features(
    table: Table, options: FeatureOptions, wanted: list[str], reserved: set[str]
) -> list[str]:
    """Return the columns that the parameter `features` names.

    A pattern skips the `reserved` columns, which hold names or labels. UsageError is raised where
    such a column is named itself.
    """
    # These three columns have a use only in other tables. Here a user may give a feature this name.
    names_or_labels = reserved - {"features", "image", "boxes"}
    for name in table.columns:
        if name in wanted and name in names_or_labels:
            named = f"the features {options.features!r} name the column {name!r}"
            raise UsageError(f"{table.path}: {named}, which holds names or labels")
    names = table.matching(LIST_MARK.join(wanted), "of features")
    return [name for name in names if name in wanted or name not in reserved]
