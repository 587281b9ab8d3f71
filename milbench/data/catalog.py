"""The built-in data sets: where their files are, whether they are complete, and fetching them, wholly or not at all."""

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

ENVIRONMENT = "MILBENCH_DATA"  # the environment variable that names the data directory
SEAL = (
    ".sha256"  # a file with the digest of its folder as it was fetched; folders of others have none
)
_downloads = ContextVar("downloads", default=True)


class Part(NamedTuple):
    """A file or folder of a data set."""

    path: str
    digest: str = ""  # MD5 of a file, SHA-256 of a folder, "" for that of its seal
    contents: Callable[[Path], str] | None = (
        None  # SHA-256 of what counts, where the same data may be in other bytes
    )

    def expected(self, root: Path) -> str:
        """Return the digest that it should have, "" where that is not known."""
        seal = root / self.path / SEAL
        if self.digest or not os.path.lexists(seal):
            return self.digest
        # A seal that lost its content must not count as none, which is that of a folder of others.
        return read_file(seal).decode("utf-8", "replace").strip() or "a digest"

    def files(self, root: Path) -> list[Path]:
        """Return its files below `root`, sorted."""
        path = root / self.path
        return (
            sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        )

    def problem(self, root: Path, *, remembered: bool = False) -> str:
        """Describe the fault of this part, "" for none; `remembered`: read it once until it changes."""
        path = root / self.path
        try:
            if not (expected := self.expected(root)):
                return ""
            kind, read = "MD5", partial(digests.read_digest, path, "md5")
            if self.contents or path.is_dir():
                kind, read = "SHA-256", partial(self.contents or folder_digest, path)
            digest = digests.remembered(kind, self.files(root), read) if remembered else read()
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        except UsageError as error:
            return str(error)
        except WrongFile as error:
            return f"{path} is damaged: {error}"
        return (
            ""
            if digest == expected
            else f"{path} is damaged: expected {kind} {expected}, found {digest}"
        )

    def is_complete(self, root: Path) -> bool:
        """Return whether it is there, and not damaged as far as is known."""
        return (root / self.path).exists() and not self.problem(root)


class DatasetStatus(NamedTuple):
    """What `milbench data list` says of a data set."""

    dataset: str
    path: Path
    state: str  # present, missing or damaged
    digest: str
    note: str  # what is wrong, or a remark


