import hashlib
import os
import time
from pathlib import Path

import pytest

from milbench._utils import digests


class Counted:
    """A digest of two files that counts how often it is computed."""

    def __init__(self, folder: Path) -> None:
        self.paths, self.calls = (folder / "a", folder / "b"), 0
        for path in self.paths:
            path.write_bytes(path.name.encode() * 100)

    def __call__(self) -> str:
        self.calls += 1
        return hashlib.sha256(b"".join(path.read_bytes() for path in self.paths)).hexdigest()


@pytest.fixture
def two(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def value(two: Counted) -> str:
    return digests.remembered("kind", two.paths, two)


def test_files_are_read_once(two: Counted, old_files: Path) -> None:
    expected = hashlib.sha256(b"a" * 100 + b"b" * 100).hexdigest()
    assert [value(two) for _ in range(3)] == [expected] * 3
    assert two.calls == 1
    assert digests.remembered("another kind", two.paths, two) == expected
    assert two.calls == 2
    for algorithm in ("md5", "sha256"):
        assert (
            digests.file_digest(two.paths[0], algorithm)
            == hashlib.new(algorithm, b"a" * 100).hexdigest()
        )


@pytest.mark.parametrize("how", ["overwritten", "longer", "touched"])
def test_a_change_is_noticed(two: Counted, old_files: Path, how: str) -> None:
    value(two)
    path = two.paths[1]
    times = path.stat()
    time.sleep(0.02)  # longer than a tick of the file system's clock
    path.write_bytes(
        b"b" * 101 if how == "longer" else b"b" * 100 if how == "touched" else b"c" * 100
    )
    if how != "touched":  # made to look as old as before
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert value(two) == two()
    assert two.calls == 3
    value(two)
    assert two.calls == 3


def test_a_file_that_may_still_change_is_not_remembered(
    two: Counted, old_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "RECENT", 3600.0)
    value(two)
    value(two)
    assert two.calls == 2


def test_a_file_changed_while_it_is_read_is_not_remembered(two: Counted, old_files: Path) -> None:
    def changing() -> str:
        found = two()
        time.sleep(0.02)
        two.paths[0].write_bytes(b"later")
        return found

    digests.remembered("kind", two.paths, changing)
    assert value(two) == two() != hashlib.sha256(b"a" * 100 + b"b" * 100).hexdigest()


def test_a_damaged_cache_does_not_matter(two: Counted, old_files: Path) -> None:
    expected = value(two)
    (entry,) = (old_files / "digests").iterdir()
    whole = entry.read_bytes()
    for content in (b"", b"null", whole[:-1], b"\xff" * 9, b"[" * 100_000, b'{"value": 1}'):
        entry.write_bytes(content)
        calls = two.calls
        assert value(two) == expected
        assert two.calls == calls + 1
        assert entry.read_bytes() == whole  # written anew, and nothing else stays
        assert list(entry.parent.iterdir()) == [entry]
