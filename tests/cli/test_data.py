"""`milbench data`: data sets, published weights, and tables of a user's own bags."""

import functools
import hashlib
import shlex
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torchvision import models

from milbench.data.catalog import DATASETS
from milbench.networks.backbone import read_weights
from tests._helpers.command_line import Milbench, assignments


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working folder of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_rows(table: Path, header: str, rows: list[str]) -> Path:
    """Write a table and return its path."""
    table.write_text("\n".join([header, *rows]))
    return table


def in_one_line(shown: str) -> str:
    """Return what was printed, with line breaks and spaces of tables replaced by one space."""
    return " ".join(shown.split())


@pytest.fixture
def damaged_data(tmp_path: Path) -> Path:
    """A data folder in which every file of MNIST has a wrong content."""
    for part in DATASETS["mnist"].parts:
        path = tmp_path / part.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\0" * 100)
    return tmp_path


def test_a_damaged_data_file_is_named_with_what_was_expected(
    milbench: Milbench, damaged_data: Path
) -> None:
    words = ["run", "--loss", "exact", "--task", "extended-mnist", "--data-dir", str(damaged_data)]
    complaint = milbench(*words).complaint()
    first = damaged_data / DATASETS["mnist"].parts[0].path
    # The MD5 of the training images, as torchvision has it.
    expected = "expected MD5 6bbc9ace898e44ae57da46a324031adb, found"
    assert f"{first} is damaged: {expected}" in complaint


def test_the_list_of_data_sets_shows_damage(milbench: Milbench, damaged_data: Path) -> None:
    shown = milbench("data", "list", "--data-dir", str(damaged_data))
    assert shown.code == 1
    assert "damaged" in shown.out
    last = shown.out.splitlines()[-1]
    assert last == f"next: milbench data fetch NAME --data-dir {damaged_data}"


@pytest.fixture
def numbered_bags(tmp_path: Path) -> Path:
    """A table of three bags, of which one has two instances; its columns have unusual names."""
    rows = ["007,1,1,2", "007,1,2,3", "8,0,3,4", "9,1,4,5"]
    return write_rows(tmp_path / "my bags.csv", "id,has_x,f,g", rows)


COLUMNS = ("-p", "task.bag=id", "-p", "task.labels=has_*", "-p", "task.features=f")
"""The settings that read `numbered_bags`."""


def test_a_table_is_checked_with_the_settings_of_a_run(
    milbench: Milbench, numbered_bags: Path
) -> None:
    shown = milbench("data", "check", str(numbered_bags), *COLUMNS).done()
    assert "3, with 4 instances" in shown
    next_command = shown.splitlines()[-1]
    # Although the path has a space, a shell reads the command as it was given.
    settings = ["-p", f"task.table={numbered_bags}", *COLUMNS]
    assert shlex.split(next_command)[-len(settings) :] == settings


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        pytest.param("bag=id", ["-p bag=id: expected task.KEY=VALUE"], id="no section"),
        pytest.param(
            "task.lables=has_*",
            ["unknown parameter of features of ", "my bags.csv 'lables'; did you mean 'labels'"],
            id="unknown parameter",
        ),
        pytest.param("task.features=h", ["my bags.csv has no column 'h'"], id="no such feature"),
        pytest.param(
            "task.labels=x",
            ["no column 'x' (the classes ", "(it has: id, has_x, f, g)"],
            id="no such label",
        ),
    ],
)
def test_a_wrong_setting_of_a_check_is_one_line(
    milbench: Milbench, numbered_bags: Path, setting: str, says: list[str]
) -> None:
    words = ["data", "check", str(numbered_bags), *COLUMNS, "-p", setting]
    complaint = milbench(*words).complaint()
    for part in says:
        assert part in complaint


def test_a_setting_of_sequences_is_checked(milbench: Milbench, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "s.csv", "file,labels", ["a.wav,x"])
    said = milbench("data", "check", str(table), "-p", "task.bands=0").complaint()
    assert "s.csv: bands = 0 is wrong" in said


