"""The store of bags: what one pass over the features finds, and how processes share it."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from milbench.data import bags_store, pack_feature_files, pack_features
from milbench.data.bags_store import BagStore
from milbench.data.load_bags import load_bags
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError
from tests._helpers.own_bags import store_of

FILES = FeatureOptions(table="", bag="slide_id", labels="label", features="features/*.npy")


def slides(folder: Path, dtype: str = "f4") -> Path:
    """Write slides.csv and a file of features for each of its six rows."""
    rng = np.random.default_rng(0)
    (folder / "features").mkdir(parents=True)
    for number in range(6):
        values = rng.normal(3, 2, size=(20 + 7 * number, 5))
        np.save(folder / f"features/s{number}.npy", values.astype(dtype))
    return table_of_slides(folder, 6)


def table_of_slides(folder: Path, count: int) -> Path:
    """Write slides.csv, in which every second slide has the class x."""
    rows = ["slide_id,label"]
    for number in range(count):
        label = "x" if number % 2 else ""
        rows.append(f"s{number},{label}")
    path = folder / "slides.csv"
    path.write_text("\n".join(rows))
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scan 85 instances of three features at a time: bags are larger and smaller than a block."""
    monkeypatch.setattr(bags_store, "BLOCK", 1 << 8)


SIZES = pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([1, 1, 1], id="bags of one"),
        pytest.param([3, 5, 1, 900, 2], id="one large bag"),
        pytest.param([5000], id="one bag"),
        pytest.param([2, 4000, 4000, 1, 1], id="two large bags"),
    ],
)


def instances(sizes: list[int]) -> list[NDArray[np.float32]]:
    """Return bags of three features, whose values are near a million with a spread of 1.

    Sums of squares of these values would lose all digits of the spread.
    """
    rng = np.random.default_rng(1)
    return [(1e6 + rng.normal(size=(size, 3)).round(1)).astype(np.float32) for size in sizes]


@SIZES
@pytest.mark.usefixtures("small_blocks")
def test_means_and_deviations_are_over_all_instances(sizes: list[int]) -> None:
    parts = instances(sizes)
    mean, spread = store_of(parts).standard(np.arange(len(sizes)))
    every = np.concatenate(parts).astype(np.longdouble)
    np.testing.assert_allclose(mean, every.mean(axis=0).astype(float), rtol=1e-12)
    np.testing.assert_allclose(spread, every.std(axis=0).astype(float), rtol=1e-9, atol=1e-9)


@SIZES
@pytest.mark.usefixtures("small_blocks")
def test_extremes_are_over_all_instances(sizes: list[int]) -> None:
    parts = instances(sizes)
    every = np.concatenate(parts)
    for feature, ends in enumerate(store_of(parts).ends().T.tolist()):
        # The two smallest values and the two largest ones.
        different = np.unique(every[:, feature]).tolist()
        assert ends == [different[0], different[1], different[-2], different[-1]]


def test_a_feature_of_one_value_has_no_second_one() -> None:
    ends = store_of([np.full((3, 1), 0.5, np.float32)]).ends()
    assert ends[:, 0].tolist() == [0.5, np.inf, -np.inf, 0.5]


@SIZES
@pytest.mark.usefixtures("small_blocks")
def test_bags_of_other_content_have_other_digests(sizes: list[int]) -> None:
    parts = instances(sizes)
    contents = {part.tobytes() for part in parts}
    digests = {bytes(digest) for digest in store_of(parts).digests}
    assert len(digests) == len(contents)


@pytest.fixture
def constant() -> BagStore:
    """A small and a large bag, whose values are all the same number."""
    return store_of([np.full((count, 2), 0.1, np.float32) for count in (3, 70_000)])


def test_a_constant_feature_has_no_spread_at_all(constant: BagStore) -> None:
    _, spread = constant.standard(np.arange(2))
    assert spread.tolist() == [0, 0]


def test_a_constant_feature_is_found(constant: BagStore) -> None:
    assert constant.constant().tolist() == [True, True]


