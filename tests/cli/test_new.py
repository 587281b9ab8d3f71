"""`milbench new`, whose files run as they are, and the networks of `milbench list`."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from milbench.store.folders import results
from tests._helpers.command_line import SMALL, Milbench


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working folder of the test."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


STEMS = {"lse_pool", "some_points", "two_layers"}
"""The stems of the files of `written`. The files of their tests have test_ before them."""


@pytest.fixture
def written(milbench: Milbench, here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a new loss, task and network; their modules are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    milbench("new", "loss", "lse-pool").done()
    milbench("new", "task", "some-points").done()
    milbench("new", "network", "two-layers").done()
    yield here
    for module in [*sys.modules]:
        if module.removeprefix("test_") in STEMS:
            del sys.modules[module]


def test_each_command_writes_a_file_and_its_test(written: Path) -> None:
    files = {f"{stem}.py" for stem in STEMS}
    tests = {f"test_{stem}.py" for stem in STEMS}
    assert {path.name for path in written.iterdir()} == files | tests


def test_no_name_of_a_template_is_left(written: Path) -> None:
    for path in written.iterdir():
        assert not re.search("my.?(loss|task|network)", path.read_text(), re.IGNORECASE), path


@pytest.mark.usefixtures("written")
def test_the_loss_and_the_task_run(milbench: Milbench) -> None:
    words = ["run", "--loss", "lse_pool.py,exact", "--task", "extended-digits,some_points.py"]
    assert "all 4 cells are done" in milbench(*words, *SMALL).done()


@pytest.mark.usefixtures("written")
def test_the_network_runs(milbench: Milbench) -> None:
    words = ["run", "--loss", "exact", "--task", "extended-digits"]
    words += ["--network", "default,two_layers.py", "-p", "network.width=4"]
    assert "all 2 cells are done" in milbench(*words, *SMALL).done()


def test_the_tests_that_it_writes_pass(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:timeout", "--rootdir", str(written)]
    options += ["-W", "error::pytest.PytestWarning", "-k", "not derivatives"]
    # The tests run in this process, since another process would have to import torch again.
    assert pytest.main([*options, str(written)]) == pytest.ExitCode.OK
    (passed,) = re.findall(r"(\d+) passed", capsys.readouterr().out)
    # This makes sure that all tests were collected: the contracts have some 50.
    assert int(passed) > 47


BARE_METRICS = {
    "set_error", "label_error", "own_label_error", "macro_f1", "own_macro_f1",
    "average_precision", "auroc", "nll", "presence_ece", "set_ece",
    "no_skill_set_error", "no_skill_label_error",
}  # fmt: skip
"""The metrics of a task without truth about instances."""


@pytest.fixture
def bare(milbench: Milbench, here: Path, root: Path) -> Path:
    """The folder of the report of a comparison on a task without truth about instances."""
    milbench("new", "task", "bare").done()
    file = here / "bare.py"
    text = file.read_text()
    assert ", mask, truth)" in text
    file.write_text(text.replace(", mask, truth)", ", mask)"))
    words = ["run", "--loss", "exact,max-pooling,noisy-or", "--task", "bare.py"]
    milbench(*words, "--seeds", "0-1", "-p", "recipe.epochs=2").done()
    milbench("report", "bare").done()
    return root / "reports" / "bare"


@pytest.mark.drawn
def test_a_task_without_truth_is_ranked_by_the_set_error(bare: Path, root: Path) -> None:
    stored = results(root, "bare")
    assert {info.primary for info in stored.plan.tasks.values()} == {"set_error"}
    assert {*stored.frame.status} == {"done"}
    metrics = [name for name in stored.frame.metric.unique() if name.startswith("test/")]
    assert {name.removeprefix("test/") for name in metrics} == BARE_METRICS

    page = (bare / "index.html").read_text()
    # Embedded pictures are text without meaning, and the scripts of the page have words of their
    # own: both are left out.
    words_of_page = re.sub('base64,[^"]*', "", page).partition("<script")[0]
    for text in (words_of_page, (bare / "report.md").read_text()):
        assert "set error" in text
        for other in ("one-instance error", "hit rate", "posterior error", "nan"):
            assert other not in text
    assert len([*bare.rglob("gallery-*.png")]) == 1


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        pytest.param(
            "loss",
            "Mean_Pooling.py",
            "got 'Mean_Pooling.py'; did you mean 'mean-pooling'?",
            id="name of a file",
        ),
        pytest.param("loss", "../up", "did you mean 'up'?", id="path"),
        pytest.param(
            "loss", "exact", "there is a loss 'exact' already, from milbench", id="known loss"
        ),
        pytest.param(
            "loss", "random", "random.py would hide the Python module 'random'", id="module"
        ),
        pytest.param(
            "loss",
            "none",
            "None, the class of 'none', is a name that Python or the file uses",
            id="class with a keyword for a name",
        ),
        pytest.param(
            "loss", "class", "class.py would hide the Python module 'class'", id="keyword"
        ),
        pytest.param(
            "network",
            "conv",
            "there is a network 'conv' already, from the task ",
            id="network of a task",
        ),
        pytest.param(
            "los",
            "mine",
            "'los' is not one of 'loss', 'task', 'network'; did you mean 'loss'?",
            id="unknown kind",
        ),
    ],
)
def test_a_wrong_name_is_refused_and_nothing_is_written(
    milbench: Milbench, here: Path, kind: str, name: str, says: str
) -> None:
    assert says in milbench("new", kind, name).complaint()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("there", ["mine.py", "test_mine.py"])
def test_no_file_is_overwritten(milbench: Milbench, here: Path, there: str) -> None:
    (here / there).write_text("precious")
    assert f"{there} is there already" in milbench("new", "task", "mine").complaint()
    (only,) = here.iterdir()
    assert only.name == there
    assert only.read_text() == "precious"


@dataclass(frozen=True)
class ListedNetwork:
    """A row of the list of networks."""

    name: str
    summary: str
    parameters: str
    suits: str
    origin: str


@pytest.fixture
def networks(milbench: Milbench, monkeypatch: pytest.MonkeyPatch) -> list[ListedNetwork]:
    """The rows of `milbench list networks`."""
    monkeypatch.setenv("COLUMNS", "400")
    lines = milbench("list", "networks").done().splitlines()
    # Rows begin with │; the frame and the heads have other borders.
    rows = [line.strip("│").split("│") for line in lines if line.startswith("│")]
    return [ListedNetwork(*map(str.strip, row)) for row in rows]


def listed(networks: list[ListedNetwork], name: str, suits: str) -> ListedNetwork:
    """Return the only network of a name that suits a task, or a kind of task or loss."""
    (found,) = [
        network
        for network in networks
        if network.name == name and suits in network.suits.split(", ")
    ]
    return found


def test_tasks_that_share_a_network_share_a_row(networks: list[ListedNetwork]) -> None:
    gru = listed(networks, "gru", "sound-events")
    assert gru == listed(networks, "gru", "sequence-bags")
    assert gru.parameters == "stride=4, width=48"


def test_networks_of_one_name_have_a_row_each(networks: list[ListedNetwork]) -> None:
    assert listed(networks, "small", "svhn") != listed(networks, "small", "extended-mnist")
    with_classes = listed(networks, "paper", "cifar10 (losses with a class head)")
    assert listed(networks, "paper", "cifar10") != with_classes


def test_a_general_network_says_what_it_suits(networks: list[ListedNetwork]) -> None:
    context = listed(networks, "context", "every task")
    assert context.parameters == "layers=1, heads=4"
    assert context.suits == "every task"
    assert context.origin == "milbench"
    transformer = listed(networks, "set-transformer", "losses with a sigmoid head")
    assert transformer.origin == "milbench"


def test_networks_of_torchvision_share_a_row(networks: list[ListedNetwork]) -> None:
    (several,) = [network for network in networks if network.name.startswith("resnet18, ")]
    assert several.parameters == "stride=8, weights="
    assert several.suits == "tasks whose bags are images"
    assert several.origin == "torchvision"


def test_the_list_of_tasks_has_their_networks(
    milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert "small, medium, large" in milbench("list", "tasks").done()
