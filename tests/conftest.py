"""Fixtures for all tests: a command line in this process, its root, and small data sets."""

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
# The environment variable COLUMNS cannot set the width: pytest-xdist sets it anew for its workers.
console.width = PIPED_WIDTH
# A cell measures how long its loss takes. With a least time of 0 s it makes as few calls as it may,
# since the tests compute hundreds of cells.
costs.LEAST_SECONDS = 0.0
# A shell makes a background process ignore Ctrl-C (SIGINT), and child processes inherit this. Tests
# that interrupt a child process need it to react.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TAKES_ROOT = ("run", "reproduce", "report", "status", "sync", "list", "export", "predict")
"""The commands with an option `--root`."""

# A test installs this package. If pytest also imported it from this folder, the test would not use
# the installed copy.
collect_ignore = ["_helpers/package"]


@pytest.fixture(autouse=True)
def plug_ins_of_one_test() -> Iterator[None]:
    """Forget the losses, tasks and networks that a test loads from files or defines.

    Two tests may then use the same name. Plug-ins that were loaded before the test are forgotten,
    too: a fixture that several tests share may have loaded them, or a test of the templates.
    """
    _forget_plug_ins()
    yield
    _forget_plug_ins()


def _forget_plug_ins() -> None:
    # A test may have made new registries, so they must not be remembered from an earlier call.
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
    """Seed torch's global generator, so that random values do not depend on earlier tests."""
    torch.manual_seed(0)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a root folder that does not exist yet.

    The environment variables that would lead to the user's own data or MLflow server are removed.
    """
    monkeypatch.delenv("MILBENCH_DATA", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path / "root"


@pytest.fixture
def unmirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off MLflow, which takes seconds to be imported and to make a database."""
    monkeypatch.setattr("milbench.store.mirror.Mirror.start", lambda self: None)
    monkeypatch.setattr("milbench.store.mirror.Mirror.finish", lambda self: "")


@pytest.fixture
def blank_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures of reports empty, since plotting takes long.

    Tests that look at figures have the pytest mark `drawn`, and get the real ones.
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
    """A function that runs a command of milbench and returns its exit code and output.

    The command and its cells run in this process. It gets `--root`, unless its words have one.
    MLflow is switched off, unless the test has the pytest mark `mirrored`.
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
    """Return the words to add to a command: its root, one thread, and cells in this process."""
    command = words[0] if words else ""
    more = []
    if command in ("run", "reproduce"):
        # A test can patch only what runs in its own process. Tests of worker processes give one of
        # these two options.
        if "--jobs" not in words and "--cluster" not in words:
            more += ["-p", "run.in_process=true"]
        more += ["-p", "run.threads=1"]
    if command in TAKES_ROOT and "--root" not in words:
        more += ["--root", str(root)]
    return more


@pytest.fixture
def heeds_hangups() -> Iterator[None]:
    """Let the child processes of a test react to the signal SIGHUP.

    Under nohup, pytest ignores this signal, and its child processes would inherit that.
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
    """Let milbench remember the digests of files that were just written; return the cache folder.

    Otherwise it remembers only the digests of older files.
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