@pytest.fixture
def published_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a file with weights of resnet18, served in place of torchvision's."""
    folder = tmp_path / "served"
    folder.mkdir()
    weights = folder / "net.pth"
    torch.save(models.get_model("resnet18", weights=None).state_dict(), weights)
    # Torchvision's files are checked by the first digits of their digest, which are in the name.
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    name = f"net-{digest[:8]}.pth"
    weights.rename(folder / name)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        default = SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}/{name}")
        monkeypatch.setattr(models, "get_model_weights", lambda _: SimpleNamespace(DEFAULT=default))
        yield name
        server.shutdown()


def test_published_weights_are_fetched_and_can_be_read(
    milbench: Milbench, tmp_path: Path, published_weights: str
) -> None:
    said = milbench("data", "weights", "resnet18", "--data-dir", str(tmp_path)).done()
    assert f"--network resnet18 -p network.weights=weights/{published_weights}" in said
    tensors = read_weights(tmp_path / "weights" / published_weights)
    assert {"conv1.weight", "fc.bias"} <= tensors.keys()


def test_weights_are_fetched_once(
    milbench: Milbench, tmp_path: Path, published_weights: str
) -> None:
    words = ["data", "weights", "resnet18", "--data-dir", str(tmp_path)]
    milbench(*words).done()
    # From now on the server has no file.
    (tmp_path / "served" / published_weights).unlink()
    milbench(*words).done()


def test_damaged_weights_are_named(
    milbench: Milbench, tmp_path: Path, published_weights: str
) -> None:
    words = ["data", "weights", "resnet18", "--data-dir", str(tmp_path)]
    milbench(*words).done()
    (tmp_path / "weights" / published_weights).write_text("<html>log in first</html>")
    assert f"{published_weights} cannot be read as weights" in milbench(*words).complaint()


@pytest.fixture
def patients(here: Path) -> None:
    """Write a table of 40 bags, two of each patient; some labels read like two classes."""
    labels = ["a", "b", '"a,b"', ""] * 10
    rows = [f"r{n},{label},{n},P{n // 2}" for n, label in enumerate(labels)]
    write_rows(here / "t.csv", "0,species,f0,patient_id", rows)


SETTINGS_BUT_BAG = assignments(
    {"task.labels": "species", "task.test": "0.3", "task.batch_bags": "4,8"}
)
"""Settings of a run on the table of patients, without the column of the bags.

Two batch sizes are compared.
"""
READS_PATIENTS = ["-p", "task.bag=0", *SETTINGS_BUT_BAG]
"""These settings, and the column of the bags."""
MAY_BE_SEVERAL = "'a,b' may be several classes; -p task.separator=,"


@pytest.mark.usefixtures("patients")
def test_a_check_takes_every_setting_of_a_run(milbench: Milbench) -> None:
    words = ["data", "check", "t.csv", *READS_PATIENTS, "-p", "recipe.epochs=1"]
    shown = milbench(*words).done()
    assert f"{MAY_BE_SEVERAL} takes them apart" in shown.replace("\n", " ")
    assert shown.endswith(" -p task.separator=,\n"), "the next command has this setting"


@pytest.mark.usefixtures("patients")
def test_the_last_of_two_settings_of_a_check_counts(milbench: Milbench) -> None:
    words = ["data", "check", "t.csv", *READS_PATIENTS, "-p", "task.test=2"]
    assert "test = 2 is wrong" in milbench(*words).complaint()


@pytest.mark.usefixtures("patients")
def test_the_plan_repeats_the_warnings_of_a_check(milbench: Milbench) -> None:
    words = ["run", "--loss", "exact", "--task", "feature-bags", "-p", "task.table=t.csv"]
    # A run reads 0 as a number, and "0" as the name of a column.
    words += ["-p", 'task.bag="0"', *SETTINGS_BUT_BAG, "-p", "recipe.epochs=1"]
    plan = in_one_line(milbench(*words, "--dry-run").done())
    assert f"t.csv: classes that read like several: {MAY_BE_SEVERAL}" in plan
    assert plan.count("task.group=patient_id") == 1


@pytest.mark.usefixtures("patients")
def test_settings_that_warnings_name_silence_them(milbench: Milbench) -> None:
    named = ["-p", "task.separator=,", "-p", "task.group=patient_id"]
    # The exit code is 2, and not checked: with this separator, some bags of one instance have two
    # classes, which is fatal.
    shown = milbench("data", "check", "t.csv", *READS_PATIENTS, *named).out
    assert "several" not in shown
    # The 40 bags are two of each of 20 patients.
    assert "20, each wholly in one part of a split" in shown


