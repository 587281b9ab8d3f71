import hashlib
import shutil
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from milbench.data import catalog, sources
from milbench.data.catalog import Dataset, Part
from milbench.data.sources import STALLED, Download
from milbench.errors import UsageError
from tests._helpers.svhn_files import write_folder

Known = Callable[[Download], Dataset]
CONTENT = {"toy/raw/a": b"some bytes", "toy/raw/b": b"and others"}
PARTS = tuple(Part(path, hashlib.md5(c).hexdigest()) for path, c in CONTENT.items())


def place(folder: Path, content: dict[str, bytes]) -> None:
    for path, value in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(value)


def fetched(content: dict[str, bytes] = CONTENT) -> Download:
    return lambda folder, wanted: place(folder, content)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """Make a toy data set the only one that the suite knows."""

    def register(download: Download) -> Dataset:
        dataset = Dataset("toy", PARTS, download, size=1)
        monkeypatch.setattr(catalog, "DATASETS", {"toy": dataset})
        return dataset

    return register


def unreachable(folder: Path, wanted: str) -> None:
    place(folder, {"toy/raw/a": b"some"})
    raise RuntimeError("all mirrors\nare down")


def test_given_folder_wins_over_the_environment_over_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (two := tmp_path / "two").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MILBENCH_DATA", "~/two")
    assert (catalog.data_dir(tmp_path), catalog.data_dir(None)) == (tmp_path, two)
    monkeypatch.delenv("MILBENCH_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert catalog.data_dir(None) == tmp_path / "cache" / "milbench"
    with pytest.raises(UsageError, match="typo does not exist"):
        catalog.data_dir(tmp_path / "typo")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MILBENCH_DATA", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"file \(from MILBENCH_DATA\) is a file"):
        catalog.data_dir(None)


def test_status_is_present_missing_or_damaged(tmp_path: Path, known: Known) -> None:
    dataset = known(unreachable)
    row = dataset.status(tmp_path)
    assert (row.dataset, row.path, row.state, row.digest) == (
        "toy",
        tmp_path / "toy/raw",
        "missing",
        "",
    )
    assert row.note == "no toy/raw/a"
    place(tmp_path, CONTENT)
    assert dataset.status(tmp_path)[2:] == ("present", dataset.identity(tmp_path), "")
    place(tmp_path, {"toy/raw/b": b"and Others"})
    wrong, right = hashlib.md5(b"and Others").hexdigest(), PARTS[1].digest
    *_, state, digest, note = dataset.status(tmp_path)
    assert (state, digest) == ("damaged", "")
    assert note == f"{tmp_path / 'toy/raw/b'} is damaged: expected MD5 {right}, found {wrong}"


def test_fetch_downloads_what_is_missing_or_damaged_alone(tmp_path: Path, known: Known) -> None:
    calls = []

    def download(folder: Path, wanted: str) -> None:
        assert socket.getdefaulttimeout() == STALLED
        calls.append(wanted)
        place(folder, CONTENT)

    known(download)
    root = tmp_path / "new"
    assert catalog.fetch("toy", root).state == "present"
    assert catalog.fetch("toy", root).state == "present"
    place(root, {"toy/raw/a": b"x"})
    assert catalog.fetch("toy", root).state == "present"
    assert calls == ["toy/raw/a", "toy/raw/a"]  # the first brought both
    assert {
        str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()
    } == CONTENT
    assert [p.name for p in root.iterdir()] == ["toy"]  # nothing temporary stays
    assert socket.getdefaulttimeout() is None


def test_a_download_that_fails_leaves_nothing_behind(tmp_path: Path, known: Known) -> None:
    known(unreachable)
    with pytest.raises(UsageError, match=f"cannot fetch toy into {tmp_path}: all mirrors are down"):
        catalog.fetch("toy", tmp_path)
    assert list(tmp_path.iterdir()) == []
    known(fetched(CONTENT | {"toy/raw/b": b"not the same"}))
    with pytest.raises(
        UsageError, match=r"not what was expected: .*raw/b is damaged: expected MD5"
    ):
        catalog.fetch("toy", tmp_path)
    known(fetched({"toy/raw/a": CONTENT["toy/raw/a"]}))
    with pytest.raises(UsageError, match=r"not what was expected: .*toy/raw/b cannot be read"):
        catalog.fetch("toy", tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["toy", "raw", "a"], (
        "what is complete is not fetched again"
    )


def check_toy(root: Path) -> str:
    return catalog.check_dataset("toy", "Toys", root, Path, "go elsewhere", any_data=False)


def test_what_is_missing_is_downloaded_and_what_is_damaged_stays(
    tmp_path: Path, known: Known
) -> None:
    dataset = known(fetched())
    assert check_toy(tmp_path) == f"Toys, sha256 {dataset.identity(tmp_path)}"
    place(
        tmp_path, {"toy/raw/a": b"some Bytes"}
    )  # perhaps somebody's own: only `fetch` may replace it
    with pytest.raises(
        UsageError,
        match=r"raw/a is damaged: expected MD5 .*; `milbench data fetch toy` replaces it",
    ):
        check_toy(tmp_path)
    (tmp_path / "toy/raw/b").unlink()
    with pytest.raises(UsageError, match=r"raw/a is damaged"):  # nor where another file is missing
        check_toy(tmp_path)
    assert (tmp_path / "toy/raw/a").read_bytes() == b"some Bytes"
    place(tmp_path, {"toy/raw/a": b"some bytes"})
    known(unreachable)
    with pytest.raises(
        UsageError, match=r"toy not found: looked for .*raw/b; .*mirrors are down; go elsewhere"
    ):
        check_toy(tmp_path)


def test_without_downloads_missing_files_count_as_fetched(tmp_path: Path, known: Known) -> None:
    known(lambda folder, wanted: pytest.fail("it was downloaded"))
    with catalog.downloads(False):
        said = check_toy(tmp_path)
    assert list(tmp_path.iterdir()) == []
    known(fetched())
    assert check_toy(tmp_path) == said


def test_the_checksums_are_those_that_torchvision_knows() -> None:
    from torchvision.datasets import CIFAR10, KMNIST

    def known(name: str) -> list[list[str]]:
        return [[part.path, part.digest] for part in catalog.DATASETS[name].parts]

    assert known("kmnist") == [[f"KMNIST/raw/{name}", md5] for name, md5 in KMNIST.resources]
    published = [
        *CIFAR10.train_list,
        *CIFAR10.test_list,
        [CIFAR10.meta["filename"], CIFAR10.meta["md5"]],
    ]
    assert known("cifar10") == [[f"{CIFAR10.base_folder}/{name}", md5] for name, md5 in published]


ONE = [(10.0, 20.0, 5.0, 12.0, 20.0)]
COUNTS = {"train": 3, "test": 2}


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small archives, as SVHN's, in a folder that all downloads come from."""
    folder, archives = tmp_path_factory.mktemp("served"), {}
    for part, count in COUNTS.items():
        write_folder(folder / part, [(60 + n, 40, ONE) for n in range(count)])
        path = folder / f"{part}.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder / part, part)
        archives[f"svhn/{part}"] = hashlib.sha256(path.read_bytes()).hexdigest()

    def download_url(address: str, into: str, name: str) -> None:
        shutil.copy(folder / name, into)

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download_url)
    monkeypatch.setattr(sources, "ARCHIVES", archives)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("[!.]*") if p.is_file()
    }


