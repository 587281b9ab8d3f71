"""Write a table of the files in a folder, for `milbench data table`.

The folder has a folder for each class, or files and one CSV that says the labels of each file.
"""

import os
from collections import Counter
from pathlib import Path

import pandas as pd
from PIL import Image

from milbench.data.bag_files import AUDIO
from milbench.data.marked_rows import CORNERS, TIMES
from milbench.data.name_lists import abbreviate
from milbench.data.split_parts import PARTS
from milbench.data.table import Table, read_table
from milbench.data.table_files import (
    USUAL,
    TableFormat,
    column_names,
    is_table,
    separator_remedy,
    shown_names,
    write_table,
)
from milbench.data.table_options import FEATURE_FILES, LIST_MARK
from milbench.errors import UsageError

_LABELS = (
    "labels", "label", "event_label", "classes", "class", "species", "annotation", "target",
    "category", "diagnosis", "y",
)  # fmt: skip
"""Names that a column of labels may have, the likeliest first."""
_FILES = ""
"""The name of the column of files while a table is made.

It is empty, since no column of a user has an empty name.
"""


def table_of_folder(
    folder: Path, out: Path, labels: str = "", form: TableFormat = USUAL
) -> tuple[str, list[str]]:
    """Write a table of the files in a folder.

    If a CSV is among the files, labels are from one of its columns. Otherwise the label of a file
    is the name of its folder. Returns a sentence that says where the labels are from, and the
    command to run next, which checks the table, as a list of its words.

    Args:
        folder: the folder.
        out: the path of the table to write.
        labels: the column of the CSV that has the labels; "": the likeliest one.
        form: how the fields of the CSV are written.

    Raises:
        UsageError: where no table can be made of the folder, or where `out` exists.
    """
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder, expected one with a folder for each class, or with files and "
            "one CSV"
        )
    if out.exists():
        raise UsageError(f"{out} is there already; --out names another table")
    files = sorted(path for path in folder.rglob("*") if _is_visible_file(folder, path))
    tables = [path for path in files if is_table(path)]
    column, data_files = _files_of_one_kind(folder, files, tables)
    if tables:
        frame, source = _label_by_table(tables[0], data_files, labels, form)
    else:
        frame, source = _label_by_folders(folder, data_files)
    labelled_files = frame.pop(_FILES)
    paths = [Path(os.path.relpath(path, out.parent)).as_posix() for path in labelled_files]
    _check_free(frame, column, tables)
    frame.insert(0, column, paths)
    check = ["milbench", "data", "check", str(out)]
    # A CSV may name a file in several rows, one for each of its boxes or events.
    if len(set(paths)) < len(paths):
        frame, rows = _with_usual_columns(tables[0], frame, column)
        check += ["-p", f"task.rows={rows}"]
        source += f"; rows are {rows}"
    if column == "path":
        # A table of features needs names of bags. In a table of images or recordings the path of
        # the file is the name of the bag.
        _check_free(frame, "bag", tables)
        frame.insert(0, "bag", _names_of_bags(paths))
        # The @ says that the column holds the paths of files of features, and not the features.
        check += ["-p", "task.features=@path"]
    write_table(frame, out)
    return f"{out}: {len(frame):,} rows; labels are {source}", check


def _is_visible_file(folder: Path, path: Path) -> bool:
    """Return whether a path is a file, and neither hidden nor in a hidden folder.

    Programs leave hidden folders behind, such as .ipynb_checkpoints.
    """
    is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.is_file() and not is_hidden


def _check_free(frame: pd.DataFrame, column: str, tables: list[Path]) -> None:
    """Raise UsageError where the rows have a column already whose name the new table needs."""
    if column in frame.columns:
        raise UsageError(
            f"{tables[0]} has a column {column!r}, and the new table has one of this name for "
            "another purpose: rename it"
        )


def _names_of_bags(paths: list[str]) -> list[str]:
    """Return the paths of files without endings, or with them where two would be equal."""
    names = [str(Path(path).with_suffix("")) for path in paths]
    return names if len(set(names)) == len(names) else paths


