"""The built-in data sets: where their files are, whether they are complete, and how to fetch them.

A download is moved to its place only when it is complete: a killed one leaves no file that could be mistaken for data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from milbench._utils import digests
from milbench._utils.files import expanded
from milbench.data import house_numbers, svhn
from milbench.data.downloads import fetch_files
from milbench.data.number_pictures import NumberPictures
from milbench.data.spoken_digits import SpokenDigitFiles
from milbench.errors import UsageError, as_usage, unknown

ENVIRONMENT = "MILBENCH_DATA"
"""The environment variable that names the data directory."""
_downloads = ContextVar("downloads", default=True)
State = Literal["present", "missing", "damaged"]


class File(NamedTuple):
    """One file of a data set: its path below the data directory, its size in bytes, and its MD5 in hexadecimal."""

    path: str
    size: int
    md5: str

    def problem(self, root: Path, *, remembered: bool = False) -> str | None:
        """Return what is wrong with the file below `root`; `remembered`: hash it once until it changes."""
        path = root / self.path
        try:
            if (size := path.stat().st_size) != self.size:
                return f"{path} is damaged: expected {self.size} bytes, found {size}"
            md5 = digests.file_digest(path, "md5") if remembered else digests.read_digest(path, "md5")
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        return None if md5 == self.md5 else f"{path} is damaged: expected MD5 {self.md5}, found {md5}"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set of a few files with known checksums; `download` puts all of them below the directory it is given."""

    name: str
    files: tuple[File, ...]
    download: Callable[[Path], None]

    def missing(self, root: Path) -> list[str]:
        """Return the paths, below `root`, of the files that do not exist."""
        return [file.path for file in self.files if not (root / file.path).exists()]

    def problems(self, root: Path, *, remembered: bool = False) -> list[str]:
        """Read the files that exist, if `remembered` those that changed; return one message for each damaged one."""
        found = (file.problem(root, remembered=remembered) for file in self.files if (root / file.path).exists())
        return [problem for problem in found if problem]

    def place(self, root: Path) -> Path:
        """Return the folder of the first file."""
        return root / Path(self.files[0].path).parent

    def identity(self, root: Path | None = None) -> str:  # noqa: ARG002
        """Return a digest of the paths and checksums, which is the same wherever the data set is complete."""
        text = "".join(f"{file.path} {file.md5}\n" for file in self.files)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def remark(self, root: Path) -> str:  # noqa: ARG002
        """Return an empty note."""
        return ""

    def fetch(self, root: Path) -> None:
        """Download all files where one is missing or damaged, see `fetch_files`."""
        fetch_files(self, root, [file.path for file in self.files], self.download)


Source = Dataset | NumberPictures | SpokenDigitFiles
"""What can be found below a data directory, checked, and fetched or made."""


class DatasetStatus(NamedTuple):
    """The state of a data set, its folder, the digest of what is complete, and what is wrong, or a remark."""

    dataset: str
    path: Path
    state: State
    digest: str
    note: str


@as_usage()
def data_dir(given: Path | None) -> Path:
    """Return the data directory: `given`, else the one in MILBENCH_DATA, else the user's cache folder of milbench.

    Raises UsageError where one is named that does not exist.
    """
    named = given or os.environ.get(ENVIRONMENT)
    if not named:
        from platformdirs import user_cache_path

        return user_cache_path("milbench", appauthor=False)
    path = expanded(Path(named), "the data directory")
    if not path.is_dir():
        origin = "" if given else f" (from {ENVIRONMENT})"
        raise UsageError(f"the data directory {path}{origin} {'is a file' if path.exists() else 'does not exist'}")
    return path


def status(root: Path) -> list[DatasetStatus]:
    """Read and check every file of every known data set below `root`; return the state of each data set."""
    return [_status(dataset, root) for dataset in DATASETS.values()]


