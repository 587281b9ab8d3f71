from __future__ import annotations

import errno
import io
import os
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from milbench.data.archives import unpack
from milbench.errors import UsageError

Member = tuple[str, bytes] | tarfile.TarInfo


def archive(path: Path, members: Sequence[Member]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


GOOD: list[Member] = [
    special("train", tarfile.DIRTYPE),
    ("train/1.png", b"one"),
    ("./train/sub/2.png", os.urandom(300_000)),
    ("._train", b"of another system"),
]


def test_the_folder_is_unpacked_and_nothing_else(tmp_path: Path) -> None:
    unpack(archive(tmp_path / "a.tar.gz", GOOD), tmp_path / "svhn" / "train")
    assert (tmp_path / "svhn/train/1.png").read_bytes() == b"one"
    assert (tmp_path / "svhn/train/sub/2.png").stat().st_size == 300_000
    assert [p.name for p in (tmp_path / "svhn").iterdir()] == ["train"]


@pytest.mark.parametrize(
    ("member", "complaint"),
    [
        (("../evil", b""), r"member '../evil' would leave train/"),
        (("train/../../evil", b""), "would leave train/"),
        (("/tmp/evil", b""), "member '/tmp/evil' would leave train/"),
        (("train/..\\evil", b""), "would leave train/"),
        (special("train/link", tarfile.SYMTYPE, "/etc/passwd"), "member 'train/link' is neither a file nor a folder"),
        (special("train/hard", tarfile.LNKTYPE, "../evil"), "is neither a file nor a folder"),
        (special("train/pipe", tarfile.FIFOTYPE), "is neither a file nor a folder"),
    ],
)
def test_a_member_that_would_leave_the_place_is_refused(tmp_path: Path, member: Member, complaint: str) -> None:
    path = archive(tmp_path / "a.tar.gz", [*GOOD, member])
    with pytest.raises(UsageError, match=complaint) as caught:
        unpack(path, tmp_path / "svhn" / "train")
    assert str(caught.value).startswith(str(path))
    assert list((tmp_path / "svhn").iterdir()) == []
    assert not (tmp_path / "evil").exists()


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    for name in (".train-x1", ".test-x1"):
        (tmp_path / "svhn" / name / "half").mkdir(parents=True)
    unpack(archive(tmp_path / "a.tar.gz", GOOD), tmp_path / "svhn" / "train")
    assert sorted(p.name for p in (tmp_path / "svhn").iterdir()) == [".test-x1", "train"]


@pytest.mark.parametrize("left", [0, 5, 1000, 299_000, -1])
def test_a_truncated_archive_leaves_nothing(tmp_path: Path, left: int) -> None:
    path = archive(tmp_path / "a.tar.gz", GOOD)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(UsageError, match=r"a.tar.gz is truncated or damaged"):
        unpack(path, tmp_path / "svhn" / "train")
    assert list((tmp_path / "svhn").iterdir()) == []


def test_a_flipped_byte_is_found(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", GOOD)
    content = bytearray(path.read_bytes())
    content[200_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is truncated or damaged"):
        unpack(path, tmp_path / "svhn" / "train")
    assert list((tmp_path / "svhn").iterdir()) == []


def test_a_missing_archive(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a.tar.gz not found"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "train")


def test_what_does_not_pass_the_check_is_not_kept(tmp_path: Path) -> None:
    def refuse(folder: Path) -> None:
        assert (folder / "1.png").read_bytes() == b"one"
        raise UsageError("not so")

    with pytest.raises(UsageError, match="not so"):
        unpack(archive(tmp_path / "a.tar.gz", GOOD), tmp_path / "svhn" / "train", refuse)
    assert list((tmp_path / "svhn").iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Any, target: Any) -> None:
        target.write(b"a little")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(archive(tmp_path / "a.tar.gz", GOOD), tmp_path / "svhn" / "train")
    assert list((tmp_path / "svhn").iterdir()) == []