def test_npy_files_of_one_type_stay_where_they_are(tmp_path: Path) -> None:
    store = load_bags(slides(tmp_path, dtype="f2"), FILES).store
    assert store.packed is None
    assert not list(tmp_path.rglob("instances.npy"))
    assert isinstance(store[3], np.memmap)


def test_npy_files_of_two_types_are_packed(tmp_path: Path) -> None:
    table = slides(tmp_path, dtype="f2")
    of_one_type = load_bags(table, FILES).store
    np.save(tmp_path / "features/s2.npy", np.ones((4, 5), np.float32))
    mixed = load_bags(table, FILES).store
    assert mixed.packed is not None
    assert mixed.packed.dtype == np.float32
    assert np.array_equal(mixed.single(3), of_one_type.single(3))


def test_files_of_another_date_are_the_same_data(tmp_path: Path) -> None:
    table = slides(tmp_path)
    first = load_bags(table, FILES)
    os.utime(tmp_path / "features/s1.npy", (1, 1))
    assert load_bags(table, FILES).digest == first.digest


def test_a_second_reader_reads_no_table_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = slides(tmp_path)
    first = load_bags(table, FILES)
    # No table and no file can be read now.
    monkeypatch.setattr(pack_features, "read_table", None)
    monkeypatch.setattr(pack_features, "read_chunks", None)
    monkeypatch.setattr(pack_feature_files, "open_features", None)
    again = load_bags(table, FILES)
    assert again.digest == first.digest
    assert again.bags == first.bags
    assert again.labels.tolist() == first.labels.tolist()


def test_a_full_disk_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("bag,labels,f\n" + "a,x,1.5\n" * 1000 + "b,,2\n")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(
        UsageError,
        match=r"cannot keep .*t.csv-.*: No space left on device; .* MILBENCH_CACHE names",
    ):
        load_bags(tmp_path / "t.csv", FeatureOptions(table=""))
    assert not (tmp_path / ".bags").exists()


def test_the_unfinished_folder_of_a_killed_process_is_removed_later(tmp_path: Path) -> None:
    table = slides(tmp_path)
    load_bags(table, FILES)
    (kept,) = (tmp_path / ".bags").iterdir()
    kept.rename(kept.with_name(f".{kept.name}-killed"))
    assert len(load_bags(table, FILES)) == 6
    assert list((tmp_path / ".bags").iterdir()) == [kept]


# Trains a cell with a limit on its memory. Mapped files do not count as memory that it holds.
CELL = """
import re, resource, sys
from pathlib import Path
import torch
from milbench import generator, load_task

def main():
    held = bytes_held()
    task = load_task(
        "feature-bags", table=sys.argv[1], bag="slide_id", labels="label",
        features="features/*.npy", instances=4000, batch_instances=32_000,
    )
    resource.setrlimit(resource.RLIMIT_DATA, (held + 900_000_000, -1))
    task.check_data(None)
    problem = task.load()
    sizes = {bags.instances.shape[1] for bags in problem.train_batches(0, generator("epoch"))}
    assert sizes == {4000}
    print("done")

def bytes_held():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search("VmData:[^0-9]*([0-9]+) kB", status)[1])

main()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the limits of Linux")
def test_a_cell_trains_on_more_data_than_it_may_hold(tmp_path: Path) -> None:
    """The data are 1.5 GB in sparse files, and the memory of the process is limited to 0.9 GB.

    Files that are mapped do not count, and cells that run at the same time share them.
    """
    (tmp_path / "features").mkdir()
    for number in range(10):
        path = tmp_path / f"features/s{number}.npy"
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(36_600, 1024))
        array[:10] = np.random.default_rng(number).normal(size=(10, 1024))
        del array
    table = table_of_slides(tmp_path, 10)
    # 10 files x 36,600 instances x 1,024 features x 4 bytes.
    assert sum(path.stat().st_size for path in tmp_path.glob("features/*")) > 1.49e9
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    printed = subprocess.check_output([sys.executable, "-c", CELL, table], env=env)
    assert b"done" in printed
