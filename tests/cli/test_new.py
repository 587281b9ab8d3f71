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
    for words in (("loss", "lse-pool"), ("task", "some-points")):
        done(milbench("new", *words))
    stems = {"lse_pool", "some_points"}
    assert {path.name for path in here.iterdir()} == {f"{test}{stem}.py" for stem in stems for test in ("", "test_")}
    assert not any(re.search("my.?(loss|task)", path.read_text(), re.IGNORECASE) for path in here.iterdir())
    done(milbench("run", "--loss", "lse_pool.py,exact", "--task", "extended-digits,some_points.py", *SMALL))
    # In this process, since another one would import torch again; the templates' own tests are among these tests.
    own = ["-p", "no:cacheprovider", "-p", "no:timeout", "-W", "error::pytest.PytestWarning", "--rootdir", str(here)]
    assert pytest.main(["-q", *own, "-k", "not derivatives", str(here)]) == pytest.ExitCode.OK
    assert int(re.findall(r"(\d+) passed", capsys.readouterr().out)[0]) > 40


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
    found = results(root, "bare")
    assert {info.primary for info in found.plan.tasks.values()} == {"set_error"}
    frame = found.frame
    assert {*frame.status} == {"done"}
    tested = {name.removeprefix("test/") for name in frame.metric.unique() if name.startswith("test/")}
    of_probabilities = {"nll", "presence_ece", "set_ece"}
    assert tested == {"set_error", "label_error", "own_label_error", "average_precision", "auroc"} | of_probabilities
    page = (root / "reports" / "bare" / "index.html").read_text()
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


@pytest.mark.parametrize("there", ["mine.py", "test_mine.py"])
def test_nothing_is_written_over(milbench: Milbench, here: Path, there: str) -> None:
    (here / there).write_text("precious")
    assert f"{there} is there already" in milbench("new", "task", "mine").complaint()
    assert [(path.name, path.read_text()) for path in here.iterdir()] == [(there, "precious")]