def fetch(name: str, root: Path) -> DatasetStatus:
    """Download or make a data set below `root` unless it is complete, replacing damaged files; return its state.

    Raises UsageError for a name that is none, a download that fails, or a directory that cannot be written.
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    dataset = DATASETS[name]
    try:
        root.mkdir(parents=True, exist_ok=True)
        dataset.fetch(root)
    except (OSError, RuntimeError) as error:  # torchvision raises RuntimeError where every mirror fails
        raise UsageError(f"cannot fetch {name} into {root}: {error}") from error
    return _status(dataset, root)


@contextmanager
def downloads(allowed: bool) -> Iterator[None]:
    """Let `require` download for the block or not: then files that are missing count as those that it would fetch."""
    token = _downloads.set(allowed)
    try:
        yield
    finally:
        _downloads.reset(token)


def require(name: str, root: Path, instead: str) -> Source:
    """Return a complete data set, downloaded first if files of it are missing; see also `downloads`.

    A damaged file is not replaced: it may be the user's own. Raises UsageError for one, or where nothing can be
    downloaded, with what to do `instead`.
    """
    dataset = DATASETS[name]
    if missing := dataset.missing(root):
        if not _downloads.get():
            return dataset
        _refuse_damaged(dataset, root)  # a download replaces all files
        try:
            fetch(name, root)
        except UsageError as error:
            raise UsageError(f"{name} not found: looked for {root / missing[0]}; {error}; {instead}") from error
    _refuse_damaged(dataset, root)
    return dataset


def _refuse_damaged(dataset: Source, root: Path) -> None:
    if problems := dataset.problems(root, remembered=True):
        raise UsageError(f"{problems[0]}; `milbench data fetch {dataset.name}` replaces it")


def _status(dataset: Source, root: Path) -> DatasetStatus:
    path = dataset.place(root)
    if missing := dataset.missing(root):
        return DatasetStatus(dataset.name, path, "missing", "", f"no {missing[0]}")
    try:
        if problems := dataset.problems(root):
            return DatasetStatus(dataset.name, path, "damaged", "", problems[0])
        return DatasetStatus(dataset.name, path, "present", dataset.identity(root), dataset.remark(root))
    except UsageError as error:
        return DatasetStatus(dataset.name, path, "damaged", "", str(error))


def _by_torchvision(name: str, title: str, *files: tuple[str, int, str]) -> Dataset:
    """Return a data set that the class of a title downloads into the folder TITLE/raw."""

    def download(folder: Path) -> None:
        from torchvision import datasets

        getattr(datasets, title)(folder, download=True)

    return Dataset(name, tuple(File(f"{title}/raw/{file}", size, md5) for file, size, md5 in files), download)


MNIST_FILES = _by_torchvision(
    "mnist", "MNIST",
    ("train-images-idx3-ubyte", 47_040_016, "6bbc9ace898e44ae57da46a324031adb"),
    ("train-labels-idx1-ubyte", 60_008, "a25bea736e30d166cdddb491f175f624"),
    ("t10k-images-idx3-ubyte", 7_840_016, "2646ac647ad5339dbf082846283269ea"),
    ("t10k-labels-idx1-ubyte", 10_008, "27ae3e4e09519cfbb04c329615203637"),
)  # fmt: skip
FASHION_MNIST_FILES = _by_torchvision(
    "fashion-mnist", "FashionMNIST",
    ("train-images-idx3-ubyte", 47_040_016, "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    ("train-labels-idx1-ubyte", 60_008, "9018921c3c673c538a1fc5bad174d6f9"),
    ("t10k-images-idx3-ubyte", 7_840_016, "8181f5470baa50b63fa0f6fddb340f0a"),
    ("t10k-labels-idx1-ubyte", 10_008, "15d484375f8d13e6eb1aabb0c3f46965"),
)  # fmt: skip
KMNIST_FILES = _by_torchvision(  # as they are published, compressed: torchvision keeps them, and knows these checksums
    "kmnist", "KMNIST",
    ("train-images-idx3-ubyte.gz", 18_165_135, "bdb82020997e1d708af4cf47b453dcf7"),
    ("train-labels-idx1-ubyte.gz", 29_497, "e144d726b3acfaa3e44228e80efcd344"),
    ("t10k-images-idx3-ubyte.gz", 3_041_136, "5c965bf0a639b31b8f53240b1b52f4d7"),
    ("t10k-labels-idx1-ubyte.gz", 5_120, "7320c461ea6c1c855c0b718fb2a4b134"),
)  # fmt: skip


def _download_cifar10(folder: Path) -> None:
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import download_and_extract_archive

    # Not by CIFAR10(download=True), which goes on to unpickle what it downloaded.
    download_and_extract_archive(CIFAR10.url, str(folder), filename=CIFAR10.filename, md5=CIFAR10.tgz_md5)


CIFAR10_FILES = Dataset(
    "cifar10",
    (
        File("cifar-10-batches-py/data_batch_1", 31_035_704, "c99cafc152244af753f735de768cd75f"),
        File("cifar-10-batches-py/data_batch_2", 31_035_320, "d4bba439e000b95fd0a9bffe97cbabec"),
        File("cifar-10-batches-py/data_batch_3", 31_035_999, "54ebc095f3ab1f0389bbae665268c751"),
        File("cifar-10-batches-py/data_batch_4", 31_035_696, "634d18415352ddfa80567beed471001a"),
        File("cifar-10-batches-py/data_batch_5", 31_035_623, "482c414d41f54cd18b22e5b47cb7c3cb"),
        File("cifar-10-batches-py/test_batch", 31_035_526, "40351d587109b95175f43aff81a1287e"),
        File("cifar-10-batches-py/batches.meta", 158, "5ff9c542aee3614f3951f8cda6e48888"),
    ),
    _download_cifar10,
)
_SVHN = NumberPictures(svhn.NAME, svhn.fetch)
_RENDERED = NumberPictures(house_numbers.NAME, house_numbers.fetch)
_FILES = (MNIST_FILES, FASHION_MNIST_FILES, KMNIST_FILES, CIFAR10_FILES)
DATASETS: dict[str, Source] = {source.name: source for source in (*_FILES, _SVHN, _RENDERED, SpokenDigitFiles())}
"""The data sets that `milbench data` lists, fetches and verifies, by name."""
