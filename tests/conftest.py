"""Fixtures for all tests: the command line in this process, a root for it, and small data sets."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench._utils.console import PIPED_WIDTH, console
from milbench.contracts.registry import losses, tasks
from milbench.contracts.resolver import local_object
from milbench.networks.known_networks import networks
from milbench.training import costs
from tests._helpers.command_line import Ran
from tests._helpers.mlflow_server import MlflowServer
from tests._helpers.small_data import small_data
from tests._helpers.svhn_files import small_svhn

torch.set_num_threads(1)
# The variable COLUMNS would decide the width, and the workers of pytest-xdist set their own.
console.width = PIPED_WIDTH
# Every cell measures the time of its loss. Tests compute hundreds of cells: the fewest calls do.
costs.LEAST_SECONDS = 0.0
# What a shell starts in the background ignores Ctrl-C, and so would processes that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TAKES_ROOT = ("run", "reproduce", "report", "status", "sync", "list", "export", "predict")
"""The commands with an option `--root`."""

# tests/test_plugin_package.py installs this package. If pytest imported it from here, it would hide
# the installed one.
collect_ignore = ["_helpers/package"]


@pytest.fixture(autouse=True)
def plug_ins_of_one_test() -> Iterator[None]:
    """Forget the losses, tasks and networks that a test loads from files.

    So two tests may use the same name. They are forgotten before a test as well, since a fixture
    that several tests share, or the tests of the templates, may have loaded some.
    """
    _forget_plug_ins()
    yield
    _forget_plug_ins()


def _forget_plug_ins() -> None:
    # A test may have made new registries, so that they are looked up every time.
    registries: list[Any] = [losses(), tasks(), networks()]
    for registry in registries:
        entries = registry.entries.items()
        registry.entries = {
            name: entry for name, entry in entries if not _is_plug_in(registry, name)
        }


def _is_plug_in(registry: Any, name: str) -> bool:
    """Return whether an entry was loaded from a file, or is a class that a test has defined."""
    is_from_file = bool(registry.entries[name].source)
    return is_from_file or local_object(registry, name) is not None


@pytest.fixture(autouse=True)
def same_random_values_in_every_order() -> None:
    """Seed torch's global generator, so that no test depends on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a root that does not exist yet.

    Variables of the environment that name a data directory or an MLflow server are removed.
    """
    monkeypatch.delenv("MILBENCH_DATA", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path / "root"


@pytest.fixture
def unmirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave MLflow out: importing it and making a database takes seconds."""
    monkeypatch.setattr("milbench.store.mirror.Mirror.start", lambda self: None)
    monkeypatch.setattr("milbench.store.mirror.Mirror.finish", lambda self: "")


@pytest.fixture
def blank_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures of reports empty, since plotting takes long.

    Tests that look at figures have the mark `drawn`.
    """
    if request.node.get_closest_marker("drawn"):
        return
    from milbench.report.figures.picture import Picture

    monkeypatch.setattr(Picture, "html", lambda _: "")
    monkeypatch.setattr(Picture, "png", lambda *_: b"")


@pytest.fixture
def milbench(
    root: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Ran]:
    """A function that runs a command in this process and returns its exit code and output.

    Cells are computed in this process as well. Commands get `--root`, unless the words name a root.
    MLflow is left out, unless a test has the mark `mirrored`.
    """
    from milbench.cli import main

    if not request.node.get_closest_marker("mirrored"):
        request.getfixturevalue("unmirrored")
    request.getfixturevalue("blank_figures")

    def call(*words: str) -> Ran:
        more = _more_words(words, root)
        monkeypatch.setattr(sys, "argv", ["milbench", *words, *more])
        # What was printed before the command is not part of its output.
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main.main()
        captured = capsys.readouterr()
        return Ran(int(stop.value.code or 0), captured.out, captured.err)

    return call


def _more_words(words: Sequence[str], root: Path) -> list[str]:
    """Return the words that are added to a command: a root, one thread, and in_process=true."""
    command = words[0] if words else ""
    more = []
    if command in ("run", "reproduce"):
        # In this process, a test can patch the code that computes cells. Tests of worker processes
        # give one of these options.
        if "--jobs" not in words and "--cluster" not in words:
            more += ["-p", "run.in_process=true"]
        more += ["-p", "run.threads=1"]
    if command in TAKES_ROOT and "--root" not in words:
        more += ["--root", str(root)]
    return more


@pytest.fixture
def heeds_hangups() -> Iterator[None]:
    """Let the processes that a test starts heed SIGHUP.

    Under nohup pytest ignores this signal, and so would the processes that it starts.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """A tracking server of MLflow on this machine."""
    server = MlflowServer(tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def old_files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let files count as old as soon as they are written; return the cache folder.

    Only the digests of old files are remembered.
    """
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *args, **named: cache)
    monkeypatch.setattr("milbench._utils.digests.RECENT", 0.0)
    return cache


@pytest.fixture(scope="session")
def data_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with small files of every data set."""
    return small_data(tmp_path_factory.mktemp("all_data"))


@pytest.fixture(scope="session")
def street_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with small files of SVHN only."""
    return small_svhn(tmp_path_factory.mktemp("data"))
