"""Files with the features of a bag: every format is read, and a bad file is named in one line."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file

from milbench.data.load_bags import load_bags
from milbench.data.own_bags import OwnBags
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError

FEATURES = np.arange(6, dtype=np.float32).reshape(3, 2)


def load(folder: Path, names: list[str], key: str = "") -> OwnBags:
    """Return bags whose files a table names; the last bag and some others have the class x."""
    rows = ["bag,labels,path"]
    for number, name in enumerate(names):
        is_last = number == len(names) - 1
        label = "x" if number % 2 or is_last else ""
        rows.append(f"bag {number},{label},{name}")
    (folder / "t.csv").write_text("\n".join(rows))
    return load_bags(folder / "t.csv", FeatureOptions(table="", features="@path", key=key))


def bag_features(folder: Path, names: list[str], key: str = "") -> list[NDArray[np.float32]]:
    """Return the features of bags whose files a table names."""
    store = load(folder, names, key).store
    return [store.single(bag) for bag in range(len(store))]


def write(folder: Path, name: str, **arrays: Any) -> None:
    """Write arrays by their names, in the format of the file's ending.

    In HDF5 they are in a group. A file .npy holds only the first array.
    """
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


FORMATS = pytest.mark.parametrize(
    "name", ["a.npy", "a.npz", "a.h5", "a.hdf5", "a.pt", "a.safetensors"]
)
TYPES = pytest.mark.parametrize("dtype", ["f4", "f2"])


@FORMATS
@TYPES
def test_every_format_gives_the_same_features(tmp_path: Path, name: str, dtype: str) -> None:
    values = FEATURES.astype(dtype) / 3
    write(tmp_path, name, x=values)
    (found,) = bag_features(tmp_path, [name])
    assert found.dtype == np.float32
    assert np.array_equal(found, values.astype(np.float32))


@FORMATS
@TYPES
def test_features_are_kept_in_the_type_of_their_file(tmp_path: Path, name: str, dtype: str) -> None:
    write(tmp_path, name, x=FEATURES.astype(dtype))
    assert load(tmp_path, [name]).store[0].dtype == dtype


SEVERAL_ARRAYS = pytest.mark.parametrize(
    ("name", "key"), [("a.npz", "x"), ("a.h5", "group/x"), ("a.pt", "x"), ("a.safetensors", "x")]
)


@SEVERAL_ARRAYS
def test_a_key_names_one_of_several_arrays(tmp_path: Path, name: str, key: str) -> None:
    write(tmp_path, name, x=FEATURES, other=FEATURES[:1])
    (found,) = bag_features(tmp_path, [name], key)
    assert np.array_equal(found, FEATURES)


@SEVERAL_ARRAYS
def test_several_arrays_without_a_key_are_refused(tmp_path: Path, name: str, key: str) -> None:
    write(tmp_path, name, x=FEATURES, other=FEATURES[:1])
    with pytest.raises(
        UsageError, match=r"expected one array, or -p task\.key with the name of one"
    ):
        load(tmp_path, [name])


@SEVERAL_ARRAYS
def test_a_misspelt_key_is_named_with_the_closest(tmp_path: Path, name: str, key: str) -> None:
    write(tmp_path, name, x=FEATURES, other=FEATURES[:1])
    with pytest.raises(UsageError, match=f"no '{key}s'; did you mean '{key}'"):
        load(tmp_path, [name], f"{key}s")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5", "a.pt", "a.safetensors"])
def test_a_leading_axis_of_one_slide_is_left_out(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, features=FEATURES[None])
    (found,) = bag_features(tmp_path, [name])
    assert np.array_equal(found, FEATURES)


def test_a_leading_axis_of_coordinates_is_left_out(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"] = FEATURES[None]
        file["coords"] = np.arange(6).reshape(1, 3, 2)
    coords = load(tmp_path, ["a.h5"]).coords
    assert coords is not None
    assert coords.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_all_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    write(tmp_path, "good.npy", x=FEATURES)
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    write(tmp_path, "flat.npy", x=FEATURES.ravel())
    write(tmp_path, "text.npy", x=np.array([["a", "b"]]))
    (tmp_path / "a.txt").write_text("1 2")
    names = ["good.npy", "gone.npy", "", "bad.npz", "flat.npy", "text.npy", "a.txt"]
    with pytest.raises(UsageError, match="6 of 7 files cannot be read") as caught:
        load(tmp_path, names)
    message = str(caught.value)
    assert "row 3: gone.npy: not found" in message
    assert "row 4: no file" in message
    assert "row 5: bad.npz" in message
    assert (
        "row 6: flat.npy: expected an array of instances by features, got the shape (6,)" in message
    )
    assert "row 7: text.npy: expected numbers" in message
    assert "row 8: a.txt: expected a file .npy" in message
    assert "good" not in message


class Trap:
    """An object that makes the file "sprung" when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


