"""Unpacking of untrusted .tar.gz archives: completely or not at all, and never outside the target folder."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from milbench._utils.files import scratch_folder
from milbench.errors import UsageError


def unpack(archive: Path, place: Path, check: Callable[[Path], None] | None = None) -> None:
    """Unpack the folder `place.name` of a .tar.gz archive to `place`.

    Everything is written to a temporary folder beside `place`, checked and renamed. After an error nothing is left.

    Args:
        archive: the .tar.gz file.
        place: the target folder, which must not exist yet.
        check: called with the unpacked folder; an error it raises is passed on.

    Raises:
        UsageError: the archive is missing, truncated or damaged, or has a member that is a link or a device or that
            would be written outside `place`.
        OSError: the disk failed, for example because it is full.
    """
    if not archive.is_file():
        raise UsageError(f"{archive} not found")
    with scratch_folder(place.parent, place.name) as temporary:
        folder = temporary / place.name
        folder.mkdir()
        try:
            with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as members:
                for member in members:
                    _write(archive, members, member, folder)
                while stream.read(1 << 20):  # gzip's checksum is at the end of the file
                    pass
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{archive} is truncated or damaged: {error}") from error
        if check:
            check(folder)
        folder.rename(place)


def _write(archive: Path, members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise UsageError(f"{archive}: member {member.name!r} would leave {folder.name}/")
    if not (member.isfile() or member.isdir()):
        raise UsageError(f"{archive}: member {member.name!r} is neither a file nor a folder")
    if not path.parts or path.parts[0] != folder.name:
        return
    target = folder.joinpath(*path.parts[1:])
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = members.extractfile(member)
    if source is None:
        raise UsageError(f"{archive}: member {member.name!r} is neither a file nor a folder")
    with source, target.open("xb") as file:
        shutil.copyfileobj(source, file)
