"""Download each built-in data set into a scratch folder.

`milbench.data.catalog` checks what was downloaded, and moves it into the data directory.

SVHN is by Y. Netzer et al., NIPS workshop, 2011, for non-commercial use. Its page gives no
checksums. The SHA-256 sums below are those that two projects recorded independently: Hugging Face
datasets all three, and docTR those of `train` and `test`.
"""

import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from milbench._utils import extras
from milbench._utils.digests import read_digest
from milbench.errors import UsageError

Download = Callable[[Path, str], None]
"""Downloads into a folder, given first, at least the file or folder whose path there is given."""
STALLED = 30.0
"""After this many seconds without an answer a connection is given up."""
SVHN = "http://ufldl.stanford.edu/housenumbers/"
ARCHIVES = {
    "svhn/train": "4b17bb33b6cd8f963493168f80143da956f28ec406cc12f8e5745a9f91a51898",
    "svhn/test": "57ac9ceb530e4aa85b55d991be8fc49c695b3d71c6f6a88afea86549efde7fb5",
    "svhn/extra": "e857e27d1e65bd1e7d3959b094061777f6506bbc39889a0df3bba6a729d60f9c",
}
"""Part of SVHN -> the SHA-256 of its archive."""
COMMIT = "26eb9aaf76e81b692f806f9140c2d2777410d7a1"
RECORDINGS = f"https://github.com/Jakobovski/free-spoken-digit-dataset/archive/{COMMIT}.tar.gz"
ESC10_COMMIT = "9c866b987dd6d351badb95af9465f9310c68339b"
ESC10 = f"https://github.com/karoldvl/ESC-10/archive/{ESC10_COMMIT}.tar.gz"
LETTERS = "http://ai.stanford.edu/~btaskar/ocr/letter.data.gz"


@contextmanager
def stalled_connections_end() -> Iterator[None]:
    """Give up connections in this block that get no answer for `STALLED` seconds.

    torchvision opens connections without a time limit, and so might wait forever.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALLED)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def by_torchvision(title: str, folder: Path, wanted: str) -> None:  # noqa: ARG001
    """Download by the class of torchvision with the name `title`, into the folder TITLE/raw."""
    from torchvision import datasets

    getattr(datasets, title)(folder, download=True)


def cifar10(folder: Path, wanted: str) -> None:  # noqa: ARG001
    """Download CIFAR-10."""
    from torchvision.datasets import CIFAR10

    # CIFAR10(download=True) would also unpickle what it downloaded, which is not safe.
    shutil.unpack_archive(_download(CIFAR10.url, folder), folder, filter="data")


def svhn(folder: Path, wanted: str) -> None:
    """Download, check and unpack a part of SVHN."""
    # h5py is needed to read SVHN. If it is missing, the user should know before a
    # download of gigabytes.
    extras.load("h5py", "h5", "SVHN")
    archive = _download(f"{SVHN}{wanted.removeprefix('svhn/')}.tar.gz", folder)
    digest = read_digest(archive, "sha256")
    if digest != ARCHIVES[wanted]:
        raise UsageError(
            f"{archive} is damaged: expected SHA-256 {ARCHIVES[wanted]}, found {digest}"
        )
    shutil.unpack_archive(archive, folder / "svhn", filter="data")


def recordings(folder: Path, wanted: str) -> None:
    """Download the Free Spoken Digit Dataset, as it was at one commit.

    It is by Z. Jackson et al., 2016-2024, under the licence CC BY-SA 4.0.
    """
    unpack(RECORDINGS, folder, f"free-spoken-digit-dataset-{COMMIT}/recordings", wanted)


def clips(folder: Path, wanted: str) -> None:
    """Download ESC-10, as it was at one commit.

    It is by K. J. Piczak, 2015, under the licence CC BY 3.0. Its README.txt has the licence
    of each clip.
    """
    unpack(ESC10, folder, f"ESC-10-{ESC10_COMMIT}", wanted)


def letters(folder: Path, wanted: str) -> None:
    """Download handwritten words letter by letter, as B. Taskar published them for research.

    R. Kassel collected the words (MIT, 1995).
    """
    (folder / wanted).parent.mkdir()
    _download(LETTERS, folder).rename(folder / wanted)


def unpack(address: str, folder: Path, member: str, wanted: str) -> None:
    """Download an archive, unpack it into a folder, and rename its folder `member` to `wanted`."""
    shutil.unpack_archive(_download(address, folder), folder, filter="data")
    (folder / wanted).parent.mkdir(exist_ok=True)
    (folder / member).rename(folder / wanted)


def _download(address: str, folder: Path) -> Path:
    from torchvision.datasets.utils import download_url

    name = address.rpartition("/")[2]
    download_url(address, str(folder), name)
    return folder / name
