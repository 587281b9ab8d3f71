"""The data set `house-numbers`: rendered house numbers in SVHN's format, which needs no download."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milbench._utils.files import folder_digest, scratch_folder
from milbench.data import digit_struct
from milbench.data.digit_struct import Record
from milbench.errors import UsageError

HOUSE_NUMBERS = "house-numbers"
"""Name of the data set and of its folder."""
REVISION = 1
"""To be raised when the same seed gives other pictures than before."""
TRAIN_PICTURES, TEST_PICTURES = 4000, 1000
MANIFEST_FILE = "manifest.json"
PICTURES_PER_JOB = 50
"""Pictures that a process renders in one job."""


@dataclass(frozen=True)
class RenderedNumbers:
    """The rendered pictures below a data directory, as a `Source` of the catalogue."""

    name: str = HOUSE_NUMBERS

    def place(self, root: Path) -> Path:
        """Return the folder of train, test and the manifest."""
        return root / HOUSE_NUMBERS

    def missing(self, root: Path) -> list[str]:
        """Return the paths, below `root`, of missing records and of a missing manifest."""
        needed = [f"{HOUSE_NUMBERS}/{part}/{digit_struct.FILE}" for part in ("train", "test")] + [
            f"{HOUSE_NUMBERS}/{MANIFEST_FILE}"
        ]
        return [path for path in needed if not (root / path).exists()]

    def problems(self, root: Path, *, remembered: bool = False) -> list[str]:  # noqa: ARG002
        """Read every file; return one message for each part that changed since it was made."""
        found = []
        for part, expected in manifest(root)["sha256"].items():
            folder = self.place(root) / part
            if (now := folder_digest(folder)) != expected:
                found.append(f"{folder} is damaged: expected SHA-256 {expected}, found {now}")
        return found

    def identity(self, root: Path) -> str:
        """Return a digest of all pictures."""
        return "".join(digest[:8] for digest in manifest(root)["sha256"].values())

    def remark(self, root: Path) -> str:
        """Return the seed and the number of pictures of each part."""
        about = manifest(root)
        return ", ".join([f"seed {about['seed']}", *(f"{n:,} {part}" for part, n in about["pictures"].items())])

    def fetch(self, root: Path) -> None:
        """Make the pictures if they do not exist."""
        if self.missing(root):
            make(root)


def make(root: Path, seed: int = 0, train: int = TRAIN_PICTURES, test: int = TEST_PICTURES) -> Path:
    """Render the pictures to the folder house-numbers, completely or not at all, and return that folder.

    A picture depends on the seed, its part and its number, not on how many there are or which process draws it.

    Args:
        root: the data directory.
        seed: of all pictures.
        train: the number of training pictures.
        test: the number of test pictures.

    Returns:
        The path of the folder.

    Raises:
        UsageError: the folder holds pictures of another seed, number or revision, or it cannot be written.
    """
    place, pictures = root / HOUSE_NUMBERS, {"train": train, "test": test}
    try:
        if not place.exists():
            with scratch_folder(root, HOUSE_NUMBERS) as folder:
                if not place.exists():  # another process may have made them while this one waited
                    _fill(folder / HOUSE_NUMBERS, seed, pictures)
                    (folder / HOUSE_NUMBERS).rename(place)
    except OSError as error:
        raise UsageError(f"cannot make {HOUSE_NUMBERS} in {root}: {error.strerror or error}") from error
    about = manifest(root)
    if (about["revision"], about["seed"], about["pictures"]) != (REVISION, seed, pictures):
        raise UsageError(f"{place} has other pictures: {RenderedNumbers().remark(root)}; remove it first")
    return place


def _fill(folder: Path, seed: int, pictures: Mapping[str, int]) -> None:
    """Write the pictures of each part, their records and the manifest."""
    for part, count in pictures.items():
        (folder / part).mkdir(parents=True)
        digit_struct.write(folder / part / digit_struct.FILE, _render_all(folder / part, seed, count))
    about = {
        "revision": REVISION,
        "seed": seed,
        "pictures": pictures,
        "versions": _versions(),
        "sha256": {part: folder_digest(folder / part) for part in pictures},
    }
    (folder / MANIFEST_FILE).write_text(json.dumps(about, indent=1) + "\n")


def manifest(root: Path) -> dict[str, Any]:
    """Return the manifest: revision, seed, number of pictures, versions and digests. Raises UsageError if damaged."""
    path = root / HOUSE_NUMBERS / MANIFEST_FILE
    try:
        about: dict[str, Any] = json.loads(path.read_text())
        if not {"revision", "seed", "pictures", "sha256"} <= set(about) or not (
            set(about["pictures"]) == set(about["sha256"]) == {"train", "test"}
        ):
            raise ValueError("something is missing in it")
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return about


def _render_all(folder: Path, seed: int, count: int) -> list[Record]:
    from joblib import Parallel, delayed

    starts = range(0, count, PICTURES_PER_JOB)
    jobs = min(os.cpu_count() or 1, len(starts))
    chunks = Parallel(n_jobs=jobs)(
        delayed(_render)(folder, seed, range(start, min(start + PICTURES_PER_JOB, count))) for start in starts
    )
    return [record for chunk in chunks for record in chunk]


def _render(folder: Path, seed: int, numbers: Sequence[int]) -> list[Record]:
    """Render the pictures with these numbers (from 0) to 1.png, 2.png, ... and return their records."""
    import numpy as np
    from PIL import Image

    from milbench.data.rendering.scene import render_scene

    part = ("train", "test").index(folder.name)
    records = []
    for n in numbers:
        scene = render_scene(np.random.default_rng([REVISION, seed, part, n]))
        name = f"{n + 1}.png"
        Image.fromarray(scene.pixels).save(folder / name)
        records.append(Record(name, scene.classes, scene.boxes))
    return records


def _versions() -> dict[str, str]:
    """Return the versions of the libraries that pixels depend on."""
    from importlib.metadata import version

    from PIL import features

    return {name: version(name) for name in ("numpy", "pillow", "scipy", "matplotlib")} | {
        "freetype": str(features.version("freetype2"))
    }
