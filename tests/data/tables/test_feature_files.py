from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from milbench.data.tables.feature_files import bag_features
from milbench.errors import UsageError

FEATURES = np.arange(6, dtype=np.float32).reshape(3, 2)


def write(folder: Path, name: str, **arrays: Any) -> None:
    path = folder / name
    if path.suffix == ".npy":
        np.save(path, next(iter(arrays.values())))
    elif path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            for key, array in arrays.items():
                file[f"group/{key}"] = array
    else:
        torch.save({key: torch.from_numpy(array) for key, array in arrays.items()}, path)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5", "a.pt"])
def test_every_format_gives_the_same_features(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, x=FEATURES)
    (found,) = bag_features(tmp_path / "t.csv", [name])
    assert found.dtype == np.float32
    assert np.array_equal(found, FEATURES)


@pytest.mark.parametrize(("name", "key"), [("a.npz", "x"), ("a.h5", "group/x"), ("a.pt", "x")])
def test_a_key_names_one_of_several_arrays(tmp_path: Path, name: str, key: str) -> None:
    write(tmp_path, name, x=FEATURES, other=FEATURES[:1])
    assert np.array_equal(bag_features(tmp_path / "t.csv", [name], key)[0], FEATURES)
    with pytest.raises(UsageError, match="expected one array, or a key"):
        bag_features(tmp_path / "t.csv", [name])
    with pytest.raises(UsageError, match=f"no '{key}s'; did you mean '{key}'"):
        bag_features(tmp_path / "t.csv", [name], f"{key}s")


def test_a_tensor_alone_needs_no_key(tmp_path: Path) -> None:
    torch.save(torch.from_numpy(FEATURES), tmp_path / "a.pt")
    assert np.array_equal(bag_features(tmp_path / "t.csv", ["a.pt"])[0], FEATURES)


def test_all_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    write(tmp_path, "good.npy", x=FEATURES)
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    write(tmp_path, "flat.npy", x=FEATURES.ravel())
    write(tmp_path, "text.npy", x=np.array([["a", "b"]]))
    names = ["good.npy", "gone.npy", "", "bad.npz", "flat.npy", "text.npy", "a.txt"]
    (tmp_path / "a.txt").write_text("1 2")
    with pytest.raises(UsageError, match="6 of 7 files cannot be read") as caught:
        bag_features(tmp_path / "t.csv", names)
    message = str(caught.value)
    for part in ("row 3: gone.npy: there is no such file", "row 4: no file", "row 5: bad.npz", "the shape (6,)",
                 "row 7: text.npy: expected numbers", "row 8: a.txt: expected a file .npy"):  # fmt: skip
        assert part in message
    assert "good" not in message


def test_features_of_two_widths_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.npy", x=FEATURES)
    write(tmp_path, "b.npy", x=FEATURES[:, :1])
    with pytest.raises(UsageError, match=r"row 3: b\.npy has 1 features, expected 2 as in a\.npy"):
        bag_features(tmp_path / "t.csv", ["a.npy", "b.npy"])


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


@pytest.mark.parametrize("name", ["trap.npy", "trap.pt"])
def test_nothing_is_unpickled(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    if name == "trap.npy":
        np.save(path, np.array([[Trap()]], dtype=object), allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UsageError, match="1 of 1 files cannot be read") as caught:
        bag_features(tmp_path / "t.csv", [name])
    assert not (tmp_path / "sprung").exists()
    assert "weights_only=False" not in str(caught.value), "no hint how to run it after all"
