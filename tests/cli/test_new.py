"""`milbench new`: what it writes runs as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milbench.engine.folders import results
from tests._helpers.command_line import SMALL, Milbench, Ran


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def done(ran: Ran) -> Ran:
    assert ran.code == 0, ran
    return ran


def test_what_it_writes_runs_and_passes_its_tests(
    milbench: Milbench, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (("loss", "lse-pool"), ("task", "some-points"), ("network", "two-layers")):
        done(milbench("new", *words))
    stems = {"lse_pool", "some_points", "two_layers"}
    assert {path.name for path in here.iterdir()} == {f"{test}{stem}.py" for stem in stems for test in ("", "test_")}
    assert not any(re.search("my.?(loss|task|network)", path.read_text(), re.IGNORECASE) for path in here.iterdir())
    done(milbench("run", "--loss", "lse_pool.py,exact", "--task", "extended-digits,some_points.py", *SMALL))
    networks = ("--network", "default,two_layers.py", "-p", "network.width=4")
    done(milbench("run", "--loss", "exact", "--task", "extended-digits", *networks, *SMALL))
    # In this process, since another one would import torch again; the templates' own tests are among these tests.
    own = ["-p", "no:cacheprovider", "-p", "no:timeout", "-W", "error::pytest.PytestWarning", "--rootdir", str(here)]
    assert pytest.main(["-q", *own, "-k", "not derivatives", str(here)]) == pytest.ExitCode.OK
    assert int(re.findall(r"(\d+) passed", capsys.readouterr().out)[0]) > 47


@pytest.mark.drawn
def test_a_task_without_truth_is_ranked_by_the_set_error_and_its_report_asks_for_nothing_more(
    milbench: Milbench, root: Path, here: Path
) -> None:
    done(milbench("new", "task", "bare"))
    file = here / "bare.py"
    text = file.read_text()
    assert ", mask, truth)" in text
    file.write_text(text.replace(", mask, truth)", ", mask)"))
    losses = "exact,max-pooling,noisy-or"
    done(milbench("run", "--loss", losses, "--task", "bare.py", "--seeds", "0-1", "-p", "recipe.epochs=2"))
    done(milbench("report", "bare"))
    stored = results(root, "bare")
    assert {info.primary for info in stored.plan.tasks.values()} == {"set_error"}
    frame = stored.frame
    assert {*frame.status} == {"done"}
    tested = {name.removeprefix("test/") for name in frame.metric.unique() if name.startswith("test/")}
    of_probabilities = {"nll", "presence_ece", "set_ece"}
    assert tested == {"set_error", "label_error", "own_label_error", "average_precision", "auroc"} | of_probabilities
    page = re.sub('base64,[^"]*', "", (root / "reports" / "bare" / "index.html").read_text())  # pictures are no words
    text = (root / "reports" / "bare" / "report.md").read_text()
    for told in (page.partition("<script")[0], text):  # the charts that a page embeds have words of their own
        assert "set error" in told
        for other in ("one-instance error", "hit rate", "posterior error", "nan"):
            assert other not in told
    assert len([*(root / "reports" / "bare").rglob("gallery-*.png")]) == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Mean_Pooling.py", "got 'Mean_Pooling.py'; did you mean 'mean-pooling'?"),
        ("../up", "did you mean 'up'?"),
        ("exact", "there is a loss 'exact' already, from milbench"),
        ("random", "random.py would hide the Python module 'random'"),
        ("none", "the class of 'none' would be None, a name that Python or the file uses"),
        ("class", "class.py would hide the Python module 'class'"),
    ],
)
def test_a_wrong_name_is_one_line_and_nothing_is_written(milbench: Milbench, here: Path, name: str, says: str) -> None:
    assert says in milbench("new", "loss", name).complaint()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(("name", "place"), [("conv", "the task "), ("resnet18", "torchvision"), ("dsmil", "milbench")])
def test_a_network_needs_a_name_that_no_other_one_has(milbench: Milbench, here: Path, name: str, place: str) -> None:
    """A task goes by the name, and would train its own."""
    assert f"there is a network {name!r} already, from {place}" in milbench("new", "network", name).complaint()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("there", ["mine.py", "test_mine.py"])
def test_nothing_is_written_over(milbench: Milbench, here: Path, there: str) -> None:
    (here / there).write_text("precious")
    assert f"{there} is there already" in milbench("new", "task", "mine").complaint()
    assert [(path.name, path.read_text()) for path in here.iterdir()] == [(there, "precious")]


def test_the_list_of_networks_says_what_each_suits(milbench: Milbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in done(milbench("list", "networks")).out.splitlines()
    ]
    rows = [row for row in rows if len(row) == 5]

    def listed(name: str, task: str) -> list[str]:
        (row,) = (row for row in rows if row[0] == name and task in row[3].split(", "))
        return row

    assert listed("gru", "sound-events") == listed("gru", "sequence-bags")
    assert listed("gru", "sound-events")[2] == "stride=4, width=48"
    assert listed("small", "house-numbers") == listed("small", "svhn") != listed("small", "extended-mnist")
    assert listed("paper", "cifar10") != listed("paper", "cifar10 (losses with a class head)")
    assert listed("set-transformer", "losses with a sigmoid head")[4] == "milbench"
    (several,) = (row for row in rows if row[0].startswith("resnet18, "))
    assert several[2:] == ["stride=8, weights=", "tasks whose bags are images", "torchvision"]
    tasks = done(milbench("list", "tasks")).out
    assert "small, medium, large" in tasks
