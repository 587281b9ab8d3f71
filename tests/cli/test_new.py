"""`milbench new`: what it writes runs as it is."""

import re
import sys
from pathlib import Path

import pytest

from milbench.store.folders import results
from tests._helpers.command_line import SMALL, Milbench


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_what_it_writes_runs_and_passes_its_tests(
    milbench: Milbench,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for words in (("loss", "lse-pool"), ("task", "some-points"), ("network", "two-layers")):
        milbench("new", *words).done()
    stems = {"lse_pool", "some_points", "two_layers"}
    assert {path.name for path in here.iterdir()} == {
        f"{test}{stem}.py" for stem in stems for test in ("", "test_")
    }
    assert not any(
        re.search("my.?(loss|task|network)", path.read_text(), re.IGNORECASE)
        for path in here.iterdir()
    )
    milbench(
        "run", "--loss", "lse_pool.py,exact", "--task", "extended-digits,some_points.py", *SMALL
    ).done()
    networks = ("--network", "default,two_layers.py", "-p", "network.width=4")
    milbench("run", "--loss", "exact", "--task", "extended-digits", *networks, *SMALL).done()
    # In this process, since another one would import torch again; the templates' own tests are among these tests.
    own = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:timeout",
        "-W",
        "error::pytest.PytestWarning",
        "--rootdir",
        str(here),
    ]
    assert pytest.main(["-q", *own, "-k", "not derivatives", str(here)]) == pytest.ExitCode.OK
    assert int(re.findall(r"(\d+) passed", capsys.readouterr().out)[0]) > 47
    for name in {stem for stem in sys.modules if stem.removeprefix("test_") in stems}:
        del sys.modules[name]


@pytest.mark.drawn
def test_a_task_without_truth_is_ranked_by_the_set_error(
    milbench: Milbench, root: Path, here: Path
) -> None:
    milbench("new", "task", "bare").done()
    file = here / "bare.py"
    text = file.read_text()
    assert ", mask, truth)" in text
    file.write_text(text.replace(", mask, truth)", ", mask)"))
    losses = "exact,max-pooling,noisy-or"
    milbench(
        "run", "--loss", losses, "--task", "bare.py", "--seeds", "0-1", "-p", "recipe.epochs=2"
    ).done()
    milbench("report", "bare").done()
    stored = results(root, "bare")
    assert {info.primary for info in stored.plan.tasks.values()} == {"set_error"}
    frame = stored.frame
    assert {*frame.status} == {"done"}
    tested = {
        name.removeprefix("test/") for name in frame.metric.unique() if name.startswith("test/")
    }
    others = {"nll", "presence_ece", "set_ece", "no_skill_set_error", "no_skill_label_error"}
    assert (
        tested
        == {"set_error", "label_error", "own_label_error", "macro_f1", "own_macro_f1"}
        | {"average_precision", "auroc"}
        | others
    )
    page = re.sub(
        'base64,[^"]*', "", (root / "reports" / "bare" / "index.html").read_text()
    )  # pictures are no words
    text = (root / "reports" / "bare" / "report.md").read_text()
    for told in (
        page.partition("<script")[0],
        text,
    ):  # the charts that a page embeds have words of their own
        assert "set error" in told
        for other in ("one-instance error", "hit rate", "posterior error", "nan"):
            assert other not in told
    assert len([*(root / "reports" / "bare").rglob("gallery-*.png")]) == 1


@pytest.mark.parametrize(("kind", "name", "says"), [
    ("loss", "Mean_Pooling.py", "got 'Mean_Pooling.py'; did you mean 'mean-pooling'?"),
    ("loss", "../up", "did you mean 'up'?"),
    ("loss", "exact", "there is a loss 'exact' already, from milbench"),
    ("loss", "random", "random.py would hide the Python module 'random'"),
    ("loss", "none", "None, the class of 'none', is a name that Python or the file uses"),
    ("loss", "class", "class.py would hide the Python module 'class'"),
    ("network", "conv", "there is a network 'conv' already, from the task "),
    ("los", "mine", "'los' is not one of 'loss', 'task', 'network'; did you mean 'loss'?"),
])  # fmt: skip
def test_a_wrong_name_is_one_line_and_nothing_is_written(
    milbench: Milbench, here: Path, kind: str, name: str, says: str
) -> None:
    assert says in milbench("new", kind, name).complaint()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("there", ["mine.py", "test_mine.py"])
def test_nothing_is_written_over(milbench: Milbench, here: Path, there: str) -> None:
    (here / there).write_text("precious")
    assert f"{there} is there already" in milbench("new", "task", "mine").complaint()
    assert [(path.name, path.read_text()) for path in here.iterdir()] == [(there, "precious")]


def test_the_list_of_networks_says_what_each_suits(
    milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    lines = milbench("list", "networks").done().splitlines()
    rows = [
        row for line in lines if len(row := [cell.strip() for cell in line.split("│")[1:-1]]) == 5
    ]

    def listed(name: str, task: str) -> list[str]:
        (row,) = (row for row in rows if row[0] == name and task in row[3].split(", "))
        return row

    assert listed("gru", "sound-events") == listed("gru", "sequence-bags")
    assert listed("gru", "sound-events")[2] == "stride=4, width=48"
    assert listed("small", "svhn") != listed("small", "extended-mnist")
    assert listed("paper", "cifar10") != listed("paper", "cifar10 (losses with a class head)")
    assert listed("context", "every task")[2:] == ["layers=1, heads=4", "every task", "milbench"]
    assert listed("set-transformer", "losses with a sigmoid head")[4] == "milbench"
    (several,) = (row for row in rows if row[0].startswith("resnet18, "))
    assert several[2:] == ["stride=8, weights=", "tasks whose bags are images", "torchvision"]
    assert "small, medium, large" in milbench("list", "tasks").done()
