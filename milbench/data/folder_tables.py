"""Tables of folders: with a folder a class, or with files and one CSV that names them and says their labels."""

import os
from collections import Counter
from pathlib import Path

import pandas as pd
from PIL import Image

from milbench.data.bag_files import AUDIO
from milbench.data.table import abbreviate, read_table
from milbench.data.table_files import column_names, is_table, write_table
from milbench.data.table_options import FEATURE_FILES
from milbench.errors import UsageError

_LABELS = ("labels", "label", "classes", "class", "species", "target", "category", "diagnosis", "y")
"""Names of columns of labels, the likeliest first."""


def table_of_folder(folder: Path, out: Path, labels: str = "") -> list[str]:
    """Write a table of the files in a folder; return what was taken for what, a line each, and what to do next.

    Where one CSV is among the files, it says the `labels`, a column of it; else the folders in the folder do.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder, expected one with a folder a class, or with files and one CSV")
    if out.exists():
        raise UsageError(f"{out} is there already; --out names another table")
    Image.init()
    endings = {"path": FEATURE_FILES, "file": AUDIO, "image": [*Image.EXTENSION]}
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    tables = [path for path in files if is_table(path)]
    of_kind = {name: [path for path in files if path.suffix.lower() in ends] for name, ends in endings.items()}
    kinds = [name for name, paths in of_kind.items() if paths]
    if len(kinds) != 1 or len(tables) > 1:
        has = ", ".join(f"{len(of_kind[name])} {'/'.join(sorted({p.suffix for p in of_kind[name]}))}" for name in kinds)
        raise UsageError(f"{folder} has {len(tables)} tables and files {has or 'of no known kind'}, expected one kind")
    (column,) = kinds
    frame, said = _by_table(tables[0], of_kind[column], labels) if tables else _by_folders(folder, of_kind[column])
    paths = [Path(os.path.relpath(path, out.parent)).as_posix() for path in frame.pop("")]
    frame.insert(0, column, paths)
    if column == "path":
        frame.insert(0, "bag", [str(Path(path).with_suffix("")) for path in paths])
    write_table(frame, out)
    how = " -p task.features=@path" * (column == "path")
    return [f"{out}: {len(frame):,} rows; {said}", f"milbench data check {out}{how} checks it"]


def _by_folders(folder: Path, files: list[Path]) -> tuple[pd.DataFrame, str]:
    rows = [(path, path.relative_to(folder).parts[0]) for path in files if path.parent != folder]
    if not rows:
        raise UsageError(f"{folder} has neither folders, one a class, nor a CSV that says the labels of its files")
    counts = Counter(name for _, name in rows)
    said = "labels are the names of its folders: " + abbreviate([f"{name} ({n:,})" for name, n in counts.items()])
    said += f"; {len(files) - len(rows):,} files in no folder of a class are left out" * (len(files) > len(rows))
    return pd.DataFrame(rows, columns=["", "labels"]), said


def _by_table(path: Path, files: list[Path], labels: str) -> tuple[pd.DataFrame, str]:
    """Return the rows of a table whose files are there, with the path of the file in the column ""."""
    table = read_table(path, column_names(path))
    known: dict[str, set[Path]] = {}
    for file in files:
        for name in (file.name, file.stem, Path(os.path.relpath(file, path.parent)).as_posix()):
            known.setdefault(name, set()).add(file)
    texts = {name: table.texts(name).tolist() for name in table.columns}
    names = max(texts, key=lambda name: sum(text in known for text in texts[name]))
    found = [min(known.get(text, {None}), key=str) for text in texts.pop(names)]
    if not any(found):
        raise UsageError(f"{path}: no column has the names of the files, such as {files[0].name}")
    frame = table.frame.drop(columns=names)
    likely = [name for word in _LABELS for name in texts if name.casefold() == word] or [*texts][: len(texts) == 1]
    marks = [name for name in texts if {*texts[name]} == {"0", "1"}]
    if labels or likely:
        table.column(labels := labels or likely[0], "the labels")
        said, frame = f"the column {labels!r}", frame.rename(columns={labels: "labels"})
    elif len(marks) > 1:
        rows = zip(*(texts[name] for name in marks), strict=True)
        sets = [";".join(name for name, mark in zip(marks, row, strict=True) if mark == "1") for row in rows]
        said, frame = f"the columns {abbreviate(marks)} of 0 and 1", frame.drop(columns=marks).assign(labels=sets)
    else:
        raise UsageError(f"{path}: which column has the labels? --labels names it (it has: {abbreviate([*texts])})")
    frame.insert(0, "", found)
    said = f"labels are {said} of {path}, whose column {names!r} names the files"
    missing, unnamed = found.count(None), len({*files} - {*found})
    said += f"; {missing:,} rows without a file are left out" * bool(missing)
    return frame[frame[""].notna()], said + f"; {unnamed:,} files without a row are left out" * bool(unnamed)
