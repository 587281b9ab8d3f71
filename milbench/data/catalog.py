"""The built-in data sets: find, check and fetch their files.

A part of a data set is fetched wholly or not at all.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from milbench._utils import digests, extras
from milbench._utils.addresses import hide_in
from milbench._utils.files import (
    WrongFile,
    expanded,
    flush_folder,
    flush_tree,
    folder_digest,
    read_file,
    scratch_folder,
)
from milbench.data import esc10, free_spoken_digits, ocr_letters, sources
from milbench.errors import UsageError, as_usage, unknown

ENVIRONMENT = "MILBENCH_DATA"
"""The environment variable that names the data directory."""
SEAL = ".sha256"
"""The name of a file in a folder that milbench fetched: it holds the digest of the folder.

A folder that a user brought has no such file.
"""
_downloads = ContextVar("downloads", default=True)
"""Whether `check_dataset` may download."""


class Part(NamedTuple):
    """A file or folder of a data set."""

    path: str
    """The path in the data directory."""
    digest: str = ""
    """The MD5 of a file, or the SHA-256 of a folder or by `contents`; "": see the file `SEAL`."""
    contents: Callable[[Path], str] | None = None
    """Returns the SHA-256 of the data in a file whose bytes may differ from one copy to another."""

    def expected(self, root: Path) -> str:
        """Return the digest that the part should have, "" where the digest is not known."""
        if self.digest:
            return self.digest
        seal = root / self.path / SEAL
        if not os.path.lexists(seal):
            return ""
        sealed = read_file(seal).decode("utf-8", "replace").strip()
        # An empty seal is damaged. "" would mean that a user brought the folder, so another text is
        # returned, which no digest equals and which reads well in the message.
        return sealed or "a digest"

    def files(self, root: Path) -> list[Path]:
        """Return the files of the part in the data directory `root`, sorted."""
        path = root / self.path
        if not path.is_dir():
            return [path]
        return sorted(file for file in path.rglob("*") if file.is_file())

    def problem(self, root: Path, *, remembered: bool = False) -> str:
        """Return what is wrong with this part in the data directory `root`, "" for nothing.

        With `remembered` a digest that was computed before is used until a file changes.
        """
        path = root / self.path
        try:
            expected = self.expected(root)
            if not expected:
                return ""
            kind, read = self._reader(path)
            found = digests.remembered(kind, self.files(root), read) if remembered else read()
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        except UsageError as error:
            return str(error)
        except WrongFile as error:
            return f"{path} is damaged: {error}"
        if found == expected:
            return ""
        return f"{path} is damaged: expected {kind} {expected}, found {found}"

    def _reader(self, path: Path) -> tuple[str, Callable[[], str]]:
        """Return the kind of the digest of this part, and a function that computes the digest.

        The function reads the part from `path`.
        """
        if self.contents or path.is_dir():
            return "SHA-256", partial(self.contents or folder_digest, path)
        return "MD5", partial(digests.read_digest, path, "md5")

    def is_complete(self, root: Path) -> bool:
        """Return whether the part exists in the data directory `root`, and has no known fault."""
        return (root / self.path).exists() and not self.problem(root)


class DatasetStatus(NamedTuple):
    """What `milbench data list` says of a data set."""

    dataset: str
    path: Path
    """The folder of its first part."""
    state: str
    """present, missing or damaged"""
    digest: str
    """A short digest of all parts, "" where the data set is not whole."""
    note: str
    """What is wrong, or a remark."""


class Extra(NamedTuple):
    """A library that is needed to read a data set, and the extra of milbench that installs it."""

    module: str
    """The library, as Python imports it."""
    name: str
    """The extra, as in `pip install milbench[NAME]`."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A built-in data set: its files and folders, and how they are downloaded."""

    name: str
    parts: tuple[Part, ...]
    download: sources.Download
    """Downloads a part into a folder."""
    size: int
    """About how many bytes are downloaded."""
    licence: str = ""
    """The licence, "" where its authors state none."""
    extra: Extra | None = None
    """The library that is needed to read it, None where milbench itself brings what is needed."""
    holds: str = ""
    """What it holds, in words: how many images or recordings."""

    @property
    def about(self) -> str:
        """The size and the licence in words, for whoever decides on a download."""
        return f"{megabytes(self.size)}, licence: {self.licence or 'not stated'}"

    def check_extra(self) -> None:
        """Raise UsageError where the library that is needed to read the data is not installed."""
        if self.extra:
            extras.load(self.extra.module, self.extra.name, self.name)

    def missing(self, root: Path) -> list[str]:
        """Return the paths, in the data directory `root`, of the parts that do not exist."""
        return [part.path for part in self.parts if not (root / part.path).exists()]

    def problems(self, root: Path, *, remembered: bool = False) -> list[str]:
        """Check the parts that exist; return a message for each damaged part.

        With `remembered` a part is read only if it changed since it was last read.
        """
        present = [part for part in self.parts if (root / part.path).exists()]
        problems = [part.problem(root, remembered=remembered) for part in present]
        return [problem for problem in problems if problem]

    def identity(self, root: Path) -> str:
        """Return a digest of what the parts should hold, "" where no part has a known digest."""
        lines = []
        for part in self.parts:
            digest = part.expected(root)
            if digest:
                lines.append(f"{part.path} {digest}\n")
        return _short_digest("".join(lines)) if lines else ""

    def status(self, root: Path) -> DatasetStatus:
        """Read and check every part; return the state of the data set in the data directory."""
        folder = (root / self.parts[0].path).parent
        missing = self.missing(root)
        if missing:
            return DatasetStatus(self.name, folder, "missing", "", f"no {missing[0]}")
        problems = self.problems(root)
        if problems:
            return DatasetStatus(self.name, folder, "damaged", "", problems[0])
        note = ""
        unsealed = [part.path for part in self.parts if not part.expected(root)]
        if unsealed:
            note = f"not fetched by milbench: {', '.join(unsealed)}"
        return DatasetStatus(self.name, folder, "present", self.identity(root), note)

    def fetch(self, root: Path) -> None:
        """Download, check and move into place each part that is missing or damaged.

        Other processes that want the data set wait.
        """
        for part in self.parts:
            if part.is_complete(root):
                continue
            with scratch_folder(root, self.name) as folder, sources.stalled_connections_end():
                # Another process may have fetched it while this one waited for the lock.
                if not part.is_complete(root):
                    self._fetch_part(part, root, folder)

    def _fetch_part(self, part: Part, root: Path, folder: Path) -> None:
        """Download a part into a scratch folder, check it, and move it into the data directory.

        The download may bring other parts of the data set. If they are needed, they are moved, too.
        """
        self.download(folder, part.path)
        needed = []
        for other in self.parts:
            # The part that was asked for is checked even if the download did not bring it.
            is_brought = other is part or (folder / other.path).exists()
            if is_brought and not other.is_complete(root):
                needed.append(other)
        for fetched in needed:
            if not fetched.digest:
                digest = folder_digest(folder / fetched.path)
                (folder / fetched.path / SEAL).write_text(digest)
            problem = fetched.problem(folder)
            if problem:
                raise UsageError(f"the download of {self.name} is not what was expected: {problem}")
        for fetched in needed:
            _move_into_place(folder, fetched.path, root)


