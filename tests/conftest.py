import signal
import sys
from collections.abc import Callable, Iterator
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
console.width = (
    PIPED_WIDTH  # also in the workers of pytest-xdist, which have a COLUMNS of their own
)
# Every cell times its loss by the fewest calls, since the tests compute hundreds of cells.
costs.LEAST_SECONDS = 0.0
if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # a shell lets what it starts in the background ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


collect_ignore = [
    "_helpers/package"
]  # which one test installs: imported from here, it would hide what was installed


@pytest.fixture(autouse=True)
def plug_ins_of_one_test() -> Iterator[None]:
    """Forget the losses, tasks and networks that a test loads from files, so that two tests may use the same name.

    So are those that were loaded before: by a fixture that several tests share, or by the tests of the templates.
    """
    _forget_plug_ins()
    yield
    _forget_plug_ins()


def _forget_plug_ins() -> None:
    registries: list[Any] = [
        losses(),
        tasks(),
        networks(),
    ]  # those that there are now: a test may have made new ones
    for registry in registries:
        known = [*registry.entries.items()]
        registry.entries = {
            n: e for n, e in known if not e.source and local_object(registry, n) is None
        }


@pytest.fixture(autouse=True)
def same_draws_in_every_order() -> None:
    """Seed torch's own generator, from which a test may draw: its numbers depend on no test before it."""
    torch.manual_seed(0)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root without a store, whose cells are not mirrored: MLflow is away."""
    monkeypatch.delenv("MILBENCH_DATA", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path / "root"


@pytest.fixture
def unmirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave MLflow out, which takes seconds to import and to make a database."""
    monkeypatch.setattr("milbench.store.mirror.Mirror.start", lambda self: None)
    monkeypatch.setattr("milbench.store.mirror.Mirror.finish", lambda self: "")


@pytest.fixture
def blank_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures of reports empty, since drawing takes long; the mark `drawn` is of tests that look at them."""
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
    """Run the command line in this process, under `root`, cells in this process too, without MLflow.

    The mark `mirrored` is of tests that need MLflow.
    """
    from milbench.cli import main

    if not request.node.get_closest_marker("mirrored"):
        request.getfixturevalue("unmirrored")
    request.getfixturevalue("blank_figures")

    def call(*words: str) -> Ran:
        command = words[0] if words else ""
        computes = command in ("run", "reproduce")
        takes_root = computes or command in (
            "report", "status", "sync", "list", "export", "predict"
        )  # fmt: skip
        # In this process, where a test can patch things, unless the test is about workers.
        here = computes and not {"--jobs", "--cluster"} & {*words}
        more = ["-p", "run.in_process=true"] if here else []
        more += ["-p", "run.threads=1"] if computes else []
        where = ["--root", str(root)] if takes_root and "--root" not in words else []
        monkeypatch.setattr(sys, "argv", ["milbench", *words, *more, *where])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main.main()
        captured = capsys.readouterr()
        return Ran(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def old_files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take files that were written just now for old ones, whose digests are remembered; return the cache folder."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *args, **named: cache)
    monkeypatch.setattr("milbench._utils.digests.RECENT", 0.0)
    return cache


@pytest.fixture(scope="session")
def data_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_data(tmp_path_factory.mktemp("all_data"))


@pytest.fixture(scope="session")
def street_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with small files of SVHN alone."""
    return small_svhn(tmp_path_factory.mktemp("data"))
