import functools
import hashlib
import re
import shlex
import threading
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
from tests._helpers.command_line import Milbench


def test_a_damaged_data_file_is_named_with_what_was_expected(
    milbench: Milbench, tmp_path: Path
) -> None:
    parts = DATASETS["mnist"].parts
    for file in parts:
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.path).write_bytes(b"\0" * 100)
    words = ("run", "--loss", "exact", "--task", "extended-mnist", "--data-dir", str(tmp_path))
    complaint = milbench(*words).complaint()
    assert (
        f"{tmp_path / parts[0].path} is damaged: expected MD5 6bbc9ace898e44ae57da46a324031adb, found"
        in complaint
    )
    shown = milbench("data", "list", "--data-dir", str(tmp_path))
    assert shown.code == 1
    assert shown.out.splitlines()[-1] == f"next: milbench data fetch NAME --data-dir {tmp_path}"
    assert "damaged" in shown.out


def test_a_table_is_checked_with_the_settings_of_a_run(milbench: Milbench, tmp_path: Path) -> None:
    table = tmp_path / "my bags.csv"
    table.write_text("id,has_x,f,g\n007,1,1,2\n007,1,2,3\n8,0,3,4\n9,1,4,5\n")
    columns = ("-p", "task.bag=id", "-p", "task.labels=has_*", "-p", "task.features=f")
    shown = milbench("data", "check", str(table), *columns).done()
    assert "3, with 4 instances" in shown
    words = shlex.split(shown.splitlines()[-1])
    assert words[-8:] == ["-p", f"task.table={table}", *columns], "a shell reads what was given"
    for setting, complaint in {
        "bag=id": "-p bag=id: expected task.KEY=VALUE",
        "task.lables=has_*": "unknown parameter of features of .*my bags.csv 'lables'; did you mean 'labels'",
        "task.features=h": "my bags.csv has no column 'h'",
        "task.labels=x": r"no column 'x' \(the classes .*\(it has: id, has_x, f, g\)",
    }.items():
        assert re.search(
            complaint, milbench("data", "check", str(table), *columns, "-p", setting).complaint()
        )
    (tmp_path / "s.csv").write_text("file,labels\na.wav,x\n")
    said = milbench("data", "check", str(tmp_path / "s.csv"), "-p", "task.bands=0").complaint()
    assert "s.csv: bands = 0 is wrong" in said


def test_published_weights_are_fetched_checked_and_used(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    torch.save(models.get_model("resnet18", weights=None).state_dict(), served / "net.pth")
    file = f"net-{hashlib.sha256((served / 'net.pth').read_bytes()).hexdigest()[:8]}.pth"
    (served / "net.pth").rename(served / file)
    words = ("data", "weights", "resnet18", "--data-dir", str(tmp_path))
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        entry = SimpleNamespace(
            DEFAULT=SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}/{file}")
        )
        monkeypatch.setattr(models, "get_model_weights", lambda _: entry)
        said = milbench(*words).done()
        server.shutdown()
    assert f"--network resnet18 -p network.weights=weights/{file}" in said
    assert {"conv1.weight", "fc.bias"} <= {*read_weights(tmp_path / "weights" / file)}
    milbench(*words).done()  # without the server
    (tmp_path / "weights" / file).write_text("<html>log in first</html>")
    assert f"{file} cannot be read as weights" in milbench(*words).complaint()


def test_every_setting_of_a_run_is_taken_and_the_plan_repeats_the_warnings(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"r{n},{label},{n},P{n // 2}" for n, label in enumerate(["a", "b", '"a,b"', ""] * 10)]
    Path("t.csv").write_text("\n".join(["0,species,f0,patient_id", *rows]))
    words = [
        "task.bag=0",
        "task.labels=species",
        "task.test=0.3",
        "task.batch_bags=4,8",
        "recipe.epochs=1",
    ]
    given = [word for setting in words for word in ("-p", setting)]
    shown = milbench("data", "check", "t.csv", *given).done()
    assert "'a,b' may be several classes; -p task.separator=, takes them apart" in shown.replace(
        "\n", " "
    )
    assert shown.endswith(" -p task.separator=,\n"), "the next command reads them so"
    assert (
        "test = 2 is wrong"
        in milbench("data", "check", "t.csv", *given, "-p", "task.test=2").complaint()
    )
    run = (
        "run",
        "--loss",
        "exact",
        "--task",
        "feature-bags",
        "-p",
        "task.table=t.csv",
        "-p",
        'task.bag="0"',
    )
    plan = " ".join(milbench(*run, *given[2:], "--dry-run").done().split())
    assert (
        "t.csv: classes that read like several: 'a,b' may be several classes; -p task.separator=,"
        in plan
    )
    assert plan.count("task.group=patient_id") == 1
    apart = milbench(
        "data", "check", "t.csv", *given, "-p", "task.separator=,", "-p", "task.group=patient_id"
    )
    assert "several" not in apart.out
    assert "20, each wholly in one part of a split" in apart.out


