from __future__ import annotations

import hashlib
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from torchvision.datasets.utils import download_url

from milbench.data import catalog, svhn
from milbench.data.archives import unpack
from milbench.data.svhn import OFFICIAL, Archive, SvhnFiles, caption
from milbench.errors import UsageError
from tests._helpers.street_files import write_folder

ONE = [(10.0, 20.0, 5.0, 12.0, 20.0)]
COUNTS = {"train": 3, "test": 2, "extra": 4}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, SvhnFiles]]:
    """Three small archives on a server, and the data set that expects them."""
    folder = tmp_path_factory.mktemp("served")
    archives = {}
    for part, count in COUNTS.items():
        write_folder(folder / part, [(60 + n, 40, ONE) for n in range(count)])
        path = folder / f"{part}.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder / part, part)
        archives[part] = Archive(path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest(), count)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, SvhnFiles(address=f"http://127.0.0.1:{server.server_port}/", archives=archives)
        server.shutdown()


@pytest.fixture
def known(made: tuple[Path, SvhnFiles], monkeypatch: pytest.MonkeyPatch) -> SvhnFiles:
    monkeypatch.setattr(catalog, "DATASETS", {"svhn": made[1]})
    return made[1]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_fetch_verify_and_fetch_again(
    tmp_path: Path, known: SvhnFiles, made: tuple[Path, SvhnFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert catalog.status(tmp_path)[0].note == "no svhn/train/digitStruct.mat"
    row = catalog.fetch("svhn", tmp_path)
    assert (row.state, row.note) == ("present", "3 train, 2 test, 4 extra")
    assert len(row.digest) == 16
    for part in COUNTS:
        assert tree(tmp_path / "svhn" / part) == tree(made[0] / part)
    left = {path.name for path in (tmp_path / "svhn").iterdir()}
    assert left == {*COUNTS, *(f".{part}.json" for part in COUNTS)}  # no archive, nothing temporary
    monkeypatch.setattr("torchvision.datasets.utils.download_url", None)  # what is there is not fetched again
    assert catalog.fetch("svhn", tmp_path).digest == row.digest


def test_a_changed_picture_is_damage_and_the_message_names_the_remedy(tmp_path: Path, known: SvhnFiles) -> None:
    catalog.fetch("svhn", tmp_path)
    picture = tmp_path / "svhn/test/2.png"
    picture.write_bytes(picture.read_bytes() + b"!")
    (row,) = catalog.status(tmp_path)
    assert row.state == "damaged"
    assert row.note.startswith(f"{tmp_path / 'svhn/test'} is damaged: expected SHA-256 ")
    with pytest.raises(UsageError, match=r"svhn/test is damaged: .*; remove the folder, and it is fetched again"):
        catalog.fetch("svhn", tmp_path)


def test_what_an_interrupted_download_has_left_does_no_harm(
    tmp_path: Path, known: SvhnFiles, made: tuple[Path, SvhnFiles]
) -> None:
    part = tmp_path / "svhn/.download/train.tar.gz"
    part.parent.mkdir(parents=True)
    part.write_bytes((made[0] / "train.tar.gz").read_bytes()[:100])
    part.with_name("extra.tar.gz").write_bytes(b"begun, while train is not there")
    assert catalog.fetch("svhn", tmp_path).state == "present"
    assert not part.parent.exists()


def test_a_part_counts_as_fetched_if_the_process_dies_after_unpacking(
    tmp_path: Path, known: SvhnFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack_and_die(*args: Any) -> None:
        unpack(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(svhn, "unpack", unpack_and_die)
    for _ in COUNTS:
        with pytest.raises(KeyboardInterrupt):
            catalog.fetch("svhn", tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(catalog, "DATASETS", {"svhn": known})
    row = catalog.fetch("svhn", tmp_path)
    assert (row.state, row.note) == ("present", "3 train, 2 test, 4 extra")
    assert not (tmp_path / "svhn/.download").exists()


def test_of_two_that_fetch_at_once_the_second_waits_and_finds_it_done(
    tmp_path: Path, known: SvhnFiles, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fetched: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def slowly(url: str, *more: Any) -> None:
        fetched.append(url.rpartition("/")[2])
        begun.set()
        assert go_on.wait(20)
        download_url(url, *more)

    monkeypatch.setattr("torchvision.datasets.utils.download_url", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(catalog.fetch, "svhn", tmp_path)
        assert begun.wait(20)
        second, said, end = pool.submit(catalog.fetch, "svhn", tmp_path), "", time.monotonic() + 15
        while "another process is fetching into" not in said and time.monotonic() < end:
            said += capfd.readouterr().err
            time.sleep(0.01)
        assert not wait([first, second], timeout=0).done
        go_on.set()
        assert first.result(20).state == second.result(20).state == "present"
    assert fetched == [f"{part}.tar.gz" for part in COUNTS]
    assert "another process is fetching into" in said
    assert {path.name for path in (tmp_path / "svhn").iterdir()} == {*COUNTS, *(f".{part}.json" for part in COUNTS)}


def test_an_empty_folder_or_a_damaged_receipt_is_named(tmp_path: Path, known: SvhnFiles) -> None:
    (tmp_path / "svhn/test").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"svhn/test has no digitStruct.mat: remove it, and it is fetched"):
        catalog.fetch("svhn", tmp_path)
    (tmp_path / "svhn/test").rmdir()
    catalog.fetch("svhn", tmp_path)
    for text in ("{", "{}", "[]", '{"sha256": 3}'):
        (tmp_path / "svhn/.test.json").write_text(text)
        (row,) = catalog.status(tmp_path)
        assert (row.state, row.note) == ("damaged", f"{tmp_path / 'svhn/.test.json'} is damaged: remove it")


def test_an_archive_in_the_folder_is_used_instead_of_a_download(tmp_path: Path, made: tuple[Path, SvhnFiles]) -> None:
    source = SvhnFiles(address="http://127.0.0.1:9/", archives={"train": made[1].archives["train"]})
    place = tmp_path / "svhn" / "train.tar.gz"
    place.parent.mkdir()
    content = (made[0] / "train.tar.gz").read_bytes()
    place.write_bytes(content[:-1])
    with pytest.raises(UsageError, match=r"train.tar.gz is truncated or damaged: expected .* bytes, found"):
        source.fetch(tmp_path)
    place.write_bytes(content[:-1] + b"!")
    with pytest.raises(UsageError, match=r"train.tar.gz is damaged: expected SHA-256"):
        source.fetch(tmp_path)
    place.write_bytes(content)
    source.fetch(tmp_path)
    assert tree(tmp_path / "svhn" / "train") == tree(made[0] / "train")
    assert place.exists()


def test_other_pictures_are_accepted_and_never_replaced(tmp_path: Path, known: SvhnFiles) -> None:
    for part in ("train", "test"):
        write_folder(tmp_path / "svhn" / part, [(60, 40, ONE)] * 5)
    before = tree(tmp_path)
    (row,) = catalog.status(tmp_path)
    assert (row.state, row.digest) == ("present", "")
    assert row.note == "5 train (not fetched by milbench), 5 test (not fetched by milbench), no extra"
    with pytest.raises(UsageError, match="svhn/train has 5 pictures, SVHN's train has 3: move it away"):
        catalog.fetch("svhn", tmp_path)
    assert tree(tmp_path) == before


def test_an_archive_with_another_number_of_pictures_is_not_kept(tmp_path: Path, made: tuple[Path, SvhnFiles]) -> None:
    archive = made[1].archives["train"]
    wrong = {"train": Archive(archive.size, archive.sha256, 7)}
    with pytest.raises(UsageError, match="train has 3 pictures and 3 records, expected 7 of each"):
        SvhnFiles(address=made[1].address, archives=wrong).fetch(tmp_path)
    assert not (tmp_path / "svhn" / "train").exists()


def test_a_download_that_is_not_what_was_expected_is_refused(tmp_path: Path, made: tuple[Path, SvhnFiles]) -> None:
    archive = made[1].archives["train"]
    wrong = {"train": Archive(archive.size, "0" * 64, archive.pictures)}
    with pytest.raises(UsageError, match=r"train.tar.gz is damaged: expected SHA-256 0{64}, found [0-9a-f]{64}"):
        SvhnFiles(address=made[1].address, archives=wrong).fetch(tmp_path)
    assert not (tmp_path / "svhn" / "train").exists()


def test_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "DATASETS", {"svhn": SvhnFiles(address="http://127.0.0.1:9/")})
    with pytest.raises(UsageError, match=r"cannot fetch svhn into .*refused") as caught:
        catalog.fetch("svhn", tmp_path)
    assert "\n" not in str(caught.value)


def test_only_pictures_of_the_official_numbers_are_called_svhn() -> None:
    digest = "0123456789abcdef" * 4
    official = {"train": 33_402, "test": 13_068}
    assert caption(official, digest) == "SVHN, 33,402 train / 13,068 test, sha256 0123456789abcdef"
    assert caption(official | {"extra": 202_353}, digest).startswith("SVHN, 33,402 train / 13,068 test / 202,353 extra")
    assert caption(official | {"extra": 9}, digest).startswith("SVHN-format images, ")
    assert caption({"train": 4000, "test": 500}, digest).startswith("SVHN-format images, 4,000 train / 500 test, sha")
    assert sum(archive.pictures for archive in OFFICIAL.values()) == 248_823