@pytest.fixture
def pictures(here: Path) -> None:
    """Write three pictures into each of two folders."""
    for number in range(6):
        animal = "cat" if number % 2 == 1 else "dog"
        folder = Path("pics", animal)
        folder.mkdir(parents=True, exist_ok=True)
        picture = Image.linear_gradient("L").crop((0, number, 9, number + 9))
        picture.save(folder / f"{number}.png")


@pytest.fixture
def slides(here: Path) -> Path:
    """Write features of six slides with three instances each; the path of a table about them.

    The fixtures `diagnoses` and `birds` write the table.
    """
    features = Path("slides", "feats")
    features.mkdir(parents=True)
    for number in range(6):
        np.save(features / f"s{number}.npy", np.full((3, 2), number) + np.arange(2))
    return Path("slides", "about.csv")


@pytest.fixture
def diagnoses(slides: Path) -> None:
    """Write a table about seven slides, of which one has no file; semicolons separate fields."""
    labels = ["a", "b", "a", "b", "a", "b", "a"]
    rows = [f"s{number};{label};P{number}" for number, label in enumerate(labels)]
    write_rows(slides, "slide;diagnosis;case_id", rows)


@pytest.fixture
def birds(slides: Path) -> None:
    """Write a table about six slides, with a column of 0 and 1 for each class."""
    rows = ["s0,0,0", "s1,1,0", "s2,0,0", "s3,1,1", "s4,0,1", "s5,1,1"]
    write_rows(slides, "slide,wren,owl", rows)


@pytest.mark.usefixtures("pictures")
def test_names_of_folders_become_labels(milbench: Milbench) -> None:
    said = milbench("data", "table", "pics").done()
    assert "pics.csv: 6 rows; labels are the names of its folders: cat (3), dog (3)" in said
    milbench("data", "check", "pics.csv").done()


@pytest.mark.usefixtures("pictures")
def test_a_picture_beside_the_parts_of_a_split_is_left_out(milbench: Milbench) -> None:
    Path("split").mkdir()
    Path("pics").rename("split/train")
    Path("split/train/cat/1.png").rename("split/preview.png")
    said = milbench("data", "table", "split").done()
    assert "its folders: cat (2), dog (3); 1 files in no folder of a class are left out" in said
    table = pd.read_csv("split.csv")
    assert {*table["split"]} == {"train"}


@pytest.mark.usefixtures("here")
def test_files_that_differ_in_their_endings_are_two_bags(milbench: Milbench) -> None:
    features = np.eye(2, dtype=np.float32)
    for label in ("a", "b"):
        Path("slides", label).mkdir(parents=True)
        np.save(f"slides/{label}/x.npy", features)
        np.savez(f"slides/{label}/x.npz", features=features)
    milbench("data", "table", "slides").done()
    assert pd.read_csv("slides.csv")["bag"].nunique() == 4


@pytest.mark.usefixtures("pictures")
def test_files_in_hidden_folders_are_no_bags(milbench: Milbench) -> None:
    Path("pics/.ipynb_checkpoints").mkdir()
    shutil.copy("pics/cat/1.png", "pics/.ipynb_checkpoints/1.png")
    said = milbench("data", "table", "pics").done()
    assert "6 rows; labels are the names of its folders: cat (3), dog (3)" in said


@pytest.mark.parametrize(
    ("header", "named"),
    [
        pytest.param("slide,species,labels", "labels", id="a second column of labels"),
        pytest.param("slide,species,bag", "bag", id="names of bags"),
        pytest.param("slide,species,path", "path", id="other paths"),
    ],
)
def test_a_column_that_the_new_table_needs_is_named(
    milbench: Milbench, slides: Path, header: str, named: str
) -> None:
    write_rows(slides, header, ["s0,wren,x", "s1,owl,y"])
    words = ["data", "table", "slides", "--out", "bags.csv", "--labels", "species"]
    complaint = milbench(*words).complaint()
    assert f"slides/about.csv has a column {named!r}" in complaint
    assert not Path("bags.csv").exists()


@pytest.mark.usefixtures("pictures")
def test_the_table_of_a_folder_overwrites_nothing(milbench: Milbench) -> None:
    Path("pics.csv").write_text("mine")
    assert "pics.csv is there already" in milbench("data", "table", "pics").complaint()
    assert Path("pics.csv").read_text() == "mine"