def test_a_folder_becomes_a_table_that_explains_its_labels(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("pics/cat", "pics/dog", "slides/feats"):
        Path(folder).mkdir(parents=True)
    for n in range(6):
        Image.linear_gradient("L").crop((0, n, 9, n + 9)).save(
            f"pics/{'cat' if n % 2 else 'dog'}/{n}.png"
        )
        np.save(f"slides/feats/s{n}.npy", np.full((3, 2), n) + np.arange(2))
    said = milbench("data", "table", "pics").done()
    assert "pics.csv: 6 rows; labels are the names of its folders: cat (3), dog (3)" in said
    milbench("data", "check", "pics.csv").done()
    assert "pics.csv is there already" in milbench("data", "table", "pics").complaint()
    assert "`milbench data table pics` writes one" in milbench("data", "check", "pics").complaint()
    rows = "".join(f"s{n};{'ab'[n % 2]};P{n}\n" for n in range(7))
    Path("slides/about.csv").write_text(f"slide;diagnosis;case_id\n{rows}")
    semicolons = ("-p", "task.field_separator=;")
    said = milbench("data", "table", "slides", "--out", "bags.csv", *semicolons).done()
    assert (
        "labels are the column 'diagnosis' of slides/about.csv, whose column 'slide' names the files"
        in said
    )
    assert "1 rows without a file are left out" in said
    assert (
        "6, with 18 instances"
        in milbench("data", "check", "bags.csv", "-p", "task.features=@path").done()
    )
    words = ("data", "table", "slides", "--out", "marks.csv")
    assert "no column 'lables'" in milbench(*words, *semicolons, "--labels", "lables").complaint()
    Path("slides/about.csv").write_text(
        "slide,wren,owl\n" + "".join(f"s{n},{n % 2},{n // 3}\n" for n in range(6))
    )
    assert (
        "labels are the columns wren, owl of 0 and 1 of slides/about.csv" in milbench(*words).done()
    )
    labels = pd.read_csv("marks.csv", keep_default_na=False)["labels"]
    assert [*labels] == ["", "wren", "", "wren;owl", "owl", "wren;owl"]
    Path("marks.csv").unlink()
    Path("slides/more.png").write_bytes(Path("pics/cat/1.png").read_bytes())
    assert "1 tables and files 6 .npy, 1 .png, expected one kind" in milbench(*words).complaint()
    assert not Path("marks.csv").exists()


def test_the_sample_is_a_table_that_can_be_used(milbench: Milbench, tmp_path: Path) -> None:
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


def test_losses_learn_from_the_sample_as_the_command_says(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = milbench("data", "sample", "birds.csv").done()
    command = next(line for line in said.splitlines() if line.startswith("  milbench run"))
    words = shlex.split(command)[1:]
    sentence = milbench(*words, "--seeds", "0-2").done().splitlines()[-2]
    assert "is shown to beat" not in sentence
    assert sentence.startswith("Best on birds") or "cannot be told apart" in sentence


def test_a_table_of_the_current_folder_needs_a_name(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    complaint = milbench("data", "table", ".").complaint()
    assert complaint.endswith(f"milbench data table . --out {tmp_path.name}.csv")


def test_a_table_of_a_folder_names_its_separator(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slides").mkdir()
    for name in ("s0", "s1"):
        np.save(f"slides/{name}.npy", np.eye(2))
    Path("slides/about.csv").write_text("slide;label\ns0;a\ns1;\n")
    complaint = milbench("data", "table", "slides").complaint()
    assert complaint.endswith("-p task.field_separator=';' reads slide, label")
    said = milbench("data", "table", "slides", "-p", "task.field_separator=;").done()
    assert "slides.csv: 2 rows; labels are the column 'label'" in said


def test_options_that_messages_name_check_a_table(milbench: Milbench, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = [f"r{n};{'owl' * (n % 2)};{n},5" for n in range(20)]
    table.write_text("\n".join(["bag;labels;pitch", *rows]))
    words = ["data", "check", str(table)]
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
    table = tmp_path / "t.csv"
    table.write_text(f"{kind};labels\na.png;x\nb.png;\n")
    complaint = milbench("data", "check", str(table)).complaint()
    assert complaint.endswith(f"-p task.field_separator=';' reads {kind}, labels")


def test_tab_and_space_are_separators_on_the_command_line(
    milbench: Milbench, tmp_path: Path
) -> None:
    for name, mark in {"tab": "\t", "space": " "}.items():
        table = tmp_path / f"{name}.csv"
        rows = [f"r{n},{'owl' if n % 2 else 'wren'},{n}" for n in range(6)]
        table.write_text("\n".join(["bag,labels,pitch", *rows]).replace(",", mark))
        for given in (name, mark):
            words = ("data", "check", str(table), "-p", f"task.field_separator={given}")
            assert "1: pitch" in milbench(*words).done()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("task.file=audio/*.wav", "is a pattern of files, expected the name of the column"),
        ("task.features=slides/*.zarr", "files .zarr are not read, expected .npy"),
        ("task.features=all.h5", "is one file, expected a file for each bag"),
        ("task.decimal=x", "decimal"),
        ("task.folds=1", "task.folds=1 leaves no bag to train on"),
    ],
)
def test_what_is_not_read_is_one_line(
    milbench: Milbench, tmp_path: Path, setting: str, expected: str
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("bag,labels,f\na,x,1\nb,,2\n")
    assert expected in milbench("data", "check", str(table), "-p", setting).complaint()


def test_the_plan_names_labels_that_may_mean_no_class(milbench: Milbench, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    labels = ["wren", "owl", "Background", "No Finding"]
    rows = [f"r{n},{labels[n % 4]},{n}" for n in range(40)]
    table.write_text("\n".join(["bag,labels,f", *rows]))
    words = ["run", "--loss", "exact", "--task", "feature-bags", "-p", f"task.table={table}"]
    plan = " ".join(milbench(*words, "--dry-run").done().split())
    assert "-p task.nothing='Background;No Finding' reads it so, and 20 of 40 bags" in plan
    words += ["-p", "task.nothing=Background;No Finding"]
    assert "read like nothing" not in milbench(*words, "--dry-run").done()
