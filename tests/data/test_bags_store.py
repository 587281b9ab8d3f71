"""The store of bags: what its one pass finds, who may share it, and what is left of a pass that was cut short."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from milbench.data import bags_store, own_bags
from milbench.data.own_bags import load_bags
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError
from tests._helpers.own_bags import store_of

FILES = FeatureOptions(table="", bag="slide_id", labels="label", features="features/*.npy")


def slides(folder: Path, dtype: str = "f4") -> Path:
    """Write slides.csv and a file of features for each of its six rows."""
    rng = np.random.default_rng(0)
    (folder / "features").mkdir(parents=True)
    for n in range(6):
        np.save(folder / f"features/s{n}.npy", rng.normal(3, 2, size=(20 + 7 * n, 5)).astype(dtype))
    rows = [f"s{n},{'x' * (n % 2)}" for n in range(6)]
    (folder / "slides.csv").write_text("\n".join(["slide_id,label", *rows]))
    return folder / "slides.csv"


@pytest.mark.parametrize("sizes", [[1, 1, 1], [3, 5, 1, 900, 2], [5000], [2, 4000, 4000, 1, 1]])
def test_moments_and_extremes_are_those_of_all_numbers(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bags_store, "BLOCK", 1 << 8)
    rng = np.random.default_rng(1)
    parts = [(1e6 + rng.normal(size=(size, 3)).round(1)).astype(np.float32) for size in sizes]
    store, every = store_of(parts), np.concatenate(parts).astype(np.longdouble)
    mean, spread = store.standard(np.arange(len(sizes)))
    np.testing.assert_allclose(mean, every.mean(axis=0).astype(float), rtol=1e-12)
    np.testing.assert_allclose(spread, every.std(axis=0).astype(float), rtol=1e-9, atol=1e-9)
    for feature in range(3):
        low, next_low, next_high, high = store.ends()[:, feature].tolist()
        different = np.unique(every[:, feature])
        assert (low, high) == (different[0], different[-1])
        if len(different) > 1:
            assert (next_low, next_high) == (different[1], different[-2])
    assert len({bytes(digest) for digest in store.digests}) == len(
        {part.tobytes() for part in parts}
    )


def test_a_constant_feature_has_no_spread_at_all() -> None:
    parts = [np.full((n, 2), 0.1, np.float32) for n in (3, 70_000)]
    assert store_of(parts).standard(np.arange(2))[1].tolist() == [0, 0]
    assert store_of(parts).constant().all()


def test_npy_files_stay_and_other_files_are_packed(tmp_path: Path) -> None:
    table = slides(tmp_path / "a", dtype="f2")
    bags = load_bags(table, FILES)
    assert bags.store.packed is None
    assert not list(tmp_path.rglob("instances.npy"))
    assert isinstance(bags.store[3], np.memmap)
    np.save(tmp_path / "a/features/s2.npy", np.ones((4, 5), np.float32))
    mixed = load_bags(table, FILES).store
    assert mixed.packed is not None
    assert mixed.packed.dtype == np.float32
    assert np.array_equal(mixed.single(3), bags.store.single(3))


def test_a_second_reader_reads_no_table_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = slides(tmp_path)
    first = load_bags(table, FILES)
    os.utime(tmp_path / "features/s1.npy", (1, 1))
    assert load_bags(table, FILES).digest == first.digest, (
        "another date is the same data, read again"
    )
    for name in ("read_table", "read_chunks", "open_features"):
        monkeypatch.setattr(own_bags, name, None)
    again = load_bags(table, FILES)
    assert (again.digest, again.bags, again.labels.tolist()) == (
        first.digest,
        first.bags,
        first.labels.tolist(),
    )


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


def test_what_a_killed_process_leaves_is_removed_later(tmp_path: Path) -> None:
    load_bags(table := slides(tmp_path), FILES)
    (kept,) = (tmp_path / ".bags").iterdir()
    kept.rename(kept.with_name(f".{kept.name}-killed"))
    assert len(load_bags(table, FILES)) == 6
    assert [*(tmp_path / ".bags").iterdir()] == [kept]


CELL = """
import resource, sys
import torch
from milbench import generator, load_task
def main():
    held = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
    task = load_task("feature-bags", table=sys.argv[1], bag="slide_id", labels="label", features="features/*.npy",
                     instances=4000, batch_instances=32_000)
    resource.setrlimit(resource.RLIMIT_DATA, (held + 900_000_000, -1))
    task.check_data(None)
    problem = task.load()
    assert {bags.instances.shape[1] for bags in problem.train_batches(0, generator("epoch"))} == {4000}
    print("done")
main()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the limits of Linux")
def test_a_cell_trains_on_more_data_than_it_may_hold(tmp_path: Path) -> None:
    """On 1.5 GB in sparse files, under a limit of 0.9 GB of anonymous memory: cells at once share the mapped pages."""
    (tmp_path / "features").mkdir()
    for n in range(10):
        path = tmp_path / f"features/s{n}.npy"
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(36_600, 1024))
        array[:10] = np.random.default_rng(n).normal(size=(10, 1024))
        del array
    (tmp_path / "slides.csv").write_text(
        "\n".join(["slide_id,label", *(f"s{n},{'x' * (n % 2)}" for n in range(10))])
    )
    assert sum(path.stat().st_size for path in tmp_path.glob("features/*")) > 1.49e9
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert b"done" in subprocess.check_output(
        [sys.executable, "-c", CELL, tmp_path / "slides.csv"], env=env
    )
