"""The store of bags: what its one pass finds, who may share it, and what is left of a pass that was cut short."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from milbench.data import array_cache, bags_store, own_bags
from milbench.data.own_bags import Columns, load_bags
from milbench.errors import UsageError
from tests._helpers.own_bags import store_of

FILES = Columns(bag="slide_id", labels="label", features="features/*.npy")


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
def test_moments_and_extremes_are_those_of_all_numbers(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bags_store, "BLOCK", 1 << 8)
    rng = np.random.default_rng(1)
    parts = [(1e6 + rng.normal(size=(size, 3)).round(1)).astype(np.float32) for size in sizes]
    store, every = store_of(parts), np.concatenate(parts)
    mean, spread = store.standard(np.arange(len(sizes)))
    np.testing.assert_allclose(mean, every.astype(np.longdouble).mean(axis=0).astype(float), rtol=1e-12)
    exact = every.astype(np.longdouble).std(axis=0).astype(float)
    np.testing.assert_allclose(spread, exact, rtol=1e-9, atol=1e-9)
    one = len(sizes) // 2
    assert store.standard(np.array([one]))[0] == pytest.approx(parts[one].astype(float).mean(axis=0))
    for feature in range(3):
        low, next_low, next_high, high = store.ends[:, feature].tolist()
        different = np.unique(every[:, feature])
        assert (low, high) == (different[0], different[-1])
        if len(different) > 1:
            assert (next_low, next_high) == (different[1], different[-2])
    assert len({bytes(digest) for digest in store.digests}) == len({part.tobytes() for part in parts})


def test_a_constant_feature_has_no_spread_at_all() -> None:
    parts = [np.full((n, 2), 0.1, np.float32) for n in (3, 70_000)]
    assert store_of(parts).standard(np.arange(2))[1].tolist() == [0, 0]
    assert store_of(parts).constant().all()


def test_npy_files_stay_where_they_are_and_others_are_packed_in_their_type(tmp_path: Path) -> None:
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


def test_a_second_reader_reads_no_table_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = slides(tmp_path)
    monkeypatch.setattr(array_cache, "RECENT", -1e9)
    first = load_bags(table, FILES)
    os.utime(tmp_path / "features/s1.npy", (1, 1))
    assert load_bags(table, FILES).digest == first.digest, "another date is the same data, read again"
    monkeypatch.setattr(own_bags, "read_table", None)
    monkeypatch.setattr(own_bags, "read_chunks", None)
    monkeypatch.setattr(own_bags, "open_features", None)
    again = load_bags(table, FILES)
    assert (again.digest, again.bags) == (first.digest, first.bags)
    assert np.array_equal(again.labels, first.labels)


def test_a_change_that_a_coarse_clock_does_not_show_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and times stay the same: what was packed within two seconds of them is not trusted."""
    path, now = tmp_path / "t.csv", time.time_ns()
    monkeypatch.setattr(array_cache, "file_state", lambda path: [19, now, now])
    digests = []
    for text in ("bag,labels,f\na,x,1\n", "bag,labels,f\na,x,2\n"):
        path.write_text(text)
        digests.append(load_bags(path, Columns()).digest)
    assert digests[0] != digests[1]


def test_a_full_disk_is_named_with_the_way_out_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("bag,labels,f\n" + "a,x,1.5\n" * 1000 + "b,,2\n")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(UsageError, match=r"cannot keep .*t.csv-.*: No space left on device; .* MILBENCH_CACHE names"):
        load_bags(tmp_path / "t.csv", Columns())
    assert not (tmp_path / ".bags").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from milbench.data import bags_store
from milbench.data.own_bags import Columns, load_bags
real = bags_store.scan
def killed(rows, *args, **how):
    if len(rows) > 40:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(rows, *args, **how)
bags_store.scan = killed
load_bags(Path(sys.argv[1]), Columns("slide_id", "label", "features/*.npy"))
"""


def test_what_a_killed_process_leaves_is_no_store_and_is_removed_later(tmp_path: Path) -> None:
    table = slides(tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(table)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not list(tmp_path.glob(".bags/slides*"))
    assert len(load_bags(table, FILES)) == 6
    assert [path.name.partition("-")[0] for path in (tmp_path / ".bags").iterdir()] == ["slides.csv"]


CELL = """
import resource, sys
import torch
from milbench import generator, load_loss, load_task
from milbench.networks.registry import make_network
def main():
    held = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
    task = load_task("feature-bags", table=sys.argv[1], bag="slide_id", labels="label", features="features/*.npy",
                     instances=4000, batch_instances=32_000)
    resource.setrlimit(resource.RLIMIT_DATA, (held + 900_000_000, -1))
    task.check_data(None)
    task.prepare(None, torch.device("cpu"))
    network, loss = make_network(task, "mlp", {}, 0), load_loss("exact")
    for bags in task.train_batches(0, generator("epoch")):
        assert bags.instances.shape[1] == 4000
        loss(network(bags.instances), bags.labels, bags.mask).mean().backward()
    print("done", bags.instances.shape)
main()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the limits of Linux")
def test_a_cell_trains_on_more_data_than_it_may_hold(tmp_path: Path) -> None:
    """On 1.5 GB in sparse files, under a limit of 0.9 GB of anonymous memory: cells at once share the mapped pages."""
    (tmp_path / "features").mkdir()
    rows = ["slide_id,label"]
    for n in range(10):
        path = tmp_path / f"features/s{n}.npy"
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(36_600, 1024))
        array[:10] = np.random.default_rng(n).normal(size=(10, 1024))
        del array
        rows.append(f"s{n},{'x' * (n % 2)}")
    (tmp_path / "slides.csv").write_text("\n".join(rows))
    assert sum(path.stat().st_size for path in tmp_path.glob("features/*")) > 1.49e9
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert b"done" in subprocess.check_output([sys.executable, "-c", CELL, tmp_path / "slides.csv"], env=env)
