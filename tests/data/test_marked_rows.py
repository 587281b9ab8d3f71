"""Tables with a row for each event or box: label sets, and when or where classes are.

Expected events and boxes are written by hand.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

from milbench import UsageError
from milbench.data.bag_checks import check_bags
from milbench.data.findings import fatal
from milbench.data.load_bags import load_bags
from milbench.data.new_bags import new_sequences
from milbench.data.own_bags import OwnBags
from milbench.data.splits import split_bags
from milbench.data.table_options import ImageOptions, SequenceOptions
from tests._helpers.command_line import Milbench

# A table in the form of the data set DESED.
DESED = """filename\tonset\toffset\tevent_label
a.npy\t1.0\t2.5\tdog
b.npy\t\t\t
a.npy\t0.25\t0.5\tcat
c.npy\t3\t4\tdog
a.npy\t3\t4\tdog
"""
EVENTS = SequenceOptions(table="", rows="events", frames_per_second=10)


def write_recordings(folder: Path) -> None:
    """Write recordings of five seconds, at ten frames a second."""
    for number, name in enumerate("abc"):
        np.save(folder / f"{name}.npy", np.random.default_rng(number).normal(size=(50, 2)))


def load(
    folder: Path, text: str, options: SequenceOptions = EVENTS, name: str = "t.csv"
) -> OwnBags:
    """Return the bags of a table with this text, beside the recordings a, b and c."""
    write_recordings(folder)
    (folder / name).write_text(text)
    return load_bags(folder / name, options)


def load_tabs(folder: Path, text: str) -> OwnBags:
    """Return the bags of a table whose fields are separated by tabs."""
    return load(folder, text, name="t.tsv")


def test_rows_of_a_file_make_its_label_set(tmp_path: Path) -> None:
    bags = load_tabs(tmp_path, DESED)
    assert bags.bags == ["a.npy", "b.npy", "c.npy"]
    assert bags.class_names == ["cat", "dog"]
    assert bags.labels.tolist() == [[True, True], [False, False], [False, True]]


def test_times_of_rows_are_the_events_of_a_file(tmp_path: Path) -> None:
    bags = load_tabs(tmp_path, DESED)
    cat, dog = 0, 1
    assert bags.marks == [
        [(cat, (0.25, 0.5)), (dog, (1.0, 2.5)), (dog, (3.0, 4.0))],
        [],
        [(dog, (3.0, 4.0))],
    ]


def test_rows_of_events_give_the_same_data_as_events_in_one_column(tmp_path: Path) -> None:
    of_rows = load_tabs(tmp_path, DESED)
    in_column = load(
        tmp_path,
        'file,labels,events\n'
        'a.npy,cat;dog,"[[""dog"", 1.0, 2.5], [""cat"", 0.25, 0.5], [""dog"", 3.0, 4.0]]"\n'
        'b.npy,,\n'
        'c.npy,dog,"[[""dog"", 3.0, 4.0]]"\n',
        SequenceOptions(table="", frames_per_second=10),
    )  # fmt: skip
    assert of_rows.digest == in_column.digest


def test_columns_of_raven_are_found(tmp_path: Path) -> None:
    bags = load_tabs(
        tmp_path,
        "Selection\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tBegin File\tSpecies\n"
        "1\t0.5\t1\t100\ta.npy\twren\n"
        "2\t1\t2\t100\tb.npy\towl\n",
    )  # fmt: skip
    owl, wren = 0, 1
    assert bags.marks == [[(wren, (0.5, 1.0))], [(owl, (1.0, 2.0))]]


def test_options_name_other_columns(tmp_path: Path) -> None:
    options = SequenceOptions(
        table="", rows="events", file="clip", labels="what", times="from;to", frames_per_second=10
    )
    bags = load(tmp_path, "clip,what,from,to\na.npy,owl,1,2\nb.npy,,,\n", options)
    assert bags.marks == [[(0, (1.0, 2.0))], []]


def test_labels_that_mean_nothing_are_no_events(tmp_path: Path) -> None:
    options = SequenceOptions(table="", rows="events", nothing="noise", frames_per_second=10)
    text = "file,label,start,end\na.npy,noise,0,1\na.npy,owl,1,2\nb.npy,noise,0,1\n"
    bags = load(tmp_path, text, options)
    assert bags.labels.tolist() == [[True], [False]]
    assert bags.marks == [[(0, (1.0, 2.0))], []]
    assert bags.nothing == {"noise": 2}


HEADER = "file,labels,start,end\n"


@pytest.mark.parametrize(("rows", "said"), [
    pytest.param("a.npy,owl,1,2\na.npy,owl,2,1\n",
                 "row 3: 'owl' in 'a.npy' has start=2, end=1;", id="backward"),
    pytest.param("a.npy,owl,-1,2\n",
                 "row 2: 'owl' in 'a.npy' has start=-1, end=2; expected", id="negative"),
    pytest.param("a.npy,owl,1,2\nb.npy,,,\na.npy,owl,1,2\n",
                 "row 4: 'owl' in 'a.npy': 1, 2 is in row 2", id="twice"),
    pytest.param("a.npy,owl,1,\n", "row 2: column 'end' is '', expected a number", id="no end"),
    pytest.param("a.npy,owl;wren,1,2\n",
                 "row 2: the label 'owl;wren' is 2 classes, expected one", id="two classes"),
    pytest.param("b.npy,owl,1,2\na.npy,,1,2\n",
                 "row 3: no label, and 'start' is 1", id="no label"),
    pytest.param("a.npy,owl,1,2\na.npy,,,\n",
                 "row 3: 'a.npy' has no label here, and row 2", id="both"),
    pytest.param(",owl,1,2\n", "row 2: the column 'file' is empty", id="no file"),
    pytest.param("a.npy,,,\n", "names no class in any row", id="no class"),
])  # fmt: skip
def test_a_wrong_row_is_named(tmp_path: Path, rows: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, HEADER + rows)
    assert said in str(caught.value)
    assert "t.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_event_after_its_recording_is_named_with_its_row(tmp_path: Path) -> None:
    bags = load(tmp_path, HEADER + "a.npy,owl,1,2\nb.npy,wren,1,2\na.npy,wren,5.5,6\n")
    detail = "a.npy (row 4) lasts 5 seconds and has 'wren' from 5.5"
    assert fatal(check_bags(bags, EVENTS)) == [f"events after the end: 1: {detail}"]


def test_an_event_that_ends_after_its_recording_is_warned_of(tmp_path: Path) -> None:
    bags = load(tmp_path, HEADER + "a.npy,owl,1,2\nb.npy,owl,1,2\na.npy,wren,4,6\n")
    details = {finding.what: finding.detail for finding in check_bags(bags, EVENTS)}
    assert "a.npy (row 4)" in details["events that end after their recording"]


def test_a_missing_file_is_named_with_its_first_row(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"t\.csv, row 4: away\.npy: not found"):
        load(tmp_path, HEADER + "a.npy,owl,1,2\na.npy,owl,3,4\naway.npy,owl,1,2\n")


def test_columns_that_are_not_found_are_shown_with_the_flag(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, "file,labels,from,to\na.npy,owl,1,2\n")
    said = str(caught.value)
    assert "no columns start;end or onset;offset" in said
    assert "it has: file, labels, from, to" in said
    assert said.endswith("-p task.times='START;END' says where they are")


def test_two_known_names_at_once_are_refused(tmp_path: Path) -> None:
    text = "file,label,species,Species,start,end\na.npy,owl,x,owl,1,2\n"
    with pytest.raises(UsageError, match="the columns label and Species, expected one"):
        load(tmp_path, text)


def test_a_file_in_two_rows_points_to_rows_of_events(tmp_path: Path) -> None:
    text = HEADER + "a.npy,owl,1,2\na.npy,wren,1,2\n"
    with pytest.raises(
        UsageError, match=r"-p task\.rows=events groups rows, by file, labels, start"
    ):
        load(tmp_path, text, SequenceOptions(table=""))


def test_new_files_are_each_predicted_once_and_need_no_labels(tmp_path: Path) -> None:
    write_recordings(tmp_path)
    (tmp_path / "new.csv").write_text("filename,onset\nb.npy,1\na.npy,1\nb.npy,2\n")
    found = new_sequences([tmp_path / "new.csv"], EVENTS, "frames of 2 features")
    assert [name for name, _, _ in found] == ["b.npy", "a.npy"]


ROWS_IN_PARTS = """file,labels,start,end,split
a.npy,owl,1,2,train
a.npy,owl,3,4,train
b.npy,owl,1,2,test
c.npy,,,,val
"""


def test_the_rows_of_a_file_say_its_part(tmp_path: Path) -> None:
    split = split_bags(load(tmp_path, ROWS_IN_PARTS), EVENTS, 0)
    assert [part.tolist() for part in split] == [[0], [2], [1]]


def test_rows_of_a_file_in_two_parts_are_refused(tmp_path: Path) -> None:
    apart = ROWS_IN_PARTS.replace("3,4,train", "3,4,test")
    with pytest.raises(UsageError, match="expected the same in all rows of a bag"):
        load(tmp_path, apart)


# A table in the form of PASCAL VOC.
VOC = """filename,width,height,class,xmin,ymin,xmax,ymax
0.png,40,20,cat,10,5,30,15
1.png,40,20,,,,,
0.png,40,20,dog,1,2,8,9
"""


def load_images(folder: Path, text: str, **options: Any) -> OwnBags:
    """Return the bags of a table with this text, beside two images of 40 by 20 pixels."""
    for number in range(2):
        Image.new("L", (40, 20), number).save(folder / f"{number}.png")
    (folder / "t.csv").write_text(text)
    return load_bags(folder / "t.csv", ImageOptions(table="", size=16, rows="boxes", **options))


def test_rows_of_boxes_make_label_sets_and_boxes(tmp_path: Path) -> None:
    bags = load_images(tmp_path, VOC)
    cat, dog = 0, 1
    assert bags.labels.tolist() == [[True, True], [False, False]]
    assert bags.marks == [[(cat, (10.0, 5.0, 30.0, 15.0)), (dog, (1.0, 2.0, 8.0, 9.0))], []]
    assert list(bags.ignored) == ["width", "height"]


def test_rows_of_centres_and_sizes_are_read(tmp_path: Path) -> None:
    text = "image,labels,x_center,y_center,width,height\n0.png,cat,0.5,0.5,0.5,0.5\n1.png,,,,,\n"
    bags = load_images(tmp_path, text, boxes="yolo")
    assert bags.marks == [[(0, (10.0, 5.0, 30.0, 15.0))], []]


def test_the_row_of_a_box_outside_its_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"row 4: the box 1, 2, 80, 9 of 'dog' in '0\.png' is outside"
    ):
        load_images(tmp_path, VOC.replace("1,2,8,9", "1,2,80,9"))


def test_the_table_of_a_folder_with_events_reads_back(
    tmp_path: Path, milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "clips"
    folder.mkdir()
    for number, name in enumerate("ab"):
        noise = np.random.default_rng(number).normal(size=8000) * 0.1
        soundfile.write(folder / f"{name}.wav", noise, 4000)
    (folder / "strong.csv").write_text(
        "filename,onset,offset,event_label\na.wav,0,1,dog\na.wav,1,2,cat\nb.wav,,,\n"
    )
    said = milbench("data", "table", "clips").done()
    assert "milbench data check clips.csv -p task.rows=events" in said
    bags = load_bags(tmp_path / "clips.csv", SequenceOptions(table="", rows="events"))
    cat, dog = 0, 1
    assert bags.labels.tolist() == [[True, True], [False, False]]
    assert bags.marks == [[(dog, (0.0, 1.0)), (cat, (1.0, 2.0))], []]