class Extra(NamedTuple):
    """A library that reading a data set needs, and the extra of milbench that brings it."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set of some files or folders, which `download` puts below the folder that it is given."""

    name: str
    parts: tuple[Part, ...]
    download: sources.Download
    size: int  # bytes that are downloaded, about
    licence: str = ""
    extra: Extra | None = None

    @property
    def about(self) -> str:
        """Its size and licence in words, as a reader needs them before a download."""
        return f"{megabytes(self.size)}, licence: {self.licence or 'not stated'}"

    def check_extra(self) -> None:
        """Raise UsageError where the library that reads it is not installed."""
        if self.extra:
            extras.load(self.extra.module, self.extra.name, self.name)

    def missing(self, root: Path) -> list[str]:
        """Return the paths, below `root`, of the parts that do not exist."""
        return [part.path for part in self.parts if not (root / part.path).exists()]

    def problems(self, root: Path, *, remembered: bool = False) -> list[str]:
        """Read the parts that exist, if `remembered` those that changed; return one message for each damaged one."""
        present = [part for part in self.parts if (root / part.path).exists()]
        return [*filter(None, (part.problem(root, remembered=remembered) for part in present))]

    def identity(self, root: Path) -> str:
        """Return a digest of what the parts should hold, "" where that is not known of any."""
        text = "".join(
            f"{part.path} {digest}\n" for part in self.parts if (digest := part.expected(root))
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""

    def status(self, root: Path) -> DatasetStatus:
        """Read and check every part."""
        folder = (root / self.parts[0].path).parent
        if missing := self.missing(root):
            return DatasetStatus(self.name, folder, "missing", "", f"no {missing[0]}")
        if problems := self.problems(root):
            return DatasetStatus(self.name, folder, "damaged", "", problems[0])
        unsealed = ", ".join(part.path for part in self.parts if not part.expected(root))
        note = f"not fetched by milbench: {unsealed}" * bool(unsealed)
        return DatasetStatus(self.name, folder, "present", self.identity(root), note)

    def fetch(self, root: Path) -> None:
        """Download the parts that are missing or damaged, check them and move them into place, one by one."""
        for part in self.parts:
            if part.is_complete(root):
                continue
            with scratch_folder(root, self.name) as folder, sources.stalled_connections_end():
                if part.is_complete(root):  # another process has had the lock and fetched it
                    continue
                self.download(folder, part.path)
                brought = [
                    new for new in self.parts if new is part or (folder / new.path).exists()
                ]  # perhaps all
                fetched = [new for new in brought if not new.is_complete(root)]
                for new in fetched:
                    if not new.digest:
                        (folder / new.path / SEAL).write_text(folder_digest(folder / new.path))
                    if problem := new.problem(folder):
                        raise UsageError(
                            f"the download of {self.name} is not what was expected: {problem}"
                        )
                for new in fetched:
                    place = root / new.path
                    place.parent.mkdir(parents=True, exist_ok=True)
                    # Without this the loss of the machine may leave empty files under valid names.
                    flush_tree(folder / new.path)
                    if place.is_dir():
                        place.rename(folder / f"damaged-{place.name}")
                    (folder / new.path).replace(place)
                    flush_folder(place.parent)


def megabytes(size: int) -> str:
    """Return a number of bytes as text, such as 12 MB."""
    millions = size / 1e6
    return f"{millions:.1f} MB" if millions < 10 else f"{millions:,.0f} MB"


@as_usage()
def data_dir(given: Path | None) -> Path:
    """Return the data directory: `given`, which must exist, or that in MILBENCH_DATA; else milbench's cache folder."""
    if not (named := given or os.environ.get(ENVIRONMENT)):
        from platformdirs import user_cache_path

        return user_cache_path("milbench", appauthor=False)
    path = expanded(Path(named), "the data directory")
    if not path.is_dir():
        origin = "" if given else f" (from {ENVIRONMENT})"
        raise UsageError(
            f"the data directory {path}{origin} {'is a file' if path.exists() else 'does not exist'}"
        )
    return path


def find_file(name: str, folder: Path | None, parameter: str) -> Path:
    """Return the path of a file that a parameter names, from the current folder or the data directory."""
    path = expanded(Path(name), parameter)
    return beside if not path.exists() and (beside := data_dir(folder) / path).exists() else path


def named(name: str) -> Dataset:
    """Return the data set of a name. Raises UsageError, with the closest name, where there is none."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]


def fetch(name: str, root: Path) -> DatasetStatus:
    """Download a data set below `root` unless it is complete, replacing damaged files; return its state."""
    dataset = named(name)
    try:
        root.mkdir(parents=True, exist_ok=True)
        dataset.fetch(root)
    except (
        OSError,
        RuntimeError,
        EOFError,
    ) as error:  # of torchvision where every mirror fails; of a cut archive
        # A proxy may have a password, and libraries quote its address.
        reason = hide_in(str(error))
        raise UsageError(f"cannot fetch {name} into {root}: {reason}") from error
    return dataset.status(root)


def how_to_get(name: str, place: object, alternative: str) -> str:
    """Return what to do where a data set is missing; `place` is where it belongs in a data directory."""
    folder = f"point --data-dir or {ENVIRONMENT} at a folder with {place}"
    return f"{folder}, or fetch it with `milbench data fetch {name}`; the task {alternative}"


@contextmanager
def downloads(allowed: bool) -> Iterator[None]:
    """Let `check_dataset` download for the block or not: then missing files count as those that it would fetch."""
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
    """Return the title of a data set with its digest; files that are missing are downloaded first, see `downloads`.

    With `any_data` other files that `load` can read are accepted, as not canonical. Otherwise a damaged file is an
    error; it is not replaced, as it may be the user's own.
    """
    root, dataset = data_dir(given), DATASETS[name]
    if any_data:
        if not (
            files := [file for part in dataset.parts for file in part.files(root) if file.exists()]
        ):
            raise UsageError(f"{root / dataset.parts[0].path} not found; {instead}")

        def digest() -> str:
            load(root)
            text = "".join(f"{file.name} {digests.read_digest(file, 'sha256')}\n" for file in files)
            return hashlib.sha256(text.encode()).hexdigest()[:16]

        return f"non-canonical {title}, sha256 {digests.remembered(title, files, digest)}"
    if problems := dataset.problems(root, remembered=True):
        raise UsageError(f"{problems[0]}; `milbench data fetch {name}` replaces it")
    if (missing := dataset.missing(root)) and _downloads.get():
        try:
            fetch(name, root)
        except UsageError as error:
            raise UsageError(
                f"{name} not found: looked for {root / missing[0]}; {error}; {instead}"
            ) from error
    return f"{title}, sha256 {dataset.identity(root)}"


def _idx(
    name: str, title: str, *checksums: str, size: int, licence: str, ending: str = ""
) -> Dataset:
    """Return a data set of training images and labels, and test images and labels, with these MD5 sums."""
    files = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    paths = [f"{title}/raw/{file}-ubyte{ending}" for file in files]
    parts = tuple(map(Part, paths, checksums))
    return Dataset(name, parts, partial(sources.by_torchvision, title), size, licence)


_RECORDINGS = Part(
    str(free_spoken_digits.FOLDER),
    "dbd573d7cafe79c4b49f65718115e1304e24e067fa39eff18a660dc6cb9c360f",
)
_LETTERS = Part(
    str(ocr_letters.FILE), "2a7206b9f43ee439462453c14261643f4487bdf735ec0c97834a43430cd60f2e",
    contents=lambda path: ocr_letters.read(path).digest(),
)  # fmt: skip
_CLIPS = Part(
    str(esc10.FOLDER), "90f86c372a5566235f4a724cc3bd6163390aae3eebb52b3fd167001f2014db91",
    contents=partial(folder_digest, pattern=esc10.CLIPS),
)  # fmt: skip
_CIFAR10 = [Part(f"cifar-10-batches-py/{file}", md5) for file, md5 in {
    "data_batch_1": "c99cafc152244af753f735de768cd75f", "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751", "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb", "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}.items()]  # fmt: skip
_H5 = Extra("h5py", "h5")
_SVHN_LICENCE = "for non-commercial use"
_DATASETS = (
    _idx(
        "mnist", "MNIST", "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637",
        size=11_594_722, licence="CC BY-SA 3.0",
    ),
    _idx(
        "fashion-mnist", "FashionMNIST", "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9", "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965",
        size=30_878_645, licence="MIT",
    ),
    _idx(  # as they are published, compressed: torchvision keeps them, and knows these checksums
        "kmnist", "KMNIST", "bdb82020997e1d708af4cf47b453dcf7", "e144d726b3acfaa3e44228e80efcd344",
        "5c965bf0a639b31b8f53240b1b52f4d7", "7320c461ea6c1c855c0b718fb2a4b134", ending=".gz",
        size=21_240_888, licence="CC BY-SA 4.0",
    ),
    Dataset("cifar10", tuple(_CIFAR10), sources.cifar10, 170_498_071),
    Dataset("spoken-digits", (_RECORDINGS,), sources.recordings, 16_000_000, "CC BY-SA 4.0"),
    Dataset("ocr-letters", (_LETTERS,), sources.letters, 1_150_000, "for research"),
    Dataset(
        "esc10", (_CLIPS,), sources.clips, 41_000_000, "CC BY 3.0, and one for each clip (README.txt)",
        Extra("soundfile", "audio"),
    ),
    Dataset(
        "svhn", (Part("svhn/train"), Part("svhn/test")), sources.svhn, 680_697_527, _SVHN_LICENCE, _H5,
    ),
    Dataset("svhn-extra", (Part("svhn/extra"),), sources.svhn, 1_955_489_752, _SVHN_LICENCE, _H5),
)  # fmt: skip
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _DATASETS}
"""The data sets that `milbench data` lists, checks and fetches, by name."""