def _move_into_place(folder: Path, path: str, root: Path) -> None:
    """Move a file or folder from a scratch folder into the data directory `root`.

    A folder that was there before is moved into the scratch folder.
    """
    new = folder / path
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    # Without this the loss of the machine may leave empty files under valid names.
    flush_tree(new)
    # `replace` cannot replace a folder.
    if place.is_dir():
        place.rename(folder / f"damaged-{place.name}")
    new.replace(place)
    flush_folder(place.parent)


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def megabytes(size: int) -> str:
    """Return a number of bytes as text, such as 12 MB."""
    millions = size / 1e6
    return f"{millions:.1f} MB" if millions < 10 else f"{millions:,.0f} MB"


@as_usage()
def data_dir(given: Path | None) -> Path:
    """Return the data directory.

    It is the folder `given`, or else the one that the environment variable MILBENCH_DATA names.
    UsageError is raised where this folder does not exist. If neither is set, the data directory is
    milbench's cache folder, which need not exist.
    """
    chosen = given or os.environ.get(ENVIRONMENT)
    if not chosen:
        from platformdirs import user_cache_path

        return user_cache_path("milbench", appauthor=False)
    path = expanded(Path(chosen), "the data directory")
    if not path.is_dir():
        origin = "" if given else f" (from {ENVIRONMENT})"
        fault = "is a file" if path.exists() else "does not exist"
        raise UsageError(f"the data directory {path}{origin} {fault}")
    return path


