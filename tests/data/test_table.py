from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from milbench.data.own_bags import Columns, load_bags
from milbench.data.table import read_table
from milbench.errors import UsageError


def test_names_of_bags_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeffbag , labels,f\n007,1,3\n1e3,2,4\n", "utf-8")
    found = read_table(path).frame
    assert found["bag"].tolist() == ["007", "1e3"]
    assert list(found.columns) == ["bag", "labels", "f"]


@pytest.mark.parametrize(("name", "content", "complaint"), [
    ("missing.csv", None, "there is no table .*missing.csv; did you mean 'missin.csv' beside it"),
    ("folder.csv", "", "is a folder, expected a table: a file .csv, .tsv or .parquet"),
    ("empty.csv", b"", "is empty, expected a header"),
    ("header.csv", b"bag,labels,f0\n", "has no rows below its header"),
    ("t.xlsx", b"PK", "expected a table .csv.*got a file .xlsx"),
    ("t", b"a", "got a file without an ending"),
    ("damaged.parquet", b"PAR1 and nothing", "cannot be read as a table"),
    ("pickle.csv", b"\x80\x04\x95\x00\x93", "cannot be read as a table"),
    ("long.csv", b"bag,labels,f0\na,b,1,2\n", "long.csv, row 2: got 4 fields, expected 3 as in the header"),
    ("short.tsv", b"bag\tf0\tlabels\na\t1\tx\nb\t2\n", "short.tsv, row 3: got 2 fields, expected 3"),
    ("twice.parquet", {"bag": ["a"], "f0": [1], "f0 ": [2]}, "several columns are named 'f0', expected one"),
    (
        "quote.csv",
        b'bag,labels,f0,note\na,x,1,"5 inch\nb,,2,plain\nc,x,3,"6 inch\nd,,4,plain\n',
        "quote.csv, row 2: a quotation mark is closed in a later row, expected in its own",
    ),
    (
        "middle.csv",
        b'bag,note,labels,f0\na,"foo,x,1\nb,bar",y,2\nc,p,y,3\n',
        "middle.csv, row 2: a quotation mark is closed in a later row",
    ),
    ("ragged.csv", b"bag,labels\na,b,c,d\ne,f\n1,2,3,4,5,6\n", "cannot be read as a table"),
])  # fmt: skip
def test_what_is_no_table_is_named_in_one_line(
    tmp_path: Path, name: str, content: bytes | str | dict[str, list[Any]] | None, complaint: str
) -> None:
    path = tmp_path / name
    (tmp_path / "missin.csv").write_text("bag\n1\n")
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        pd.DataFrame(content).to_parquet(path)
    elif content is not None:
        path.mkdir()
    with pytest.raises(UsageError, match=complaint) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_text_of_several_lines_is_no_mistake(tmp_path: Path, end: str) -> None:
    path = tmp_path / "t.csv"
    rows = ["image,labels,caption", 'a.png,dog,"A dog', 'on grass, under trees, at noon"', 'b.png,"cat" ,plain', ""]
    path.write_bytes(end.join(rows).encode())
    assert read_table(path).texts("labels").tolist() == ["dog", "cat"]
    path.write_bytes(end.join(["a, labels", '1, "x;y"', '2, ""', ""]).encode())
    assert read_table(path).frame["labels"].tolist() == ["x;y", ""], "spaces behind a separator belong to no field"
    rows = ["bag,note,f0,f1", 'a,"so, said', 'he, 5",1,2', 'b,"5"" wide",3,4', ""]
    path.write_bytes(end.join(rows).encode())
    assert read_table(path).frame["f1"].tolist() == [2, 4]


def test_a_table_that_is_read_in_chunks_is_the_one_that_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((300, 3)), columns=["f0", "f1", "f2"])
    frame["bag"] = rng.integers(0, 20, 300)
    frame["labels"] = np.where(frame["bag"] % 2, "odd", "")
    frame["instance_label"] = np.where(rng.random(300) < 0.2, frame["labels"], "")
    frame.to_csv(path := tmp_path / "t.csv", index=False)
    whole = load_bags(path, Columns())
    monkeypatch.setenv("MILBENCH_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setattr("milbench.data.table_files.CHUNK", 1)  # 64 rows
    parts = load_bags(path, Columns())
    assert parts.digest == whole.digest
    assert parts.rows is not None
    assert all(np.array_equal(parts.store[b], whole.store[b]) for b in range(20))
    assert np.array_equal(parts.rows, np.argsort(pd.factorize(frame["bag"])[0], kind="stable"))
    assert np.array_equal(parts.store.means, whole.store.means)
    assert {p.name for p in (tmp_path / "elsewhere").rglob("*.npy")} == {p.name for p in tmp_path.glob(".bags/*/*.npy")}
    frame["f1"] = frame["f1"].astype(object)
    frame.loc[250, "f1"] = "seven"
    frame.to_csv(path, index=False)
    with pytest.raises(UsageError, match=r"t.csv, row 252: column 'f1' is 'seven', expected a number"):
        load_bags(path, Columns())
