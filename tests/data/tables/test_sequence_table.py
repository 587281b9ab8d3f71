"""Tables of sequences: what is read, and one line for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from milbench import UsageError
from milbench.data.tables.sequence_table import Event, SequenceTable, is_sequence_table, load_sequence_table


def load(folder: Path, text: str, **columns: str) -> SequenceTable:
    (folder / "t.csv").write_text(text, "utf-8")
    return load_sequence_table(folder / "t.csv", **columns)


def test_a_table_is_read(tmp_path: Path) -> None:
    table = load(
        tmp_path,
        '\ufefffile,labels,split,group,events,note\n'
        'a.npy,dog; cat,train,x,"[[""dog"", 1, 2.5], [""cat"", 0.5, 0.75], [""dog"", 3, 4]]",?\n'
        'sub/b.wav,,test,y,[],\n'
        '"c, d.npy",Käuzchen;Käuzchen,validation,x,,\n',
    )  # fmt: skip
    assert table.bags == ["a.npy", "sub/b.wav", "c, d.npy"]
    assert table.files == [tmp_path / "a.npy", tmp_path / "sub/b.wav", tmp_path / "c, d.npy"]
    assert table.class_names == ["Käuzchen", "cat", "dog"]
    assert table.labels.tolist() == [[False, True, True], [False] * 3, [True, False, False]]
    assert table.split == ["train", "test", "validation"]
    assert table.groups == ["x", "y", "x"]
    assert table.ignored == ["note"]
    assert table.events == [[Event(1, 0.5, 0.75), Event(2, 1, 2.5), Event(2, 3, 4)], [], []], "as they begin"
    assert table.timed().tolist() == [True, True, False]
    assert load(tmp_path, "file,labels\na,x\n").events is None


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".arrow", ".feather"])
def test_every_form_of_a_table_is_the_same_and_names_stay_text(tmp_path: Path, ending: str) -> None:
    rows = {"file": ["007", "1e3"], "species": ["01", ""], "events": ['[["01", 0, 1]]', ""]}
    frame, path = pd.DataFrame(rows), tmp_path / f"t{ending}"
    if ending in (".csv", ".tsv"):
        frame.to_csv(path, sep="," if ending == ".csv" else "\t", index=False)
    elif ending == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_feather(path)
    table = load_sequence_table(path, labels="species")
    assert table.bags == ["007", "1e3"]
    assert table.class_names == ["01"]
    assert table.events == [[Event(0, 0, 1)], []]


def test_classes_are_those_of_columns_of_0_and_1_or_in_an_order_of_ones_own(tmp_path: Path) -> None:
    table = load(tmp_path, "path,is_b,is_a\nx.npy,0,1\ny.npy,1,1\n", file="path", labels="is_*")
    assert table.class_names == ["is_b", "is_a"]
    assert table.labels.tolist() == [[False, True], [True, True]]
    ordered = load(tmp_path, "file,labels\nx.npy,a\n", classes="b;a")
    assert ordered.labels.tolist() == [[False, True]]


@pytest.mark.parametrize(("text", "complaint"), [
    ("", "t.csv is empty"),
    ("files,labels\na,b\n", "has no column 'file' .*did you mean 'files'"),
    ("file,labels\n", "has no rows below its header"),
    ("file,labels\na.npy,\n", "names no class in any row"),
    ("file,labels\na.npy,x\n,y\n", "row 3: the column 'file' is empty"),
    ("file,labels\na.npy,x\na.npy,y\n", "row 3: 'a.npy' is the sequence of row 2 too"),
    ("file,labels\na.npy,x,y\n", "row 2: got 3 fields, expected 2"),
    ("file,labels,split\na.npy,x,train\nb.npy,x\n", "row 3: got 2 fields, expected 3"),
    ("file,labels,split\na.npy,x,trian\n", "row 2: split 'trian'; did you mean 'train'"),
    ("file,labels,split\na.npy,x,train\n", "puts no bag into test"),
    ('file,labels,events\na.npy,x,"[[""x"", 1]]"\n', r"row 2: the event \['x', 1\] is wrong; expected \[\[class"),
    ("file,labels,events\na.npy,x,{\n", "row 2: events '{' cannot be read as JSON"),
    ("file,labels,events\na.npy,x,3\n", "row 2: events are '3'; expected"),
    ('file,labels,events\na.npy,x,"[[""x"", 2, 1]]"\n', r"row 2: the event \['x', 2, 1\] is wrong"),
    ('file,labels,events\na.npy,x,"[[""x"", NaN, 1]]"\n', r"row 2: the event .* is wrong"),
    ('file,labels,events\na.npy,x,"[[""x"", 0, 1e999]]"\n', r"row 2: the event .* is wrong"),
    ('file,labels,events\na.npy,x;z,"[[""x"", 0, 1]]"\n', r"row 2: the events are of \{x\}, .* the labels \{x, z\}"),
    ('file,labels,events\na.npy,xy,"[[""yx"", 0, 1]]"\n', "row 2: an event of 'yx', which is no class"),
    ("file,labels,events\na.npy,x,[]\n", r"row 2: the events are of \{\}"),
    ('file,labels\n"a.npy,x\n', "cannot be read as a table"),
])  # fmt: skip
def test_a_wrong_table_is_one_line_that_names_the_place(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "t.csv" in str(caught.value)


def test_the_digest_changes_with_labels_and_events_and_not_with_the_form(tmp_path: Path) -> None:
    def digest(events: str, label: str = "x") -> str:
        return load(tmp_path, f'file,labels,events\na,{label},"{events}"\n', classes="x;y").digest

    one = '[[""x"", 0, 1]]'
    assert digest(one) == digest(one.replace(" ", ""))
    assert len({digest(one), digest(""), digest("", "y"), digest('[[""x"", 0, 2]]')}) == 4


def test_a_table_of_sequences_is_told_from_others(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for header, found in (
        ("file,labels", True),
        ("bag,labels,file", False),
        ("image,labels,file", False),
        ("a", False),
    ):
        path.write_text(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
        assert is_sequence_table(path) is found
