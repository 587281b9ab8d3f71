from __future__ import annotations

import gc
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench.api.registry import losses, tasks
from tests._helpers import short_timings  # noqa: F401 it shortens them
from tests._helpers.command_line import Ran
from tests._helpers.mlflow_server import MlflowServer, initdb, mlflow_server, postgres
from tests._helpers.other_machine import WORDS, client, runs_of

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell lets what it starts in the background ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep the imports out of every later collection of garbage, in this process and in those forked from it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Give them back to the collector, or triton lists, when the process ends, what it has imported as leaked."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def plug_ins_of_one_test() -> Iterator[None]:
    """Forget the losses and tasks that a test loads from files, so that two tests may use the same name.

    So are those that were loaded before: by a fixture that several tests share, or by the tests of the templates.
    """
    before = [
        {name: entry for name, entry in registry.entries.items() if not entry.is_file} for registry in _registries()
    ]
    _register(before)
    yield
    _register(before)


def _registries() -> list[Any]:
    """Return the registries that there are now: a test may have made new ones."""
    return [losses(), tasks()]


def _register(known: list[dict[str, Any]]) -> None:
    for registry, entries in zip(_registries(), known, strict=True):
        registry.entries = dict(entries)


@pytest.fixture(autouse=True)
def same_draws_in_every_order() -> None:
    """Seed torch's own generator, from which a test may draw: its numbers depend on no test before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def fresh_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of an empty store, made once, since MLflow takes seconds to create its tables."""
    from milbench.store.workspace import Workspace
    from milbench.store.writer import StoreWriter

    root = Workspace(tmp_path_factory.mktemp("fresh")).make()
    StoreWriter(root)
    return root.database


@pytest.fixture
def root(tmp_path: Path, fresh_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with an empty store."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MILBENCH_DATA", raising=False)
    folder = tmp_path / "root"
    (folder / "runs").mkdir(parents=True)
    shutil.copy(fresh_database, folder / "runs" / "mlflow.db")
    return folder


@pytest.fixture
def blank_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures of reports empty, since drawing them takes longer than the test, which does not look at them.

    The mark `drawn` is of tests that do.
    """
    if request.node.get_closest_marker("drawn"):
        return
    from milbench.report.figures.report_figure import ReportFigure

    def clear(picture: ReportFigure) -> None:
        picture.figure.clear()
        picture.figure.set_layout_engine("none")

    monkeypatch.setattr(ReportFigure, "__post_init__", clear)


@pytest.fixture
def milbench(
    root: Path, blank_figures: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Run the command line in this process, under `root`, with one job at a time; the figures of reports are empty."""
    from milbench.cli import main

    def call(*words: str) -> Ran:
        computes = words[0] in ("run", "tune", "reproduce")
        takes_root = computes or words[0] in (
            "report",
            "compare",
            "status",
            "list",
            "ui",
            "export",
            "import",
            "predict",
            "figure",
            "model",
        )
        # In this process, where a test can patch things, unless the test is about workers.
        workers = {"--jobs", "--cluster", "--in-process"} & {*words} or words[0] == "reproduce"
        jobs = ["--threads", "1", *(["--jobs", "1"] if words[0] == "reproduce" else [])] if computes else []
        jobs += [] if workers or not computes else ["--in-process"]
        where = ["--root", str(root)] if takes_root and "--root" not in words else []
        monkeypatch.setattr(sys, "argv", ["milbench", *words, *jobs, *where])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main.main()
        captured = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Ran(stop.value.code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def away(tmp_path_factory: pytest.TempPathFactory, fresh_database: Path) -> Path:
    """The root of another machine: a done cell, a failed one, and an export of both, all.zip."""
    from milbench.cli import main

    root = tmp_path_factory.mktemp("away")
    (root / "runs").mkdir()
    shutil.copy(fresh_database, root / "runs" / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setattr("platform.node", lambda: "gpu-box")
        patch.setattr(sys, "argv", ["milbench", *WORDS, "--root", str(root)])
        with pytest.raises(SystemExit):
            main.main()
        done = runs_of(root)["exact on tiny, seed 0"].info.run_id
        client(root).log_metric(done, "test/odd", float("nan"), timestamp=5, step=1)
        patch.setattr(sys, "argv", ["milbench", "export", "--out", str(root / "all.zip"), "--root", str(root)])
        with pytest.raises(SystemExit):
            main.main()
    return root


@pytest.fixture(scope="session")
def sqlite_service(tmp_path_factory: pytest.TempPathFactory, fresh_database: Path) -> Iterator[MlflowServer]:
    """An MLflow server on SQLite, with one store for all tests."""
    folder = tmp_path_factory.mktemp("sqlite_server")
    shutil.copy(fresh_database, folder / "mlflow.db")
    with mlflow_server(f"sqlite:///{folder / 'mlflow.db'}", folder) as server:
        yield server


@pytest.fixture
def sqlite_server(sqlite_service: MlflowServer) -> Iterator[MlflowServer]:
    """The server on SQLite, which runs again after a test that has killed it."""
    yield sqlite_service
    sqlite_service.ensure_running()


@pytest.fixture(scope="session")
def postgres_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """An MLflow server on PostgreSQL, with one store for all tests."""
    if initdb() is None:
        pytest.skip("PostgreSQL is not installed (Debian package: postgresql)")
    with postgres() as database, mlflow_server(database, tmp_path_factory.mktemp("postgres_server")) as server:
        yield server


@pytest.fixture
def postgres_server(postgres_service: MlflowServer) -> Iterator[MlflowServer]:
    """The server on PostgreSQL, which runs again after a test that has killed it."""
    yield postgres_service
    postgres_service.ensure_running()


@pytest.fixture
def old_files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take files that were written just now for old ones, whose digests are remembered; return the cache folder."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *args, **named: cache)
    monkeypatch.setattr("milbench._utils.digests.RECENT", 0.0)
    return cache


@pytest.fixture(scope="session")
def street_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a small set of house numbers."""
    from milbench.data.house_numbers import make

    root = tmp_path_factory.mktemp("data")
    make(root, seed=3, train=60, test=20)
    return root