def first_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def garbage_with_a_header(content: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + bytes(range(200))


@pytest.mark.parametrize("damage", [first_half, garbage_with_a_header])
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5", "a.pt", "a.safetensors"])
def test_a_damaged_file_is_named_with_its_row(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    write(tmp_path, "good.npy", x=np.ones((500, 2), np.float32))
    write(tmp_path, name, x=np.ones((500, 2), np.float32))
    path = tmp_path / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        UsageError, match=rf"1 of 2 files cannot be read: .*t\.csv, row 3: {name}: "
    ) as caught:
        load(tmp_path, ["good.npy", name])
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
    assert "weights_only=False" not in str(caught.value), "no hint how to unpickle it"


INSTANCE_LABELS = pytest.mark.parametrize(
    "values",
    [
        pytest.param([1, -1, 0], id="numbers"),
        pytest.param([b"y", b"", b"x"], id="names"),
    ],
)
"""One instance of y, one of background and one of x, where the classes are x and y."""


def load_slide(folder: Path, labels: str, ending: str = ".h5") -> OwnBags:
    """Return the bag s1, whose features are in a file of its name; the classes are x and y."""
    (folder / "t.csv").write_text(f"bag,labels\ns1,{labels}\n")
    options = FeatureOptions(table="", features=f"*{ending}", classes="x;y")
    return load_bags(folder / "t.csv", options)


@INSTANCE_LABELS
def test_classes_of_instances_come_with_the_file(tmp_path: Path, values: list[Any]) -> None:
    with h5py.File(tmp_path / "s1.h5", "w") as file:
        file["features"] = FEATURES
        file["instance_labels"] = values
    found = load_slide(tmp_path, "x;y").instance_classes
    assert found is not None
    background = 2
    assert found.tolist() == [1, background, 0]


@INSTANCE_LABELS
def test_classes_of_instances_that_the_bag_lacks_are_refused(
    tmp_path: Path, values: list[Any]
) -> None:
    with h5py.File(tmp_path / "s1.h5", "w") as file:
        file["features"] = FEATURES
        file["instance_labels"] = values
    with pytest.raises(
        UsageError, match=r"t.csv, row 2: s1.h5: instance_labels are not one of the bag's"
    ):
        load_slide(tmp_path, "x")


def test_classes_of_instances_that_are_pickled_are_refused(tmp_path: Path) -> None:
    # Texts from pandas are an array of objects, which numpy saves as a pickle.
    names = np.array(["x", "", "y"], dtype=object)
    np.savez(tmp_path / "s1.npz", features=FEATURES, instance_labels=names)
    with pytest.raises(
        UsageError, match=r"s1.npz: instance_labels cannot be read: Object arrays cannot be loaded"
    ):
        load_slide(tmp_path, "x;y", ".npz")


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


NO_FEATURES = pytest.mark.parametrize(
    "name", ["coords", "patches/coordinates", "positions", "bag_ids", "labels", "locs"]
)


def write_named(folder: Path, ending: str, arrays: dict[str, Any]) -> None:
    """Write the file of the slide s1; in a file .pt, a name with a slash is in a dict."""
    path = folder / f"s1{ending}"
    if ending == ".h5":
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    elif ending == ".npz":
        np.savez(path, **arrays)
    else:
        torch.save(nested_tensors(arrays), path)


def nested_tensors(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return tensors by their names, within a dict "patches" if a name has this folder."""
    tensors = {name.rpartition("/")[2]: torch.from_numpy(array) for name, array in arrays.items()}
    if any("/" in name for name in arrays):
        return {"patches": tensors}
    return tensors


ENDINGS = pytest.mark.parametrize("ending", [".h5", ".npz", ".pt"])


@ENDINGS
@NO_FEATURES
def test_a_file_of_coordinates_or_labels_alone_is_refused(
    tmp_path: Path, ending: str, name: str
) -> None:
    write_named(tmp_path, ending, {name: FEATURES})
    with pytest.raises(UsageError, match=rf"s1{ending}: it holds only {name}; expected features"):
        load_slide(tmp_path, "x", ending)


@ENDINGS
@NO_FEATURES
def test_coordinates_and_labels_are_never_taken_for_features(
    tmp_path: Path, ending: str, name: str
) -> None:
    write_named(tmp_path, ending, {name: FEATURES, "vit_features": FEATURES + 1})
    found = load_slide(tmp_path, "x", ending).store.single(0)
    assert np.array_equal(found, FEATURES + 1)