@pytest.mark.usefixtures("pictures")
def test_the_check_of_a_folder_names_the_command_for_a_table(milbench: Milbench) -> None:
    complaint = milbench("data", "check", "pics").complaint()
    assert "`milbench data table pics` writes one" in complaint


SEMICOLONS = ("-p", "task.field_separator=;")


@pytest.mark.usefixtures("diagnoses")
def test_a_column_of_a_csv_file_becomes_labels(milbench: Milbench) -> None:
    said = milbench("data", "table", "slides", "--out", "bags.csv", *SEMICOLONS).done()
    source = "the column 'diagnosis' of slides/about.csv, whose column 'slide' names the files"
    assert f"labels are {source}" in said
    assert "1 rows without a file are left out" in said
    shown = milbench("data", "check", "bags.csv", "-p", "task.features=@path").done()
    # The slides with a file are six, of three instances each.
    assert "6, with 18 instances" in shown


@pytest.mark.usefixtures("diagnoses")
def test_a_missing_column_of_labels_is_named(milbench: Milbench) -> None:
    words = ["data", "table", "slides", "--out", "bags.csv", *SEMICOLONS, "--labels", "lables"]
    assert "no column 'lables'" in milbench(*words).complaint()


@pytest.mark.usefixtures("birds")
def test_columns_of_0_and_1_become_label_sets(milbench: Milbench) -> None:
    said = milbench("data", "table", "slides", "--out", "birds.csv").done()
    assert "labels are the columns wren, owl of 0 and 1 of slides/about.csv" in said
    labels = pd.read_csv("birds.csv", keep_default_na=False)["labels"]
    # Every second slide has a wren, the last three have an owl.
    assert [*labels] == ["", "wren", "", "wren;owl", "owl", "wren;owl"]


@pytest.mark.usefixtures("birds", "pictures")
def test_a_folder_of_several_kinds_of_files_is_refused(milbench: Milbench) -> None:
    Path("pics/cat/1.png").rename("slides/more.png")
    complaint = milbench("data", "table", "slides", "--out", "birds.csv").complaint()
    assert "1 tables and files 6 .npy, 1 .png, expected one kind" in complaint
    assert not Path("birds.csv").exists()


def test_the_sample_is_a_table_that_passes_the_check(milbench: Milbench, tmp_path: Path) -> None:
    table = tmp_path / "birds.csv"
    said = milbench("data", "sample", str(table)).done()
    assert said.splitlines()[-1] == f"next: milbench data check {table}"
    assert "milbench report birds" in said
    frame = pd.read_csv(table, keep_default_na=False)
    assert frame["bag"].nunique() == 120
    assert set(";".join(frame["labels"]).split(";")) == {"wren", "nuthatch", "robin", ""}
    assert "120, with" in milbench("data", "check", str(table)).done()


def test_the_sample_is_the_same_every_time(milbench: Milbench, tmp_path: Path) -> None:
    for name in ("one.csv", "two.csv"):
        milbench("data", "sample", str(tmp_path / name)).done()
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def test_the_sample_overwrites_nothing(milbench: Milbench, tmp_path: Path) -> None:
    (tmp_path / "birds.csv").write_text("mine")
    complaint = milbench("data", "sample", str(tmp_path / "birds.csv")).complaint()
    assert "is there already" in complaint
    assert (tmp_path / "birds.csv").read_text() == "mine"


@pytest.mark.usefixtures("here")
def test_losses_learn_from_the_sample_as_the_command_says(milbench: Milbench) -> None:
    said = milbench("data", "sample", "birds.csv").done()
    command = next(line for line in said.splitlines() if line.startswith("  milbench run"))
    words = shlex.split(command)[1:]
    sentence = milbench(*words, "--seeds", "0-2").done().splitlines()[-2]
    assert "is shown to beat" not in sentence
    assert sentence.startswith("Best on birds") or "cannot be told apart" in sentence


def test_a_table_of_the_current_folder_needs_a_name(milbench: Milbench, here: Path) -> None:
    complaint = milbench("data", "table", ".").complaint()
    assert complaint.endswith(f"milbench data table . --out {here.name}.csv")