def _files_of_one_kind(
    folder: Path, files: list[Path], tables: list[Path]
) -> tuple[str, list[Path]]:
    """Return the name of the column of files, and the files that a task can read.

    The column of files of features is "path", that of sounds "file" and that of images "image".
    Raises UsageError where files are of several kinds, or of none, or where there are several
    tables.
    """
    # This fills `Image.EXTENSION`, the endings of all images that Pillow reads.
    Image.init()
    endings = {"path": FEATURE_FILES, "file": AUDIO, "image": tuple(Image.EXTENSION)}
    of_kind = {}
    for name, ends in endings.items():
        members = [path for path in files if path.suffix.lower() in ends]
        if members:
            of_kind[name] = members
    if len(of_kind) != 1 or len(tables) > 1:
        counts = []
        for members in of_kind.values():
            kinds = "/".join(sorted({path.suffix for path in members}))
            counts.append(f"{len(members)} {kinds}")
        has = ", ".join(counts) or "of no known kind"
        raise UsageError(
            f"{folder} has {len(tables)} tables and files {has}, expected one kind; "
            f"features are read from files {', '.join(FEATURE_FILES)}, "
            f"sounds from {', '.join(AUDIO)}"
        )
    # Name of the column -> files, for the only kind.
    (name_and_files,) = of_kind.items()
    return name_and_files


def _label_by_folders(folder: Path, files: list[Path]) -> tuple[pd.DataFrame, str]:
    """Label each file by the name of its folder; return a frame, and a text that says so.

    The frame has the files in the column `_FILES`. Files that are in no folder are left out. If the
    folders of classes are in folders of the parts of a split, as in train/cat/1.png, the frame has
    a column `split` too.
    """
    # For each file in a folder, the names on its path: its folders from the top, then the file.
    in_folders = [path for path in files if path.parent != folder]
    names_of_file = {path: path.relative_to(folder).parts for path in in_folders}
    are_split = all(
        len(names) > 2 and names[0].casefold() in PARTS for names in names_of_file.values()
    )
    depth_of_class = 1 if are_split else 0
    rows = [(path, names[depth_of_class]) for path, names in names_of_file.items()]
    if not rows:
        raise UsageError(
            f"{folder} has neither folders, one for each class, nor a CSV that says the labels of "
            "its files"
        )
    counts = Counter(name for _, name in rows)
    named = abbreviate([f"{name} ({count:,})" for name, count in counts.items()])
    source = f"the names of its folders: {named}"
    if len(rows) < len(files):
        source += f"; {len(files) - len(rows):,} files in no folder of a class are left out"
    frame = pd.DataFrame(rows, columns=[_FILES, "labels"])
    if are_split:
        frame = frame.assign(split=[names[0] for names in names_of_file.values()])
    return frame, source


def _label_by_table(
    path: Path, files: list[Path], labels: str, form: TableFormat
) -> tuple[pd.DataFrame, str]:
    """Label files by a table; return its rows, and a text that says where the labels are from.

    The rows have their files in the column `_FILES`, and labels in the column `labels`. Rows whose
    file does not exist are left out.
    """
    table = read_table(path, column_names(path, form), form)
    texts = {name: table.texts(name).tolist() for name in table.columns}
    file_column, row_files = _files_of_rows(path, files, texts, form)
    del texts[file_column]
    frame, source = _with_labels(table, table.frame.drop(columns=file_column), texts, labels)
    frame.insert(0, _FILES, row_files)
    source += f" of {path}, whose column {file_column!r} names the files"
    missing = row_files.count(None)
    unnamed = len(set(files) - set(row_files))
    if missing:
        source += f"; {missing:,} rows without a file are left out"
    if unnamed:
        source += f"; {unnamed:,} files without a row are left out"
    return frame[frame[_FILES].notna()], source


