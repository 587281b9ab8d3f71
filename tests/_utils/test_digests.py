"""Digests of files: they are remembered, and computed again after any change of a file."""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from milbench._utils import digests

A_TICK = 0.02
"""A time in seconds that is longer than a tick of the file system's clock."""
BEGINNING = hashlib.sha256(b"a" * 100 + b"b" * 100).hexdigest()
"""The digest of the two files with their first contents."""


class TwoFiles:
    """Two files with a digest of both, which counts how often it is computed."""

    def __init__(self, folder: Path) -> None:
        self.first = folder / "a"
        self.second = folder / "b"
        self.first.write_bytes(b"a" * 100)
        self.second.write_bytes(b"b" * 100)
        self.computed = 0

    def remembered(self, kind: str = "kind") -> str:
        """Return the digest, which is computed if it is not remembered."""
        return digests.remembered(kind, [self.first, self.second], self.compute)

    def compute(self) -> str:
        self.computed += 1
        return self.digest()

    def digest(self) -> str:
        """Return the digest of the files as they are now."""
        return hashlib.sha256(self.first.read_bytes() + self.second.read_bytes()).hexdigest()


@pytest.fixture
def files(tmp_path: Path) -> TwoFiles:
    return TwoFiles(tmp_path)


def test_files_are_read_once(files: TwoFiles, old_files: Path) -> None:
    for _ in range(3):
        assert files.remembered() == BEGINNING
    assert files.computed == 1


def test_two_kinds_of_results_are_kept_apart(files: TwoFiles, old_files: Path) -> None:
    files.remembered("one kind")
    assert files.remembered("another kind") == BEGINNING
    assert files.computed == 2


def test_a_result_for_no_file_is_remembered(old_files: Path) -> None:
    assert digests.remembered("kind", [], lambda: "first") == "first"
    assert digests.remembered("kind", [], lambda: "second") == "first"


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_digest_is_computed_by_the_algorithm_asked_for(
    files: TwoFiles, old_files: Path, algorithm: str
) -> None:
    expected = hashlib.new(algorithm, b"a" * 100).hexdigest()
    assert digests.file_digest(files.first, algorithm) == expected


@pytest.mark.parametrize(
    ("content", "keeps_time"),
    [
        pytest.param(b"c" * 100, True, id="overwritten"),
        pytest.param(b"b" * 101, True, id="longer"),
        pytest.param(b"b" * 100, False, id="touched"),
    ],
)
def test_a_change_is_noticed(
    files: TwoFiles, old_files: Path, content: bytes, keeps_time: bool
) -> None:
    files.remembered()
    before = files.second.stat()
    time.sleep(A_TICK)
    files.second.write_bytes(content)
    if keeps_time:
        # The file now looks as if it had last been written before the digest was remembered.
        os.utime(files.second, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.remembered() == files.digest()
    assert files.computed == 2
    # The new digest is remembered, too.
    files.remembered()
    assert files.computed == 2


def test_a_file_that_may_still_change_is_not_remembered(
    files: TwoFiles, old_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "RECENT", 3600.0)
    files.remembered()
    files.remembered()
    assert files.computed == 2


def test_a_file_changed_while_it_is_read_is_not_remembered(
    files: TwoFiles, old_files: Path
) -> None:
    def compute_slowly() -> str:
        found = files.compute()
        time.sleep(A_TICK)
        files.first.write_bytes(b"later")
        return found

    first = digests.remembered("kind", [files.first, files.second], compute_slowly)
    assert first == BEGINNING
    assert files.remembered() == files.digest()
    assert files.digest() != BEGINNING


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda _: b"null", id="nothing"),
        pytest.param(lambda whole: whole[:-1], id="cut off"),
        pytest.param(lambda _: b"\xff" * 9, id="not UTF-8"),
        pytest.param(lambda _: b"[" * 100_000, id="lists without end"),
        pytest.param(lambda _: b'{"value": 1}', id="without a digest"),
    ],
)
def test_a_damaged_cache_is_replaced(
    files: TwoFiles, old_files: Path, damage: Callable[[bytes], bytes]
) -> None:
    files.remembered()
    (entry,) = (old_files / "digests").iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert files.remembered() == BEGINNING
    assert files.computed == 2
    assert entry.read_bytes() == whole
    assert list(entry.parent.iterdir()) == [entry]
