"""Tables of folders: with a folder a class, or with files and one CSV that names them and says their labels."""

import os
from collections import Counter
from pathlib import Path

import pandas as pd
from PIL import Image

from milbench.data.bag_files import AUDIO
from milbench.data.table import PARTS, abbreviate, read_table
from milbench.data.table_files import column_names, is_table, write_table
from milbench.data.table_options import FEATURE_FILES
from milbench.errors import UsageError

_LABELS = ("labels", "label", "classes", "class", "species", "target", "category", "diagnosis", "y")
"""Names of columns of labels, the likeliest first."""


def table_of_folder(folder: Path, out: Path, labels: str = "") -> tuple[str, list[str]]:
    """Write a table of the files in a folder; return what was taken for what, and the command to run next.

    Where one CSV is among the files, it says the `labels`, a column of it; else the folders in the folder do.
    """
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder, expected one with a folder a class, or with files and one CSV"
        )
    if out.exists():
        raise UsageError(f"{out} is there already; --out names another table")
    Image.init()
    endings = {"path": FEATURE_FILES, "file": AUDIO, "image": [*Image.EXTENSION]}
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")
    )
    tables = [path for path in files if is_table(path)]
    of_kind = {
        name: [path for path in files if path.suffix.lower() in ends]
        for name, ends in endings.items()
    }
    kinds = [name for name, paths in of_kind.items() if paths]
    if len(kinds) != 1 or len(tables) > 1:
        has = ", ".join(
            f"{len(of_kind[name])} {'/'.join(sorted({p.suffix for p in of_kind[name]}))}"
            for name in kinds
        )
        raise UsageError(
            f"{folder} has {len(tables)} tables and files {has or 'of no known kind'}, expected one kind"
        )
    (column,) = kinds
    label, labelled = (_label_by_table, tables[0]) if tables else (_label_by_folders, folder)
    frame, source = label(labelled, of_kind[column], labels)
    paths = [Path(os.path.relpath(path, out.parent)).as_posix() for path in frame.pop("")]
    frame.insert(0, column, paths)
    if column == "path":
        frame.insert(0, "bag", [str(Path(path).with_suffix("")) for path in paths])
    write_table(frame, out)
    check = [
        "milbench",
        "data",
        "check",
        str(out),
        *["-p", "task.features=@path"] * (column == "path"),
    ]
    return f"{out}: {len(frame):,} rows; labels are {source}", check


def _label_by_folders(folder: Path, files: list[Path], labels: str) -> tuple[pd.DataFrame, str]:  # noqa: ARG001
    """Return the files (column "") in folders of a class, with their labels, and where these are from."""
    parts = [path.relative_to(folder).parts for path in files]
    are_split = all(
        len(names) > 2 and names[0].casefold() in PARTS for names in parts
    )  # as train/cat/1.png
    rows = [
        (path, names[are_split]) for path, names in zip(files, parts, strict=True) if len(names) > 1
    ]
    if not rows:
        raise UsageError(
            f"{folder} has neither folders, one a class, nor a CSV that says the labels of its files"
        )
    counts = Counter(name for _, name in rows)
    source = "the names of its folders: " + abbreviate(
        [f"{name} ({n:,})" for name, n in counts.items()]
    )
    source += f"; {len(files) - len(rows):,} files in no folder of a class are left out" * (
        len(files) > len(rows)
    )
    frame = pd.DataFrame(rows, columns=["", "labels"])
    return frame.assign(split=[names[0] for names in parts]) if are_split else frame, source


def _label_by_table(path: Path, files: list[Path], labels: str) -> tuple[pd.DataFrame, str]:
    """Return the rows of a table whose files exist (column ""), with their labels, and where these are from."""
    table = read_table(path, column_names(path))
    files_by_name: dict[str, set[Path]] = {}
    for file in files:
        for name in (file.name, file.stem, Path(os.path.relpath(file, path.parent)).as_posix()):
            files_by_name.setdefault(name, set()).add(file)
    texts = {name: table.texts(name).tolist() for name in table.columns}
    file_column = max(texts, key=lambda name: sum(text in files_by_name for text in texts[name]))
    if several := [text for text in texts[file_column] if len(files_by_name.get(text, ())) > 1]:
        named = abbreviate(sorted(map(str, files_by_name[several[0]])), 2)
        raise UsageError(
            f"{path}: {several[0]!r} names several files, {named}; expected their paths"
        )
    row_files = [next(iter(files_by_name.get(text, {None}))) for text in texts.pop(file_column)]
    if not any(row_files):
        raise UsageError(f"{path}: no column has the names of the files, such as {files[0].name}")
    frame = table.frame.drop(columns=file_column)
    likely = [name for word in _LABELS for name in texts if name.casefold() == word] or [*texts][
        : len(texts) == 1
    ]
    marks = [name for name in texts if {*texts[name]} == {"0", "1"}]
    if labels or likely:
        table.column(labels := labels or likely[0], "the labels")
        source, frame = f"the column {labels!r}", frame.rename(columns={labels: "labels"})
    elif len(marks) > 1:
        rows = zip(*(texts[name] for name in marks), strict=True)
        sets = [
            ";".join(name for name, mark in zip(marks, row, strict=True) if mark == "1")
            for row in rows
        ]
        source, frame = (
            f"the columns {abbreviate(marks)} of 0 and 1",
            frame.drop(columns=marks).assign(labels=sets),
        )
    else:
        raise UsageError(
            f"{path}: which column has the labels? --labels names it (it has: {abbreviate([*texts])})"
        )
    frame.insert(0, "", row_files)
    source += f" of {path}, whose column {file_column!r} names the files"
    missing, unnamed = row_files.count(None), len({*files} - {*row_files})
    source += f"; {missing:,} rows without a file are left out" * bool(missing)
    return frame[
        frame[""].notna()
    ], source + f"; {unnamed:,} files without a row are left out" * bool(unnamed)
