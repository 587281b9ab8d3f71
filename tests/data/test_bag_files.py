import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from milbench.data.bags_store import single
from milbench.data.load_bags import load_bags
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError

FEATURES = np.arange(6, dtype=np.float32).reshape(3, 2)


def bag_features(folder: Path, names: list[str], key: str = "") -> list[Any]:
    """Return the features of bags whose files a table names."""
    rows = [f"bag {n},{'x' * (n % 2 or len(names) == 1)},{name}" for n, name in enumerate(names)]
    (folder / "t.csv").write_text("\n".join(["bag,labels,path", *rows]))
    found = load_bags(folder / "t.csv", FeatureOptions(table="", features="@path", key=key)).store
    return [single(found[bag], found.dtype) for bag in range(len(found))]


def write(folder: Path, name: str, **arrays: Any) -> None:
    path = folder / name
    if path.suffix == ".npy":
        np.save(path, next(iter(arrays.values())))
    elif path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        save_file(arrays, path)
    elif path.suffix in (".h5", ".hdf5"):
        with h5py.File(path, "w") as file:
            for key, array in arrays.items():
                file[f"group/{key}"] = array
    else:
        torch.save({key: torch.from_numpy(array) for key, array in arrays.items()}, path)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5", "a.hdf5", "a.pt", "a.safetensors"])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_every_format_gives_the_same_features_and_keeps_their_type(
    tmp_path: Path, name: str, dtype: str
) -> None:
    values = FEATURES.astype(dtype) / 3
    write(tmp_path, name, x=values)
    (found,) = bag_features(tmp_path, [name])
    assert found.dtype == np.float32
    assert np.array_equal(found, values.astype(np.float32))
    assert (
        load_bags(tmp_path / "t.csv", FeatureOptions(table="", features="@path")).store[0].dtype
        == dtype
    )


@pytest.mark.parametrize(
    ("name", "key"), [("a.npz", "x"), ("a.h5", "group/x"), ("a.pt", "x"), ("a.safetensors", "x")]
)
def test_a_key_names_one_of_several_arrays(tmp_path: Path, name: str, key: str) -> None:
    write(tmp_path, name, x=FEATURES, other=FEATURES[:1])
    assert np.array_equal(bag_features(tmp_path, [name], key)[0], FEATURES)
    with pytest.raises(
        UsageError, match=r"expected one array, or -p task\.key with the name of one"
    ):
        bag_features(tmp_path, [name])
    with pytest.raises(UsageError, match=f"no '{key}s'; did you mean '{key}'"):
        bag_features(tmp_path, [name], f"{key}s")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5", "a.pt", "a.safetensors"])
def test_a_leading_axis_of_one_slide_is_left_out(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, features=FEATURES[None])
    assert np.array_equal(bag_features(tmp_path, [name])[0], FEATURES)
    if name == "a.h5":
        with h5py.File(tmp_path / name, "w") as file:
            file["features"], file["coords"] = FEATURES[None], np.arange(6).reshape(1, 3, 2)
        coords = load_bags(tmp_path / "t.csv", FeatureOptions(table="", features="@path")).coords
        assert coords is not None
        assert coords.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_all_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    write(tmp_path, "good.npy", x=FEATURES)
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    write(tmp_path, "flat.npy", x=FEATURES.ravel())
    write(tmp_path, "text.npy", x=np.array([["a", "b"]]))
    names = ["good.npy", "gone.npy", "", "bad.npz", "flat.npy", "text.npy", "a.txt"]
    (tmp_path / "a.txt").write_text("1 2")
    with pytest.raises(UsageError, match="6 of 7 files cannot be read") as caught:
        bag_features(tmp_path, names)
    message = str(caught.value)
    for part in ("row 3: gone.npy: not found", "row 4: no file", "row 5: bad.npz", "the shape (6,)",
                 "row 7: text.npy: expected numbers", "row 8: a.txt: expected a file .npy"):  # fmt: skip
        assert part in message
    assert "good" not in message


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


@pytest.mark.parametrize("damage", [
    lambda content: content[: len(content) // 2], lambda content: b"\x93NUMPY\x01\x00" + bytes(range(200)),
])  # fmt: skip
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5", "a.pt", "a.safetensors"])
def test_a_damaged_file_is_named_with_its_row(tmp_path: Path, name: str, damage: Any) -> None:
    write(tmp_path, "good.npy", x=np.ones((500, 2), np.float32))
    write(tmp_path, name, x=np.ones((500, 2), np.float32))
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with pytest.raises(
        UsageError, match=rf"1 of 2 files cannot be read: .*t\.csv, row 3: {name}: "
    ) as caught:
        bag_features(tmp_path, ["good.npy", name])
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("instances.npy"))


@pytest.mark.parametrize("name", ["trap.npy", "trap.pt"])
def test_nothing_is_unpickled(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    if name == "trap.npy":
        np.save(path, np.array([[Trap()]], dtype=object), allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UsageError, match="1 of 1 files cannot be read") as caught:
        bag_features(tmp_path, [name])
    assert not (tmp_path / "sprung").exists()
    assert "weights_only=False" not in str(caught.value), "no hint how to run it after all"


@pytest.mark.parametrize("values", [[1, -1, 0], [b"y", b"", b"x"]])
def test_classes_of_instances_come_with_the_file(tmp_path: Path, values: list[Any]) -> None:
    with h5py.File(tmp_path / "s1.h5", "w") as file:
        file["features"], file["instance_labels"] = FEATURES, values
    (tmp_path / "t.csv").write_text("bag,labels\ns1,x;y\n")
    known = load_bags(
        tmp_path / "t.csv", FeatureOptions(table="", features="*.h5")
    ).instance_classes
    assert known is not None
    assert known.tolist() == [1, 2, 0], "2 is background"
    (tmp_path / "t.csv").write_text("bag,labels\ns1,x\n")
    with pytest.raises(
        UsageError, match=r"t.csv, row 2: s1.h5: instance_labels are not one of the bag's"
    ):
        load_bags(tmp_path / "t.csv", FeatureOptions(table="", features="*.h5", classes="x;y"))

    # As pandas has texts, and numpy saves them.
    np.savez(
        tmp_path / "s1.npz",
        features=FEATURES,
        instance_labels=np.array(["x", "", "y"], dtype=object),
    )
    with pytest.raises(
        UsageError, match=r"s1.npz: instance_labels cannot be read: Object arrays cannot be loaded"
    ):
        load_bags(tmp_path / "t.csv", FeatureOptions(table="", features="*.npz"))


@pytest.mark.parametrize("values", [np.array([1, "a", None], object), np.array([{"a": 1}])])
def test_a_pickled_array_is_one_line_that_says_so(tmp_path: Path, values: Any) -> None:
    np.save(tmp_path / "a.npy", values, allow_pickle=True)
    with pytest.raises(UsageError, match=r"row 2: a\.npy: it holds pickled objects, which are not"):
        bag_features(tmp_path, ["a.npy"])


def test_a_store_of_zarr_is_one_line_that_says_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(UsageError, match=r"zarr is not read, expected a file \.npy"):
        bag_features(tmp_path, ["a.zarr"])


def test_a_file_with_many_slides_is_one_line(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for slide in ("s1", "s2", "s3"):
            file[f"{slide}/features"] = FEATURES
            file[f"{slide}/coords"] = FEATURES
    with pytest.raises(
        UsageError, match=r"3 arrays in 3 groups \(s1, s2, s3\); expected a file for"
    ):
        bag_features(tmp_path, ["all.h5"])
