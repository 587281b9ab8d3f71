"""Where data sets are, whether they are whole, and how to get them.

Files are checked by size and MD5 before anything reads them, and a download is moved to its place only when it is
whole: a killed download leaves nothing behind that could be taken for data.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from milbench._utils.files import staged
from milbench.data.rendering.generate import RenderedNumbers
from milbench.data.svhn import SvhnFiles
from milbench.errors import UsageError, unknown

ENVIRONMENT = "MILBENCH_DATA"
State = Literal["present", "missing", "damaged"]
STALLED = 30.0
"""Seconds without an answer after which a download is given up."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a data set: its path under the data directory, size in bytes, and MD5."""

    path: str
    size: int
    md5: str

    def problem(self, root: Path) -> str | None:
        """Return what is wrong with the file, None where nothing is."""
        path = root / self.path
        try:
            size = path.stat().st_size
            if size != self.size:
                return f"{path} is damaged: expected {self.size} bytes, found {size}"
            with path.open("rb") as file:
                md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        return None if md5 == self.md5 else f"{path} is damaged: expected MD5 {self.md5}, found {md5}"


class Source(Protocol):
    """A data set that the suite knows how to find under a data directory, check, and get."""

    @property
    def name(self) -> str:
        """How it is called."""

    def place(self, root: Path) -> Path:
        """Return its folder."""

    def missing(self, root: Path) -> list[str]:
        """Return the paths of the files that are not there."""

    def problems(self, root: Path) -> list[str]:
        """Return what is wrong with the files that are there."""

    def identity(self, root: Path) -> str:
        """Return a digest of a data set that is there and whole."""

    def remark(self, root: Path) -> str:
        """Return what else there is to say of it."""

    def fetch(self, root: Path) -> None:
        """Get what is missing. Raises UsageError, OSError and RuntimeError."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set that can be fetched: its files, and a function that downloads them under a directory."""

    name: str
    files: tuple[File, ...]
    download: Callable[[Path], None]

    def missing(self, root: Path) -> list[str]:
        """Return the paths of the files that are not there."""
        return [file.path for file in self.files if not (root / file.path).exists()]

    def problems(self, root: Path) -> list[str]:
        """Return what is wrong with the files that are there."""
        found = (file.problem(root) for file in self.files if (root / file.path).exists())
        return [problem for problem in found if problem]

    def place(self, root: Path) -> Path:
        """Return the folder of the first file."""
        return root / Path(self.files[0].path).parent

    def identity(self, root: Path) -> str:  # noqa: ARG002
        """Return the digest: whatever is whole is the same everywhere."""
        return self.digest

    def remark(self, root: Path) -> str:  # noqa: ARG002
        """Return nothing."""
        return ""

    def fetch(self, root: Path) -> None:
        """Download into a temporary folder, check, then move every file to its place, if one is missing or damaged."""
        if not (self.missing(root) or self.problems(root)):
            return
        with staged(root, self.name) as folder, _impatient():
            self.download(folder)
            if bad := self.missing(folder) or self.problems(folder):
                raise UsageError(f"the download of {self.name} is not what was expected: {bad[0]}")
            for file in self.files:
                (root / file.path).parent.mkdir(parents=True, exist_ok=True)
                (folder / file.path).replace(root / file.path)

    @property
    def digest(self) -> str:
        """SHA-256 over the names and checksums of the files, shortened."""
        text = "".join(f"{file.path} {file.md5}\n" for file in self.files)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """The state of one data set under a data directory; `note` says what is wrong, "" where nothing is."""

    dataset: str
    path: Path
    state: State
    digest: str
    note: str


def data_dir(given: Path | None) -> Path:
    """Return the data directory: the given one, else the one in MILBENCH_DATA, else a folder in the user's cache.

    Raises UsageError where one was named and is no directory.
    """
    named = given or os.environ.get(ENVIRONMENT)
    if not named:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "milbench"
    path = Path(named).expanduser()
    if not path.is_dir():
        origin = "" if given else f" (from {ENVIRONMENT})"
        raise UsageError(f"the data directory {path}{origin} {'is a file' if path.exists() else 'does not exist'}")
    return path


def status(root: Path) -> list[DatasetStatus]:
    """Return the state of every data set that the suite knows, every file read and checked."""
    return [_status(dataset, root) for dataset in DATASETS.values()]


def fetch(name: str, root: Path) -> DatasetStatus:
    """Download a data set unless it is there and whole, replacing what is damaged; return its state.

    Raises UsageError for an unknown name, where the download fails, and where the directory cannot be written.
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


def require(name: str, root: Path, instead: str) -> Source:
    """Return a data set that is there and whole, after a try to download it where files are missing.

    `instead` ends the message of the UsageError that is raised where it cannot be had.
    """
    dataset = DATASETS[name]
    if missing := dataset.missing(root):
        try:
            fetch(name, root)
        except UsageError as error:
            raise UsageError(f"{name} not found: looked for {root / missing[0]}; {error}; {instead}") from error
    if problems := dataset.problems(root):
        raise UsageError(f"{problems[0]}; `milbench data fetch {name}` replaces it")
    return dataset


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


@contextmanager
def _impatient() -> Iterator[None]:
    """Give up a download that stalls: torchvision opens its addresses without a time limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALLED)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _download_mnist(folder: Path) -> None:
    from torchvision.datasets import MNIST

    MNIST(folder, download=True)


MNIST_FILES = Dataset(
    "mnist",
    (
        File("MNIST/raw/train-images-idx3-ubyte", 47_040_016, "6bbc9ace898e44ae57da46a324031adb"),
        File("MNIST/raw/train-labels-idx1-ubyte", 60_008, "a25bea736e30d166cdddb491f175f624"),
        File("MNIST/raw/t10k-images-idx3-ubyte", 7_840_016, "2646ac647ad5339dbf082846283269ea"),
        File("MNIST/raw/t10k-labels-idx1-ubyte", 10_008, "27ae3e4e09519cfbb04c329615203637"),
    ),
    _download_mnist,
)


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
DATASETS: dict[str, Source] = {d.name: d for d in (MNIST_FILES, CIFAR10_FILES, SvhnFiles(), RenderedNumbers())}
"""What `milbench data` lists, fetches and verifies."""