@pytest.mark.usefixtures("here")
def test_a_table_of_a_folder_names_its_separator(milbench: Milbench) -> None:
    Path("slides").mkdir()
    for name in ("s0", "s1"):
        np.save(f"slides/{name}.npy", np.eye(2))
    write_rows(Path("slides/about.csv"), "slide;label", ["s0;a", "s1;"])
    complaint = milbench("data", "table", "slides").complaint()
    assert complaint.endswith("-p task.field_separator=';' reads slide, label")
    said = milbench("data", "table", "slides", *SEMICOLONS).done()
    assert "slides.csv: 2 rows; labels are the column 'label'" in said


def test_options_that_messages_name_check_a_table(milbench: Milbench, tmp_path: Path) -> None:
    labels = ["", "owl"] * 10
    rows = [f"r{n};{label};{n},5" for n, label in enumerate(labels)]
    table = write_rows(tmp_path / "t.csv", "bag;labels;pitch", rows)
    words = ["data", "check", str(table)]
    # Without the first option the second mistake cannot be seen.
    for named in ("-p task.field_separator=';'", "-p task.decimal=,"):
        assert named in milbench(*words).complaint()
        words += shlex.split(named)
    shown = milbench(*words).done()
    assert "separated by semicolons, decimals behind ','" in shown
    assert shown.splitlines()[-1].endswith("-p 'task.field_separator=;' -p task.decimal=,")


@pytest.mark.parametrize("kind", ["image", "file"])
def test_a_table_of_images_or_sequences_names_its_separator(
    milbench: Milbench, tmp_path: Path, kind: str
) -> None:
    table = write_rows(tmp_path / "t.csv", f"{kind};labels", ["a.png;x", "b.png;"])
    complaint = milbench("data", "check", str(table)).complaint()
    assert complaint.endswith(f"-p task.field_separator=';' reads {kind}, labels")


@pytest.mark.parametrize(
    ("separator", "given"),
    [
        pytest.param("\t", "tab", id="tab by name"),
        pytest.param("\t", "\t", id="tab"),
        pytest.param(" ", "space", id="space by name"),
        pytest.param(" ", " ", id="space"),
    ],
)
def test_tab_and_space_are_separators_on_the_command_line(
    milbench: Milbench, tmp_path: Path, separator: str, given: str
) -> None:
    birds = ["wren", "owl"] * 3
    rows = [separator.join([f"r{n}", bird, str(n)]) for n, bird in enumerate(birds)]
    table = write_rows(tmp_path / "t.csv", separator.join(["bag", "labels", "pitch"]), rows)
    words = ["data", "check", str(table), "-p", f"task.field_separator={given}"]
    assert "1: pitch" in milbench(*words).done()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        pytest.param(
            "task.file=audio/*.wav",
            "is a pattern of files, expected the name of the column",
            id="pattern for a column",
        ),
        pytest.param(
            "task.features=slides/*.zarr",
            "files .zarr are not read, expected .npy",
            id="unknown ending",
        ),
        pytest.param(
            "task.features=all.h5",
            "is one file, expected a file for each bag",
            id="one file for all bags",
        ),
        pytest.param("task.decimal=x", "decimal", id="letter for a decimal point"),
        pytest.param("task.folds=1", "task.folds=1 leaves no bag to train on", id="one fold"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_in_one_line(
    milbench: Milbench, tmp_path: Path, setting: str, expected: str
) -> None:
    table = write_rows(tmp_path / "t.csv", "bag,labels,f", ["a,x,1", "b,,2"])
    assert expected in milbench("data", "check", str(table), "-p", setting).complaint()


def test_the_plan_names_labels_that_may_mean_no_class(milbench: Milbench, tmp_path: Path) -> None:
    labels = ["wren", "owl", "Background", "No Finding"] * 10
    rows = [f"r{n},{label},{n}" for n, label in enumerate(labels)]
    table = write_rows(tmp_path / "t.csv", "bag,labels,f", rows)
    words = ["run", "--loss", "exact", "--task", "feature-bags", "-p", f"task.table={table}"]
    plan = in_one_line(milbench(*words, "--dry-run").done())
    assert "-p task.nothing='Background;No Finding' reads it so, and 20 of 40 bags" in plan
    words += ["-p", "task.nothing=Background;No Finding"]
    assert "read like nothing" not in milbench(*words, "--dry-run").done()
