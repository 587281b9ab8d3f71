"""The cache of arrays: if its files are changed or damaged in any way, it is made anew."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from milbench.data.array_cache import DeclareInputs, Fields, cached_arrays

# What the cache holds, with the word "owl".
LABELS = np.arange(1, 5001, dtype=np.int64)
MEANS = np.linspace(0.5, 1.5, 300)


class Cache:
    """A cache of two arrays and a word, which counts how often it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arrays = folder / ".bags" / "table"
        self.times_written = 0
        (folder / "table.csv").write_text("bag,labels\n")

    def write(self, folder: Path, declare: DeclareInputs) -> Fields:
        self.times_written += 1
        declare(["table.csv"])
        np.save(folder / "means.npy", MEANS)
        return {"labels": LABELS, "word": "owl"}

    def check(self) -> None:
        """Read the cache, which is written first if need be, and check what it holds."""
        found = cached_arrays(self.arrays, self.folder, self.write)
        assert found.keys() == {"labels", "means", "word"}
        assert np.array_equal(found["labels"], LABELS)
        assert np.array_equal(found["means"], MEANS)
        assert found["word"] == "owl"


@pytest.fixture
def cache(tmp_path: Path, old_files: Path) -> Cache:
    """A cache that was written, and was read again without being written."""
    cache = Cache(tmp_path)
    cache.check()
    cache.check()
    assert cache.times_written == 1
    return cache


def zero_tail(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-100] + bytes(100))


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


def make_sparse(path: Path) -> None:
    os.truncate(path, 8 << 30)


def put_another_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(5000, np.int64))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "zeroed tail": zero_tail,
    "flipped bit": flip_bit,
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "gone": Path.unlink,
    "another array": put_another_array,
    "garbage": lambda path: path.write_bytes(b"[" * 100_000),
    "a named pipe": make_pipe,
    "a folder": make_folder,
    "a link to nothing": make_link_to_nothing,
    "a sparse file": make_sparse,
}


@pytest.mark.parametrize("name", ["labels.npy", "means.npy", "cache.json"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=[*DAMAGES])
def test_a_damaged_cache_is_made_anew(
    cache: Cache, name: str, damage: Callable[[Path], object]
) -> None:
    damage(cache.arrays / name)
    cache.check()
    assert cache.times_written == 2


def test_a_flipped_bit_is_seen_though_the_file_keeps_its_date(cache: Cache) -> None:
    path = cache.arrays / "labels.npy"
    times = path.stat()
    flip_bit(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    cache.check()
    assert cache.times_written == 2


def test_a_changed_word_of_the_record_is_seen(cache: Cache) -> None:
    path = cache.arrays / "cache.json"
    path.write_text(path.read_text().replace("owl", "owk"))
    cache.check()
    assert cache.times_written == 2


def test_a_record_without_digests_is_made_anew(cache: Cache) -> None:
    path = cache.arrays / "cache.json"
    record = json.loads(path.read_text())
    del record["digest"]
    record["arrays"] = [*record["arrays"]]
    path.write_text(json.dumps(record))
    cache.check()
    assert cache.times_written == 2


@pytest.mark.parametrize(
    "put",
    [
        pytest.param(Path.touch, id="a file"),
        pytest.param(os.mkfifo, id="a named pipe"),
        pytest.param(lambda place: place.symlink_to("nothing"), id="a link to nothing"),
    ],
)
def test_something_else_in_the_place_of_a_cache_is_replaced(
    tmp_path: Path, put: Callable[[Path], object]
) -> None:
    cache = Cache(tmp_path)
    cache.arrays.parent.mkdir()
    put(cache.arrays)
    cache.check()
    assert cache.times_written == 1


def test_a_digest_is_computed_only_once(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    # Digests cannot be computed now: the ones that were noted at the first reading are used.
    monkeypatch.setattr("milbench._utils.digests.read_digest", None)
    cache.check()
    assert cache.times_written == 1


def test_all_files_are_flushed_to_the_disk_before_the_cache_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = set[int]()
    flush = os.fsync
    rename = Path.rename

    def flush_and_note(number: int) -> None:
        flushed.add(os.fstat(number).st_ino)
        flush(number)

    def check_and_rename(self: Path, target: Path) -> Path:
        if self.name == "new":
            # The folder, two arrays and the record.
            inodes = {path.stat().st_ino for path in (self, *self.iterdir())}
            assert len(inodes) == 4
            assert inodes <= flushed
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", flush_and_note)
    monkeypatch.setattr(Path, "rename", check_and_rename)
    Cache(tmp_path).check()