def test_a_damaged_archive_is_refused_in_one_line(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = served / "train.tar.gz"
    archive.write_bytes(archive.read_bytes()[:9000])
    with pytest.raises(UsageError, match=r"train.tar.gz is damaged: expected SHA-256"):
        catalog.fetch("svhn", tmp_path)
    monkeypatch.setattr(sources, "RECORDINGS", "https://example.org/train.tar.gz")
    with pytest.raises(UsageError, match=r"cannot fetch spoken-digits .*: Compressed file ended"):
        catalog.fetch("spoken-digits", tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_fetched_folder_that_lost_a_picture_is_damaged(tmp_path: Path, served: Path) -> None:
    catalog.fetch("svhn", tmp_path)
    (tmp_path / "svhn/train/1.png").unlink()
    row = catalog.DATASETS["svhn"].status(tmp_path)
    assert row.state == "damaged"
    assert row.note.startswith(f"{tmp_path / 'svhn/train'} is damaged: expected SHA-256")


def test_a_damaged_folder_is_fetched_anew(tmp_path: Path, served: Path) -> None:
    catalog.fetch("svhn", tmp_path)
    (tmp_path / "svhn/train/1.png").unlink()
    assert catalog.fetch("svhn", tmp_path).state == "present"
    assert tree(tmp_path / "svhn/train") == tree(served / "train")


def test_other_pictures_are_accepted_and_never_replaced(tmp_path: Path, served: Path) -> None:
    write_folder(tmp_path / "svhn/train", [(60, 40, ONE)] * 5)
    before = tree(tmp_path)
    row = catalog.fetch("svhn", tmp_path)
    assert (row.state, row.note) == ("present", "not fetched by milbench: svhn/train")
    assert tree(tmp_path / "svhn/test") == tree(served / "test")
    assert {path.name for path in (tmp_path / "svhn").iterdir()} == {*COUNTS}  # nothing temporary
    assert tree(tmp_path).items() > before.items()
