"""The files of the Street View House Numbers, format 1 (whole pictures with one box a digit): fetched and checked.

Y. Netzer et al., "Reading Digits in Natural Images with Unsupervised Feature Learning", NIPS workshop, 2011, for
non-commercial use. Its page gives no checksums. The sizes and SHA-256 sums here are those recorded independently by two
projects that download the same addresses: Hugging Face datasets (all three) and docTR (train and test).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from milbench._utils import extras, locks
from milbench._utils.files import folder_digest, write_atomically
from milbench.data import digit_struct
from milbench.data.archives import unpack
from milbench.errors import UsageError

ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
"""The folder of the archives."""
STALLED = 30.0
"""Seconds without an answer after which a connection is given up."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One part of the data set.

    Args:
        size: of its .tar.gz, in bytes.
        sha256: of its .tar.gz, in hexadecimal.
        pictures: the number of pictures in it.
    """

    size: int
    sha256: str
    pictures: int


OFFICIAL = {
    "train": Archive(404_141_560, "4b17bb33b6cd8f963493168f80143da956f28ec406cc12f8e5745a9f91a51898", 33_402),
    "test": Archive(276_555_967, "57ac9ceb530e4aa85b55d991be8fc49c695b3d71c6f6a88afea86549efde7fb5", 13_068),
    "extra": Archive(1_955_489_752, "e857e27d1e65bd1e7d3959b094061777f6506bbc39889a0df3bba6a729d60f9c", 202_353),
}

"""The published archives, by part."""


def caption(counts: Mapping[str, int], digest: str) -> str:
    """Return a description of pictures in SVHN's format.

    They are called SVHN only if every part has as many pictures as the official one.

    Args:
        counts: the number of pictures of each part.
        digest: of the pictures, in hexadecimal.
    """
    official = all(counts[part] == OFFICIAL[part].pictures for part in counts)
    parts = " / ".join(f"{count:,} {part}" for part, count in counts.items())
    return f"{'SVHN' if official else 'SVHN-format images'}, {parts}, sha256 {digest[:16]}"


@dataclass(frozen=True)
class SvhnFiles:
    """SVHN below a data directory, in svhn/train, svhn/test and svhn/extra, as a `Source` of the catalogue.

    A part that was fetched has a receipt, a hidden file beside it with the digest of what was unpacked. Pictures that
    milbench did not fetch have none: they are accepted, described as such, and never replaced.

    Args:
        name: the name on the command line.
        address: the folder of the archives, ending in a slash.
        archives: the expected archives, by part.
    """

    name: str = "svhn"
    address: str = ADDRESS
    archives: Mapping[str, Archive] = field(default_factory=lambda: OFFICIAL)

    def place(self, root: Path) -> Path:
        """Return the folder of the parts."""
        return root / "svhn"

    def missing(self, root: Path) -> list[str]:
        """Return the missing files of train and test; extra is optional."""
        needed = [f"svhn/{part}/{digit_struct.FILE}" for part in ("train", "test")]
        return [path for path in needed if not (root / path).exists()]

    def problems(self, root: Path, *, remembered: bool = False) -> list[str]:  # noqa: ARG002
        """Read every file of the fetched parts; return one message for each part that changed since."""
        return [problem for part in self.archives if (problem := self._problem(root, part))]

    def _problem(self, root: Path, part: str) -> str | None:
        folder = self._folder(root, part)
        if not folder.is_dir() or not (receipt := self._receipt(root, part)):
            return None
        now = folder_digest(folder)
        if now == receipt["sha256"]:
            return None
        return f"{folder} is damaged: expected SHA-256 {receipt['sha256']}, found {now}"

    def identity(self, root: Path) -> str:
        """Return a digest of the fetched parts, "" if there are none."""
        receipts = [
            f"{part} {receipt['sha256']}\n"
            for part in self.archives
            if self._folder(root, part).is_dir() and (receipt := self._receipt(root, part))
        ]
        return hashlib.sha256("".join(receipts).encode()).hexdigest()[:16] if receipts else ""

    def remark(self, root: Path) -> str:
        """Return the number of pictures of each part, and which parts milbench did not fetch."""
        parts = []
        for part in self.archives:
            if (path := self._folder(root, part) / digit_struct.FILE).exists():
                fetched = "" if self._receipt(root, part) else " (not fetched by milbench)"
                parts.append(f"{digit_struct.count(path):,} {part}{fetched}")
            else:
                parts.append(f"no {part}")
        return ", ".join(parts)

    def fetch(self, root: Path) -> None:
        """Download, check and unpack the parts that do not exist, after any other process that does so.

        An archive that already lies in svhn/ is used instead of a download.

        Raises:
            UsageError: a part or an archive that exists is not the expected one.
            OSError: the network or the disk failed.
        """
        extras.load("h5py", "h5", "SVHN")
        missing = [part for part in self.archives if not self._folder(root, part).exists()]
        for part, archive in self.archives.items():
            if part not in missing:
                self._check_existing(root, part, archive)
        downloads = self._downloads(root)
        if not missing and not downloads.exists():
            return
        with self._turn(root):
            for part in missing:
                if not self._folder(root, part).exists():  # another process may just have ended
                    downloads.mkdir(exist_ok=True)
                    self._fetch_part(root, part, self.archives[part])
            shutil.rmtree(downloads, ignore_errors=True)

    @contextmanager
    def _turn(self, root: Path) -> Iterator[None]:
        """Wait until no other process fetches, and keep others out for the block."""
        from rich.console import Console

        file = self.place(root) / ".fetch.lock"
        file.parent.mkdir(parents=True, exist_ok=True)
        if locks.is_locked(file):
            Console(stderr=True, markup=False).print(f"another process is fetching into {file.parent}: waiting")
        with locks.lock(file):
            try:
                yield
            finally:
                file.unlink(missing_ok=True)  # those who wait for it make a new one

    def _check_existing(self, root: Path, part: str, archive: Archive) -> None:
        """Raise UsageError if the folder of a part is another data set or incomplete: it is never replaced."""
        folder = self._folder(root, part)
        if not (folder / digit_struct.FILE).is_file():
            raise UsageError(f"{folder} has no {digit_struct.FILE}: remove it, and it is fetched, or move it away")
        if bad := self._problem(root, part):
            raise UsageError(f"{bad}; remove the folder, and it is fetched again")
        count = digit_struct.count(folder / digit_struct.FILE)
        if count != archive.pictures:
            raise UsageError(
                f"{folder} has {count:,} pictures, SVHN's {part} has {archive.pictures:,}: "
                "move it away, or fetch into another --data-dir"
            )

    def _fetch_part(self, root: Path, part: str, archive: Archive) -> None:
        from rich.console import Console
        from torchvision.datasets.utils import download_url

        name = f"{part}.tar.gz"
        given, path = self.place(root) / name, self._downloads(root) / name
        if given.exists():
            path = given
        else:
            path.unlink(missing_ok=True)  # of a download that was interrupted
            with stalled_connections_end():
                download_url(self.address + name, str(path.parent), name)
        _check_archive(path, archive)
        with Console(stderr=True).status(f"unpacking {name}"):
            unpack(path, self._folder(root, part), lambda folder: self._accept(root, part, archive, folder))
        if path != given:
            path.unlink()

    def _accept(self, root: Path, part: str, archive: Archive, folder: Path) -> None:
        """Write the receipt of an unpacked folder before it is moved into place, so that every folder there has one."""
        _check_count(folder, archive)
        receipt = json.dumps({"archive": archive.sha256, "sha256": folder_digest(folder)})
        write_atomically(self._receipt_path(root, part), lambda temporary: temporary.write_text(receipt))

    def _downloads(self, root: Path) -> Path:
        """Return the folder of archives that are not unpacked yet."""
        return self.place(root) / ".download"

    def _folder(self, root: Path, part: str) -> Path:
        return self.place(root) / part

    def _receipt_path(self, root: Path, part: str) -> Path:
        return self.place(root) / f".{part}.json"

    def _receipt(self, root: Path, part: str) -> dict[str, str] | None:
        """Return the receipt of a part, None if it was not fetched. Raises UsageError if the receipt is damaged."""
        try:
            receipt: dict[str, str] = json.loads(self._receipt_path(root, part).read_text())
            receipt["sha256"].encode()
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{self._receipt_path(root, part)} is damaged: remove it") from error
        return receipt


def _check_archive(path: Path, archive: Archive) -> None:
    size = path.stat().st_size
    if size != archive.size:
        raise UsageError(f"{path} is truncated or damaged: expected {archive.size:,} bytes, found {size:,}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != archive.sha256:
        raise UsageError(f"{path} is damaged: expected SHA-256 {archive.sha256}, found {found}")


@contextmanager
def stalled_connections_end() -> Iterator[None]:
    """Give up connections without an answer for `STALLED` seconds: torchvision opens them without a time limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALLED)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _check_count(folder: Path, archive: Archive) -> None:
    pictures, records = len(list(folder.glob("*.png"))), digit_struct.count(folder / digit_struct.FILE)
    if not pictures == records == archive.pictures:
        raise UsageError(
            f"{folder.name} has {pictures:,} pictures and {records:,} records, expected {archive.pictures:,} of each"
        )
