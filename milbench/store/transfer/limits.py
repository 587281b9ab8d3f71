"""How large an export may be: the sizes that a zip declares, checked before anything in it is read.

A few bytes of a zip can stand for a thousand times as many, and may be made to fill the memory or the disk. Python's
zipfile reads no more of a member than its declared size.
"""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path

from milbench.errors import UsageError

ENVIRONMENT = "MILBENCH_IMPORT_GB"
"""The environment variable that changes the largest sum of the sizes of all members, in units of 10^9 bytes."""
MOST_GB = 100.0
"""Its default. Ten thousand trained networks of a few million weights need less."""
READ_WHOLE = 0.01
"""The share of it for a member that is read into memory: 1 GB; 5,000 cells with 100 epochs of 20 metrics need 0.4."""
LARGE = 1 << 24
"""Bytes; smaller members may have any ratio of compression."""
MOST_RATIO = 200
"""Largest ratio of compression of a large member: plans reach about 40 and manifests 3, a bomb 1,000."""


def check_sizes(archive: zipfile.ZipFile, path: Path, read_whole: set[str]) -> None:
    """Check the sizes that a zip file declares.

    Args:
        archive: the open file.
        path: where it is.
        read_whole: the last parts of the names of the members that are read into memory.

    Raises:
        ValueError: the file is too large, or compressed as no export is.
        UsageError: the environment variable is no number.
    """
    most, size, total = _most_bytes(), path.stat().st_size, 0
    for member in archive.infolist():
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{member.filename!r} is compressed by another method than exports are")
        if member.file_size > max(LARGE, MOST_RATIO * min(member.compress_size, size)):
            raise ValueError(
                f"{member.filename!r} has {member.compress_size:,} bytes that would become {member.file_size:,}, "
                f"more than {MOST_RATIO} times as many: it is no export"
            )
        if member.filename.rpartition("/")[2] in read_whole and member.file_size > most * READ_WHOLE:
            raise _too_large(repr(member.filename), member.file_size, member.file_size / READ_WHOLE, most)
        total += member.file_size
    if total > most:
        raise _too_large("all together", total, total, most)


def _most_bytes() -> float:
    given = os.environ.get(ENVIRONMENT) or str(MOST_GB)
    try:
        gigabytes = float(given)
    except ValueError:
        gigabytes = math.nan
    if not gigabytes > 0:
        raise UsageError(f"{ENVIRONMENT} = {given!r} is wrong: expected a number of gigabytes, such as {MOST_GB:g}")
    return gigabytes * 1e9


def _too_large(what: str, size: int, needed: float, most: float) -> ValueError:
    return ValueError(
        f"its files are too large ({what}: {size / 1e9:,.2f} GB): {ENVIRONMENT}={math.ceil(needed / 1e9)} would allow "
        f"them, now it is {most / 1e9:g}"
    )
