from __future__ import annotations

import hashlib
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from milbench.data import catalog, number_pictures, svhn
from milbench.data.number_pictures import NumberPictures
from milbench.data.svhn import Archive
from milbench.errors import UsageError
from tests._helpers.street_files import write_folder

ONE = [(10.0, 20.0, 5.0, 12.0, 20.0)]
COUNTS = {"train": 3, "test": 2, "extra": 4}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, dict[str, Archive]]]:
    """Three small archives in a folder, their address, and what is expected of them."""
    folder = tmp_path_factory.mktemp("served")
    archives = {}
    for part, count in COUNTS.items():
        write_folder(folder / part, [(60 + n, 40, ONE) for n in range(count)])
        path = folder / f"{part}.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder / part, part)
        archives[part] = Archive(hashlib.sha256(path.read_bytes()).hexdigest(), count)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}/", archives
        server.shutdown()


@pytest.fixture
def made(served: tuple[Path, str, dict[str, Archive]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the parts that the catalogue's only data set is fetched from."""
    folder, address, archives = served
    source = NumberPictures("svhn", partial(svhn.fetch, address=address, archives=archives))
    monkeypatch.setattr(catalog, "DATASETS", {"svhn": source})
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_fetch_verify_and_fetch_again(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert catalog.status(tmp_path)[0].note == "no svhn/train/digitStruct.mat"
    row = catalog.fetch("svhn", tmp_path)
    assert (row.state, row.note) == ("present", "3 train, 2 test, 4 extra")
    assert len(row.digest) == 16
    for part in COUNTS:
        assert tree(tmp_path / "svhn" / part) == tree(made / part)
    assert {path.name for path in (tmp_path / "svhn").iterdir()} == {*COUNTS, "manifest.json"}  # nothing temporary
    monkeypatch.setattr("torchvision.datasets.utils.download_url", None)  # what is there is not fetched again
    assert catalog.fetch("svhn", tmp_path).digest == row.digest


def test_a_changed_picture_is_damage_and_the_message_names_the_remedy(tmp_path: Path, made: Path) -> None:
    catalog.fetch("svhn", tmp_path)
    picture = tmp_path / "svhn/test/2.png"
    picture.write_bytes(picture.read_bytes() + b"!")
    (row,) = catalog.status(tmp_path)
    assert row.state == "damaged"
    assert row.note.startswith(f"{tmp_path / 'svhn/test'} is damaged: expected SHA-256 ")
    with pytest.raises(UsageError, match=r"svhn/test is damaged: .*; remove the folder, and it is fetched again"):
        catalog.fetch("svhn", tmp_path)


def test_a_fetch_that_dies_between_parts_is_gone_on_with(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_and_die(place: Path, folder: Path) -> None:
        real(place, folder)
        raise KeyboardInterrupt

    real = number_pictures.add
    with monkeypatch.context() as patch:
        patch.setattr(number_pictures, "add", add_and_die)
        for _ in COUNTS:
            with pytest.raises(KeyboardInterrupt):
                catalog.fetch("svhn", tmp_path)
    row = catalog.fetch("svhn", tmp_path)
    assert (row.state, row.note) == ("present", "3 train, 2 test, 4 extra")


def test_an_archive_in_the_folder_is_used_instead_of_a_download(
    tmp_path: Path, served: tuple[Path, str, dict[str, Archive]]
) -> None:
    folder, _, archives = served
    only = {"train": archives["train"]}
    place = tmp_path / "svhn" / "train.tar.gz"
    place.parent.mkdir()
    place.write_bytes((folder / "train.tar.gz").read_bytes()[:-1] + b"!")
    with pytest.raises(UsageError, match=r"train.tar.gz is damaged: expected SHA-256"):
        svhn.fetch(tmp_path, "http://127.0.0.1:9/", only)
    assert {path.name for path in place.parent.iterdir()} == {"train.tar.gz"}
    place.write_bytes((folder / "train.tar.gz").read_bytes())
    svhn.fetch(tmp_path, "http://127.0.0.1:9/", only)
    assert tree(tmp_path / "svhn" / "train") == tree(folder / "train")
    assert place.exists()


def test_other_pictures_are_accepted_and_never_replaced(tmp_path: Path, made: Path) -> None:
    for part in ("train", "test"):
        write_folder(tmp_path / "svhn" / part, [(60, 40, ONE)] * 5)
    before = tree(tmp_path)
    (row,) = catalog.status(tmp_path)
    assert (row.state, row.digest) == ("present", "")
    assert row.note == "5 train (not by milbench), 5 test (not by milbench)"
    with pytest.raises(UsageError, match="svhn/train has 5 pictures, SVHN's train has 3: move it away"):
        catalog.fetch("svhn", tmp_path)
    assert tree(tmp_path) == before
