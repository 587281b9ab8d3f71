from __future__ import annotations

import hashlib
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from milbench.data import catalog, sources
from milbench.errors import UsageError
from tests._helpers.street_files import write_folder

ONE = [(10.0, 20.0, 5.0, 12.0, 20.0)]
COUNTS = {"train": 3, "test": 2}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Small archives in a folder that a server has, as SVHN's."""
    folder, archives = tmp_path_factory.mktemp("served"), {}
    for part, count in COUNTS.items():
        write_folder(folder / part, [(60 + n, 40, ONE) for n in range(count)])
        path = folder / f"{part}.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder / part, part)
        archives[f"svhn/{part}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(sources, "SVHN", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setattr(sources, "ARCHIVES", archives)
        yield folder
        server.shutdown()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("[!.]*") if p.is_file()}


def test_fetch_verify_and_fetch_again(tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    svhn = catalog.DATASETS["svhn"]
    assert svhn.status(tmp_path).note == "no svhn/train"
    row = catalog.fetch("svhn", tmp_path)
    assert (row.state, row.note) == ("present", "")
    assert len(row.digest) == 16
    for part in COUNTS:
        assert tree(tmp_path / "svhn" / part) == tree(served / part)
    assert {path.name for path in (tmp_path / "svhn").iterdir()} == {*COUNTS}  # nothing temporary
    with monkeypatch.context() as patch:
        patch.setattr("torchvision.datasets.utils.download_url", None)  # what is there is not fetched again
        assert catalog.fetch("svhn", tmp_path).digest == row.digest
    picture = tmp_path / "svhn/test/2.png"
    picture.write_bytes(picture.read_bytes() + b"!")
    damaged = svhn.status(tmp_path)
    assert damaged.state == "damaged"
    assert damaged.note.startswith(f"{tmp_path / 'svhn/test'} is damaged: expected SHA-256 ")
    assert catalog.fetch("svhn", tmp_path) == row
    assert tree(tmp_path / "svhn/test") == tree(served / "test")


def test_a_damaged_archive_is_refused(tmp_path: Path, served: Path) -> None:
    archive = served / "train.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-1] + b"!")
    with pytest.raises(UsageError, match=r"train.tar.gz is damaged: expected SHA-256"):
        catalog.fetch("svhn", tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_download_that_is_cut_off_is_refused_in_one_line(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = served / "train.tar.gz"
    archive.write_bytes(archive.read_bytes()[:9000])
    monkeypatch.setattr(sources, "RECORDINGS", f"{sources.SVHN}train.tar.gz")
    with pytest.raises(UsageError, match=r"cannot fetch spoken-digits .*: Compressed file ended"):
        catalog.fetch("spoken-digits", tmp_path)
    assert not [*tmp_path.iterdir()]


def test_other_pictures_are_accepted_and_never_replaced(tmp_path: Path, served: Path) -> None:
    write_folder(tmp_path / "svhn/train", [(60, 40, ONE)] * 5)
    before = tree(tmp_path)
    row = catalog.fetch("svhn", tmp_path)
    assert (row.state, row.note) == ("present", "not fetched by milbench: svhn/train")
    assert tree(tmp_path / "svhn/test") == tree(served / "test")
    assert tree(tmp_path).items() > before.items()
