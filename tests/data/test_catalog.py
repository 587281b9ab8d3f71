"""The catalogue of data sets: where files are, whether they are whole, how they are fetched."""

import hashlib
import shutil
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from milbench.data import catalog, sources
from milbench.data.catalog import Dataset, DatasetStatus, Part
from milbench.data.sources import STALLED, Download
from milbench.errors import UsageError
from tests._helpers.svhn_files import write_folder

Known = Callable[[Download], Dataset]
"""Type of the fixture `known`."""
CONTENT = {"toy/raw/a": b"some bytes", "toy/raw/b": b"and others"}
PARTS = tuple(Part(path, hashlib.md5(content).hexdigest()) for path, content in CONTENT.items())


def place(folder: Path, content: dict[str, bytes]) -> None:
    """Write files below a folder: path -> content."""
    for path, value in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(value)


def files_below(folder: Path) -> dict[str, bytes]:
    """Return path from the folder -> content, for each file below it, hidden files too."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def brings(content: dict[str, bytes] = CONTENT) -> Download:
    """Return a download that brings these files, whichever file is wanted."""

    def download(folder: Path, wanted: str) -> None:
        place(folder, content)

    return download


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """A function that makes a toy data set, with a way to download it, the only known one."""

    def register(download: Download) -> Dataset:
        dataset = Dataset("toy", PARTS, download, size=1)
        monkeypatch.setattr(catalog, "DATASETS", {"toy": dataset})
        return dataset

    return register


def unreachable(folder: Path, wanted: str) -> None:
    """A download that breaks off and leaves a part of a file."""
    place(folder, {"toy/raw/a": b"some"})
    raise RuntimeError("all mirrors\nare down")


@pytest.fixture
def named_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below the home folder that the environment names as the data directory."""
    folder = tmp_path / "named"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MILBENCH_DATA", "~/named")
    return folder


def test_the_environment_names_the_data_directory(named_folder: Path) -> None:
    assert catalog.data_dir(None) == named_folder


@pytest.mark.usefixtures("named_folder")
def test_a_given_folder_wins_over_the_environment(tmp_path: Path) -> None:
    assert catalog.data_dir(tmp_path) == tmp_path


def test_the_cache_is_the_data_directory_unless_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MILBENCH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert catalog.data_dir(None) == tmp_path / "cache" / "milbench"


def test_a_given_folder_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="typo does not exist"):
        catalog.data_dir(tmp_path / "typo")


def test_a_file_in_place_of_the_data_directory_is_named_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MILBENCH_DATA", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"file \(from MILBENCH_DATA\) is a file"):
        catalog.data_dir(None)


def test_the_status_of_an_absent_data_set_is_missing(tmp_path: Path, known: Known) -> None:
    status = known(unreachable).status(tmp_path)
    assert status == DatasetStatus("toy", tmp_path / "toy/raw", "missing", "", "no toy/raw/a")


def test_the_status_of_a_complete_data_set_is_present(tmp_path: Path, known: Known) -> None:
    dataset = known(unreachable)
    place(tmp_path, CONTENT)
    status = dataset.status(tmp_path)
    assert status.state == "present"
    assert status.digest == dataset.identity(tmp_path)
    assert status.note == ""


def test_the_status_of_a_changed_file_is_damaged(tmp_path: Path, known: Known) -> None:
    dataset = known(unreachable)
    changed = b"and Others"
    place(tmp_path, CONTENT | {"toy/raw/b": changed})
    status = dataset.status(tmp_path)
    assert status.state == "damaged"
    assert status.digest == ""
    expected = f"expected MD5 {PARTS[1].digest}, found {hashlib.md5(changed).hexdigest()}"
    assert status.note == f"{tmp_path / 'toy/raw/b'} is damaged: {expected}"


class Downloads:
    """A download that brings all files, and notes each time which file was wanted."""

    def __init__(self) -> None:
        self.wanted: list[str] = []
        self.time_limits: list[float | None] = []

    def __call__(self, folder: Path, wanted: str) -> None:
        self.wanted.append(wanted)
        self.time_limits.append(socket.getdefaulttimeout())
        place(folder, CONTENT)


@pytest.fixture
def downloaded(known: Known) -> Downloads:
    download = Downloads()
    known(download)
    return download