def _with_labels(
    table: Table, frame: pd.DataFrame, texts: dict[str, list[str]], labels: str
) -> tuple[pd.DataFrame, str]:
    """Return a frame with a column `labels`, and a text that says where the labels are from.

    Args:
        table: the table, for messages.
        frame: the columns of the table, except the column of files.
        texts: these columns as text.
        labels: the column of labels; "": the column that is named like labels, or else all columns
            of 0 and 1.
    """
    label_column = labels or _likely_labels(list(texts))
    if label_column:
        # This raises UsageError where the table lacks the column that `labels` names.
        table.column(label_column, "the labels")
        if label_column != "labels":
            _check_free(frame, "labels", [table.path])
        renamed = frame.rename(columns={label_column: "labels"})
        return renamed, f"the column {label_column!r}"
    # A column of zeros alone, or of ones alone, is not taken for a class: it could be anything.
    indicators = [name for name, values in texts.items() if set(values) == {"0", "1"}]
    if len(indicators) < 2:
        raise UsageError(
            f"{table.path}: which column has the labels? --labels names it "
            f"(it has: {abbreviate([*texts])})"
        )
    sets = []
    for row in zip(*(texts[name] for name in indicators), strict=True):
        present = [name for name, value in zip(indicators, row, strict=True) if value == "1"]
        sets.append(LIST_MARK.join(present))
    labelled = frame.drop(columns=indicators).assign(labels=sets)
    return labelled, f"the columns {abbreviate(indicators)} of 0 and 1"


def _with_usual_columns(table: Path, frame: pd.DataFrame, column: str) -> tuple[pd.DataFrame, str]:
    """Rename the columns of events or boxes to their usual names.

    A table may call the columns of an event start and end, or onset and offset. Start and end are
    the usual names. Returns the frame, and the word "events" or "boxes" for what a row of it is.
    Raises UsageError where the frame does not have the columns of events or boxes.

    Args:
        table: the path of the table, for messages.
        frame: the rows of the table, a file in several of them.
        column: the column of files: "file" for sounds, which have events; "image" for images,
            which have boxes.
    """
    # Files of features, whose column is "path", have neither events nor boxes.
    known_names = {"file": TIMES, "image": CORNERS}.get(column, ())
    found = [names for names in known_names if set(names) <= set(frame.columns)]
    if len(found) != 1:
        row = int(frame[column].duplicated().argmax())
        twice = f"{table}: {frame[column].iloc[row]!r} is in several rows"
        known = " or ".join(", ".join(names) for names in known_names)
        expected = f"the columns {known}" if known else "one row for each file"
        raise UsageError(f"{twice}, expected {expected} (it has: {shown_names([*frame.columns])})")
    usual_names = known_names[0]
    renamed = dict(zip(found[0], usual_names, strict=True))
    rows = "events" if column == "file" else "boxes"
    return frame.rename(columns=renamed), rows


def _likely_labels(names: list[str]) -> str:
    """Return the likeliest column of labels by its name, or the only column; "" for none."""
    for word in _LABELS:
        for name in names:
            if name.casefold() == word:
                return name
    return names[0] if len(names) == 1 else ""


def _files_of_rows(
    path: Path, files: list[Path], texts: dict[str, list[str]], form: TableFormat
) -> tuple[str, list[Path | None]]:
    """Return the column that names the most files, and the file of each row, None for no file.

    A column may name files by their names, with or without ending, or by their paths from the
    folder of the table. Raises UsageError where a name fits several files, or no column names any.
    """
    named: dict[str, set[Path]] = {}
    for file in files:
        relative = Path(os.path.relpath(file, path.parent)).as_posix()
        for name in (file.name, file.stem, relative):
            named.setdefault(name, set()).add(file)
    column = max(texts, key=lambda name: sum(text in named for text in texts[name]))
    row_files: list[Path | None] = []
    for text in texts[column]:
        found = sorted(named.get(text, ()))
        if len(found) > 1:
            several = abbreviate([str(file) for file in found], 2)
            raise UsageError(
                f"{path}: {text!r} names several files, {several}; expected their paths"
            )
        row_files.append(found[0] if found else None)
    if not any(row_files):
        remedy = separator_remedy(path, form)
        raise UsageError(
            f"{path}: no column has the names of the files, such as {files[0].name} "
            f"(it has: {shown_names(list(texts))}){remedy}"
        )
    return column, row_files