def find_file(name: str, folder: Path | None, parameter: str) -> Path:
    """Return the path of a file, looked for in the current folder and then in the data directory.

    Where it is in neither, its name is returned as a path.

    Args:
        name: the name of the file.
        folder: the data directory that the user gave, None for none.
        parameter: the parameter that names the file, for messages.
    """
    path = expanded(Path(name), parameter)
    if path.exists():
        return path
    in_data_dir = data_dir(folder) / path
    return in_data_dir if in_data_dir.exists() else path


def named(name: str) -> Dataset:
    """Return the data set of this name. Raises UsageError, with the closest name, for another."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]


def fetch(name: str, root: Path) -> DatasetStatus:
    """Download the parts of a data set that are missing or damaged; return its state.

    `root` is the data directory, which is made if needed. Raises UsageError where a download fails.
    """
    dataset = named(name)
    try:
        root.mkdir(parents=True, exist_ok=True)
        dataset.fetch(root)
    except (OSError, RuntimeError, EOFError) as error:
        # torchvision raises RuntimeError where every mirror fails, and an archive that is cut off
        # raises EOFError. Libraries quote the address of a proxy, which may have a password in it.
        reason = hide_in(str(error))
        raise UsageError(f"cannot fetch {name} into {root}: {reason}") from error
    return dataset.status(root)


def how_to_get(name: str, place: object, alternative: str) -> str:
    """Return what a user can do where a data set is missing, as the end of a message.

    Args:
        name: the name of the data set.
        place: where its files are in a data directory.
        alternative: what is said after "the task": another task that needs no download.
    """
    folder = f"point --data-dir or {ENVIRONMENT} at a folder with {place}"
    return f"{folder}, or fetch it with `milbench data fetch {name}`; the task {alternative}"


@contextmanager
def downloads(allowed: bool) -> Iterator[None]:
    """Say whether `check_dataset` may download within the block.

    If it may not, it returns for missing files the digest of the files that it would download.
    """
    token = _downloads.set(allowed)
    try:
        yield
    finally:
        _downloads.reset(token)


@as_usage()
def check_dataset(
    name: str,
    title: str,
    given: Path | None,
    load: Callable[[Path], object],
    instead: str,
    *,
    any_data: bool,
) -> str:
    """Return the title of a data set with its digest. Missing files are downloaded first.

    Whether they may be downloaded is set by `downloads`. A damaged file is an error. It is not
    replaced, as it may be the user's own.

    Args:
        name: the name of the data set.
        title: its name for people.
        given: the data directory that the user gave, None for none.
        load: reads the data, given the data directory; raises UsageError where it cannot.
        instead: the end of a message where files are missing.
        any_data: whether to accept any files that `load` can read. The text that is returned then
            says that they are not canonical.
    """
    root = data_dir(given)
    dataset = DATASETS[name]
    if any_data:
        digest = _digest_of_any(dataset, title, root, load, instead)
        return f"non-canonical {title}, sha256 {digest}"
    problems = dataset.problems(root, remembered=True)
    if problems:
        raise UsageError(f"{problems[0]}; `milbench data fetch {name}` replaces it")
    missing = dataset.missing(root)
    if missing and _downloads.get():
        try:
            fetch(name, root)
        except UsageError as error:
            raise UsageError(
                f"{name} not found: looked for {root / missing[0]}; {error}; {instead}"
            ) from error
    return f"{title}, sha256 {dataset.identity(root)}"


def _digest_of_any(
    dataset: Dataset, title: str, root: Path, load: Callable[[Path], object], instead: str
) -> str:
    """Return a digest of the files of a data set, if `load` can read them.

    They need not have the digests that are known. Raises UsageError where no file exists.
    """
    files = []
    for part in dataset.parts:
        files += [file for file in part.files(root) if file.exists()]
    if not files:
        raise UsageError(f"{root / dataset.parts[0].path} not found; {instead}")

    def read() -> str:
        load(root)
        lines = [f"{file.name} {digests.read_digest(file, 'sha256')}\n" for file in files]
        return _short_digest("".join(lines))

    return digests.remembered(title, files, read)


def _like_mnist(
    name: str, title: str, *checksums: str, size: int, licence: str, ending: str = ""
) -> Dataset:
    """Return a data set of four files, as MNIST has them, which torchvision can download.

    Args:
        name: the name of the data set.
        title: the name of its class in torchvision.
        checksums: the MD5 of training images, training labels, test images and test labels.
        size: about how many bytes are downloaded.
        licence: the licence.
        ending: the ending of the files, such as ".gz".
    """
    files = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    paths = [f"{title}/raw/{file}-ubyte{ending}" for file in files]
    parts = tuple(Part(path, md5) for path, md5 in zip(paths, checksums, strict=True))
    holds = "60,000 training images and 10,000 test images"
    return Dataset(name, parts, partial(sources.by_torchvision, title), size, licence, holds=holds)


_RECORDINGS = Part(
    str(free_spoken_digits.FOLDER),
    "dbd573d7cafe79c4b49f65718115e1304e24e067fa39eff18a660dc6cb9c360f",
)
_LETTERS = Part(
    str(ocr_letters.FILE),
    "2a7206b9f43ee439462453c14261643f4487bdf735ec0c97834a43430cd60f2e",
    contents=lambda path: ocr_letters.read(path).digest(),
)
_CLIPS = Part(
    str(esc10.FOLDER),
    "90f86c372a5566235f4a724cc3bd6163390aae3eebb52b3fd167001f2014db91",
    contents=partial(folder_digest, pattern=esc10.CLIPS),
)
_CIFAR10_SUMS = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}
"""File -> its MD5."""
_CIFAR10 = tuple(Part(f"cifar-10-batches-py/{file}", md5) for file, md5 in _CIFAR10_SUMS.items())
_H5 = Extra("h5py", "h5")
_SVHN_LICENCE = "for non-commercial use"
_DATASETS = (
    _like_mnist(
        "mnist",
        "MNIST",
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
        size=11_594_722,
        licence="CC BY-SA 3.0",
    ),
    _like_mnist(
        "fashion-mnist",
        "FashionMNIST",
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
        size=30_878_645,
        licence="MIT",
    ),
    # Compressed, as it is published: torchvision keeps these files, and knows their checksums.
    _like_mnist(
        "kmnist",
        "KMNIST",
        "bdb82020997e1d708af4cf47b453dcf7",
        "e144d726b3acfaa3e44228e80efcd344",
        "5c965bf0a639b31b8f53240b1b52f4d7",
        "7320c461ea6c1c855c0b718fb2a4b134",
        ending=".gz",
        size=21_240_888,
        licence="CC BY-SA 4.0",
    ),
    Dataset(
        "cifar10",
        _CIFAR10,
        sources.cifar10,
        170_498_071,
        holds="50,000 training images and 10,000 test images",
    ),
    Dataset(
        "spoken-digits",
        (_RECORDINGS,),
        sources.recordings,
        16_000_000,
        "CC BY-SA 4.0",
        holds="3,000 recordings of single digits",
    ),
    Dataset(
        "ocr-letters",
        (_LETTERS,),
        sources.letters,
        1_150_000,
        "for research",
        holds="6,877 handwritten words",
    ),
    Dataset(
        "esc10",
        (_CLIPS,),
        sources.clips,
        41_000_000,
        "CC BY 3.0, and one for each clip (README.txt)",
        Extra("soundfile", "audio"),
        holds="400 clips of ten kinds of sounds",
    ),
    Dataset(
        "svhn",
        (Part("svhn/train"), Part("svhn/test")),
        sources.svhn,
        680_697_527,
        _SVHN_LICENCE,
        _H5,
        holds="33,402 training pictures and 13,068 test pictures",
    ),
    Dataset(
        "svhn-extra",
        (Part("svhn/extra"),),
        sources.svhn,
        1_955_489_752,
        _SVHN_LICENCE,
        _H5,
        holds="202,353 more training pictures",
    ),
)
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _DATASETS}
"""The data sets that `milbench data` lists, checks and fetches, by name."""