def test_one_download_may_bring_all_files(tmp_path: Path, downloaded: Downloads) -> None:
    assert catalog.fetch("toy", tmp_path / "new").state == "present"
    assert downloaded.wanted == ["toy/raw/a"]
    assert files_below(tmp_path / "new") == CONTENT


def test_a_complete_data_set_is_not_downloaded_again(tmp_path: Path, downloaded: Downloads) -> None:
    catalog.fetch("toy", tmp_path)
    assert catalog.fetch("toy", tmp_path).state == "present"
    assert downloaded.wanted == ["toy/raw/a"]


def test_a_damaged_file_is_downloaded_again(tmp_path: Path, downloaded: Downloads) -> None:
    catalog.fetch("toy", tmp_path)
    place(tmp_path, {"toy/raw/a": b"x"})
    assert catalog.fetch("toy", tmp_path).state == "present"
    assert downloaded.wanted == ["toy/raw/a", "toy/raw/a"]
    assert files_below(tmp_path) == CONTENT


@pytest.mark.usefixtures("downloaded")
def test_a_fetch_leaves_nothing_temporary(tmp_path: Path) -> None:
    catalog.fetch("toy", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_connections_have_a_time_limit_while_a_download_lasts(
    tmp_path: Path, downloaded: Downloads
) -> None:
    catalog.fetch("toy", tmp_path)
    assert downloaded.time_limits == [STALLED]
    assert socket.getdefaulttimeout() is None


def test_a_download_that_fails_leaves_nothing_behind(tmp_path: Path, known: Known) -> None:
    known(unreachable)
    with pytest.raises(UsageError, match=f"cannot fetch toy into {tmp_path}: all mirrors are down"):
        catalog.fetch("toy", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_download_with_other_content_is_refused(tmp_path: Path, known: Known) -> None:
    known(brings(CONTENT | {"toy/raw/b": b"not the same"}))
    with pytest.raises(
        UsageError, match=r"not what was expected: .*raw/b is damaged: expected MD5"
    ):
        catalog.fetch("toy", tmp_path)
    assert files_below(tmp_path) == {}


def test_a_download_without_the_wanted_file_keeps_complete_files(
    tmp_path: Path, known: Known
) -> None:
    known(brings({"toy/raw/a": CONTENT["toy/raw/a"]}))
    with pytest.raises(UsageError, match=r"not what was expected: .*toy/raw/b cannot be read"):
        catalog.fetch("toy", tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["toy", "raw", "a"]


def check_toy(root: Path) -> str:
    """Return what identifies the toy data set below a folder, after fetching what is missing."""
    return catalog.check_dataset("toy", "Toys", root, Path, "go elsewhere", any_data=False)


def test_missing_files_are_downloaded(tmp_path: Path, known: Known) -> None:
    dataset = known(brings())
    assert check_toy(tmp_path) == f"Toys, sha256 {dataset.identity(tmp_path)}"
    assert files_below(tmp_path) == CONTENT


def test_a_damaged_file_is_refused_and_stays(tmp_path: Path, known: Known) -> None:
    # The file may be somebody's own: only `milbench data fetch` may replace it.
    known(brings())
    changed = CONTENT | {"toy/raw/a": b"some Bytes"}
    place(tmp_path, changed)
    with pytest.raises(
        UsageError,
        match=r"raw/a is damaged: expected MD5 .*; `milbench data fetch toy` replaces it",
    ):
        check_toy(tmp_path)
    assert files_below(tmp_path) == changed


def test_a_damaged_file_stays_where_another_file_is_missing(tmp_path: Path, known: Known) -> None:
    known(brings())
    place(tmp_path, {"toy/raw/a": b"some Bytes"})
    with pytest.raises(UsageError, match=r"raw/a is damaged"):
        check_toy(tmp_path)
    assert files_below(tmp_path) == {"toy/raw/a": b"some Bytes"}


def test_a_failed_download_is_named_with_what_to_do_instead(tmp_path: Path, known: Known) -> None:
    known(unreachable)
    place(tmp_path, {"toy/raw/a": CONTENT["toy/raw/a"]})
    with pytest.raises(
        UsageError, match=r"toy not found: looked for .*raw/b; .*mirrors are down; go elsewhere"
    ):
        check_toy(tmp_path)


def forbidden(folder: Path, wanted: str) -> None:
    pytest.fail("it was downloaded")


def test_without_downloads_missing_files_count_as_fetched(tmp_path: Path, known: Known) -> None:
    known(forbidden)
    with catalog.downloads(False):
        without = check_toy(tmp_path)
    assert list(tmp_path.iterdir()) == []
    known(brings())
    assert check_toy(tmp_path) == without


def checksums(name: str) -> list[tuple[str, str]]:
    """Return the path and the MD5 digest of each file of a data set in the catalogue."""
    return [(part.path, part.digest) for part in catalog.DATASETS[name].parts]


def test_the_checksums_of_kmnist_are_those_of_torchvision() -> None:
    from torchvision.datasets import KMNIST

    published = [(f"KMNIST/raw/{name}", md5) for name, md5 in KMNIST.resources]
    assert checksums("kmnist") == published


def test_the_checksums_of_cifar10_are_those_of_torchvision() -> None:
    from torchvision.datasets import CIFAR10

    meta = [CIFAR10.meta["filename"], CIFAR10.meta["md5"]]
    files = [*CIFAR10.train_list, *CIFAR10.test_list, meta]
    published = [(f"{CIFAR10.base_folder}/{name}", md5) for name, md5 in files]
    assert checksums("cifar10") == published


ONE = [(10.0, 20.0, 5.0, 12.0, 20.0)]
"""Label, left, top, width and height of the only digit of a picture."""
COUNTS = {"train": 3, "test": 2}
"""The number of pictures in each archive."""


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that all downloads come from, with small archives in the form of SVHN's."""
    folder = tmp_path_factory.mktemp("served")
    archives = {}
    for part, count in COUNTS.items():
        write_folder(folder / part, [(60 + number, 40, ONE) for number in range(count)])
        path = folder / f"{part}.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder / part, part)
        archives[f"svhn/{part}"] = hashlib.sha256(path.read_bytes()).hexdigest()

    def download_url(address: str, into: str, name: str) -> None:
        shutil.copy(folder / name, into)

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download_url)
    monkeypatch.setattr(sources, "ARCHIVES", archives)
    return folder


def pictures_in(folder: Path) -> dict[str, bytes]:
    """Return path from the folder -> content, for each file below it that is not hidden.

    A seal, which says that milbench fetched a folder, is a hidden file.
    """
    files = [path for path in folder.rglob("[!.]*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def cut_short(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:9000])


def test_an_archive_with_another_digest_is_refused(tmp_path: Path, served: Path) -> None:
    cut_short(served / "train.tar.gz")
    with pytest.raises(UsageError, match=r"train.tar.gz is damaged: expected SHA-256"):
        catalog.fetch("svhn", tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_archive_that_cannot_be_unpacked_is_refused(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_short(served / "train.tar.gz")
    monkeypatch.setattr(sources, "RECORDINGS", "https://example.org/train.tar.gz")
    with pytest.raises(UsageError, match=r"cannot fetch spoken-digits .*: Compressed file ended"):
        catalog.fetch("spoken-digits", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_fetched_folder_that_lost_a_picture_is_damaged(tmp_path: Path, served: Path) -> None:
    catalog.fetch("svhn", tmp_path)
    (tmp_path / "svhn/train/1.png").unlink()
    status = catalog.DATASETS["svhn"].status(tmp_path)
    assert status.state == "damaged"
    assert status.note.startswith(f"{tmp_path / 'svhn/train'} is damaged: expected SHA-256")


def test_a_damaged_folder_is_fetched_anew(tmp_path: Path, served: Path) -> None:
    catalog.fetch("svhn", tmp_path)
    (tmp_path / "svhn/train/1.png").unlink()
    assert catalog.fetch("svhn", tmp_path).state == "present"
    assert pictures_in(tmp_path / "svhn/train") == pictures_in(served / "train")


def test_other_pictures_are_accepted_and_never_replaced(tmp_path: Path, served: Path) -> None:
    write_folder(tmp_path / "svhn/train", [(60, 40, ONE)] * 5)
    before = pictures_in(tmp_path / "svhn/train")
    status = catalog.fetch("svhn", tmp_path)
    assert status.state == "present"
    assert status.note == "not fetched by milbench: svhn/train"
    assert pictures_in(tmp_path / "svhn/train") == before
    assert pictures_in(tmp_path / "svhn/test") == pictures_in(served / "test")
    # Nothing temporary is left.
    assert {path.name for path in (tmp_path / "svhn").iterdir()} == {*COUNTS}
