"""The archives of the Street View House Numbers, format 1 (whole pictures with one box a digit): fetched and checked.

Y. Netzer et al., NIPS workshop, 2011, for non-commercial use. Its page gives no checksums: the SHA-256 sums here are
those that Hugging Face datasets (all three) and docTR (train and test) recorded independently.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from milbench._utils import extras
from milbench._utils.digests import read_digest
from milbench._utils.files import scratch_folder
from milbench.data import number_pictures
from milbench.data.downloads import download
from milbench.errors import UsageError

NAME = "svhn"
ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
"""The folder of the archives."""


class Archive(NamedTuple):
    """The digest of a part's .tar.gz, and the number of pictures in it."""

    sha256: str
    pictures: int


OFFICIAL = {
    "train": Archive("4b17bb33b6cd8f963493168f80143da956f28ec406cc12f8e5745a9f91a51898", 33_402),
    "test": Archive("57ac9ceb530e4aa85b55d991be8fc49c695b3d71c6f6a88afea86549efde7fb5", 13_068),
    "extra": Archive("e857e27d1e65bd1e7d3959b094061777f6506bbc39889a0df3bba6a729d60f9c", 202_353),
}
"""The published archives, by part."""


def fetch(root: Path, address: str = ADDRESS, archives: Mapping[str, Archive] = OFFICIAL) -> None:
    """Download, check and unpack the parts that do not exist; an archive in svhn/ is used instead of a download.

    Raises UsageError for a part or archive that is not the expected one, and replaces none; OSError for network and
    disk.
    """
    extras.load("h5py", "h5", "SVHN")
    place = root / NAME
    for part, archive in archives.items():
        if (place / part).exists():
            _check_existing(place, part, archive)
    for part, archive in archives.items():
        if (place / part).exists():
            continue
        with scratch_folder(place, part) as folder:
            if (place / part).exists():  # another process has had the lock and fetched it
                continue
            path = place / f"{part}.tar.gz"
            if not path.exists():
                path = download(f"{address}{part}.tar.gz", folder)
            if (found := read_digest(path, "sha256")) != archive.sha256:
                raise UsageError(f"{path} is damaged: expected SHA-256 {archive.sha256}, found {found}")
            shutil.unpack_archive(path, folder, filter="data")
            number_pictures.add(place, folder / part)


def _check_existing(place: Path, part: str, archive: Archive) -> None:
    folder, fetched = place / part, number_pictures.manifest(place)["sha256"]
    if part in fetched and (bad := number_pictures.changed(place, part)):
        raise UsageError(f"{bad}; remove the folder, and it is fetched again")
    if part not in fetched and (count := len([*folder.glob("*.png")])) != archive.pictures:
        raise UsageError(
            f"{folder} has {count:,} pictures, SVHN's {part} has {archive.pictures:,}: "
            "move it away, or fetch into another --data-dir"
        )
