"""What a trained network finds in tables, files and folders of bags, from networks whose logits are known by hand."""

import itertools
import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from milbench import Network, UsageError, load_task
from milbench.contracts.network import input_standardised
from milbench.contracts.registry import losses
from milbench.contracts.resolver import resolve
from milbench.experiment.cell import Cell
from milbench.networks.instance import InstanceMLP
from milbench.networks.known_networks import make_network
from milbench.networks.standardise import StandardiseFeatures
from milbench.store import gallery as galleries
from milbench.store.folders import Root
from milbench.store.mlflow_runs import write_model
from tests._helpers.cells import make_cell
from tests._helpers.command_line import LOSS, Milbench
from tests._helpers.handmade import publish

CLASSES = ["cat", "dog"]
MEMORY = {"classes": CLASSES, "inputs": 2, "features": ["f0", "f1"]}


def known_network() -> Network:
    """A network with the logits f0, f1 and 0 for cat, dog and background, after the mean (1, 2) is subtracted."""
    network = InstanceMLP(2, 2, 0, layers=0)
    with torch.no_grad():
        network.head.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
        network.head.get_parameter("bias").zero_()
    return input_standardised(network, StandardiseFeatures(torch.tensor([1.0, 2.0]), torch.ones(2)))


def cell(loss: str = "noisy-or", loss_file: str = "", **params: Any) -> Cell:
    return make_cell(
        loss,
        source=loss_file,
        task_params={"table": "nowhere.csv", **params},
        network_params={"layers": 0},
        data="digest",
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Root:
    return Root(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def known(store: Root) -> str:
    """A cell of noisy-or, whose presence scores are log-odds, and whose table is nowhere to be found."""
    return publish(store, cell(), known_network(), threshold=0.0, memory=MEMORY)


@pytest.fixture
def found(
    store: Root, known: str, tmp_path: Path, milbench: Milbench
) -> Callable[..., pd.DataFrame]:
    """Return a function that writes the predictions of a cell, and returns them by the names of bags."""

    def call(*words: object, of: str = known) -> pd.DataFrame:
        file = tmp_path / "found.csv"
        milbench(
            "predict", *map(str, words), "--cell", of, "--out", str(file), "--root", str(store.path)
        ).done()
        return pd.read_csv(file, keep_default_na=False).set_index("bag")

    return call


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Bags without labels: columns in another order than in training, one more, and rows of bags mixed."""
    path = tmp_path / "new.csv"
    path.write_text("f1,note,bag,f0\n2,x,a,9\n2,y,b,1\n9,z,a,-4\n-7,x,c,-8\n3,x,b,1.5\n")
    return path


def softmax(f0: float, f1: float) -> list[float]:
    weights = [math.exp(f0 - 1), math.exp(f1 - 2), 1.0]
    return [w / sum(weights) for w in weights]


def set_probability(probs: list[list[float]], wanted: set[int]) -> float:
    """The probability of a label set by enumeration of what every position shows; 2 is background."""
    total = 0.0
    for shown in itertools.product(range(3), repeat=len(probs)):
        if set(shown) - {2} == wanted:
            total += math.prod(p[c] for p, c in zip(probs, shown, strict=True))
    return total


def test_a_table_gives_label_sets_with_probabilities_and_places(
    found: Callable[..., pd.DataFrame], table: Path
) -> None:
    rows = found(table, "--positions")
    assert rows["labels"].to_dict() == {"a": "cat;dog", "b": "cat;dog", "c": ""}
    maps = {
        "a": [softmax(9, 2), softmax(-4, 9)],
        "b": [softmax(1, 2), softmax(1.5, 3)],
        "c": [softmax(-8, -7)],
    }
    for bag, wanted in (("a", {0, 1}), ("b", {0, 1}), ("c", set())):
        assert rows.loc[bag, "probability"] == pytest.approx(
            set_probability(maps[bag], wanted), rel=1e-6
        )
        for c, name in enumerate(CLASSES):
            presence = 1 - math.prod(1 - p[c] for p in maps[bag])
            assert rows.loc[bag, f"presence {name}"] == pytest.approx(presence, rel=1e-6)
    strongest = {bag: json.loads(text) for bag, text in rows["positions"].items()}
    places = {bag: [(p["class"], p["instance"]) for p in some] for bag, some in strongest.items()}
    assert places == {"a": [("cat", 0), ("dog", 1)], "b": [("cat", 1), ("dog", 1)], "c": []}
    assert strongest["a"][1]["probability"] == pytest.approx(maps["a"][1][1], rel=1e-6)
    positions = pd.read_csv(table.parent / "found-positions.csv")
    assert positions[["bag", "instance"]].to_numpy().tolist() == [
        ["a", 0],
        ["a", 1],
        ["b", 0],
        ["b", 1],
        ["c", 0],
    ]
    everywhere = positions[["P(cat)", "P(dog)", "P(background)"]].to_numpy()
    np.testing.assert_allclose(everywhere, [p for bag in maps.values() for p in bag], rtol=1e-6)


def test_several_seeds_are_averaged(
    store: Root, known: str, found: Callable[..., pd.DataFrame], table: Path
) -> None:
    """The second network gives every class and the background a third everywhere."""
    even = known_network()
    with torch.no_grad():
        even.head.weight.zero_()
    second = publish(store, replace(cell(), seed=1), even, threshold=-20.0, memory=MEMORY)
    rows = found(table, of=f"{known},{second[:9]}")
    maps = [softmax(9, 2), softmax(-4, 9)]
    for c, name in enumerate(CLASSES):
        each = [1 - math.prod(1 - p[c] for p in maps), 1 - (2 / 3) ** 2]
        assert rows.loc["a", f"presence {name}"] == pytest.approx(sum(each) / 2, rel=1e-6)
    each = [set_probability(maps, {0, 1}), set_probability([[1 / 3] * 3] * 2, {0, 1})]
    assert rows.loc["a", "probability"] == pytest.approx(sum(each) / 2, rel=1e-6)
    # Log-odds of -9 at a threshold of 0, and of 0 at -20: by 5.5 above on the average, and by the first alone below.
    assert rows["labels"].to_dict() == {"a": "cat;dog", "b": "cat;dog", "c": "cat;dog"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["bags.csv"],
            "has no column 'bag' (the bag that an instance belongs to); did you mean 'bags'?",
        ),
        (["far.csv"], "bag 'a', instance 1 (from 0): a feature is not finite"),
        (["empty"], "the folder empty has no file .npy"),
        (
            ["wide.npy"],
            "bag 'wide.npy' has 3 features, expected the 2 that were trained on (f0, f1)",
        ),
        (["a.npy", "a.npy"], "there are two bags 'a.npy'"),
        (["damaged.npy", "a.npy", "--positions"], "1 of 2 files cannot be read: damaged.npy"),
        (
            ["mine.csv", "--out", "mine.csv"],
            "mine.csv is one of the inputs and would be overwritten",
        ),
        (["mine.csv", "--invert"], "--invert is for pictures: mine.csv holds bags"),
        (["bags.csv", "--cell", "EXACT"], "needs data that its task does not remember: "),
        (["mine.csv", "--cell", "KNOWN,EXACT"], "differ in more than their seeds"),
    ],
)
def test_what_cannot_be_read_is_refused_and_nothing_is_written(
    store: Root, known: str, tmp_path: Path, milbench: Milbench, monkeypatch: pytest.MonkeyPatch,
    words: list[str], complaint: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    np.save("a.npy", np.zeros((2, 2)))
    np.save("wide.npy", np.zeros((2, 3)))
    Path("damaged.npy").write_bytes(b"no array")
    tables = {
        "bags": "bags,f0,f1\na,1,2\n",
        "far": "bag,f0,f1\na,1,2\na,1e60,2\n",
        "mine": "bag,f0,f1\n",
    }
    for name, content in tables.items():
        Path(f"{name}.csv").write_text(content)
    remembered = None if "EXACT" in words else MEMORY
    exact = publish(store, cell("exact"), known_network(), threshold=0.0, memory=remembered)
    words = [
        word.replace("KNOWN", known).replace("EXACT", exact) for word in ("--cell", known, *words)
    ]
    assert complaint in milbench("predict", *words, "--root", str(store.path)).complaint()
    assert Path("mine.csv").read_text() == "bag,f0,f1\n"
    assert not Path("predictions").exists()


def test_images_are_placed_in_their_own_pixels(tmp_path: Path) -> None:
    """A wide image is fitted into a square with room above and below it."""
    (tmp_path / "shots").mkdir()
    Image.new("RGB", (200, 100), (200, 0, 0)).save(tmp_path / "shots" / "wide.png")
    Image.new("RGB", (100, 100), (0, 200, 0)).save(tmp_path / "shots" / "even.jpg")
    task = load_task("image-bags", table="nowhere.csv", size=64)
    bag_format = task.format_from({"classes": ["red"], "inputs": 3})
    network = make_network(task, bag_format, "small", {}, seed=0)
    (batch,) = task.read_bags([tmp_path / "shots"], bag_format, network)
    assert [Path(name).name for name in batch.names] == ["even.jpg", "wide.png"]
    assert batch.bags.instances.shape == (2, 3, 64, 64)
    assert batch.bags.instances[0, 1].mean() == pytest.approx(200 / 255, abs=0.02)
    centres: Any = network.position_centres(64, 64)
    middle = len(centres[0]) // 2
    left, top = float(centres[1][0]), float(centres[0][middle])
    places = [
        (float(batch.places["x"][n, middle, 0]), float(batch.places["y"][n, middle, 0]))
        for n in range(2)
    ]
    assert places[0] == pytest.approx((left * 100 / 64, top * 100 / 64)), "an even image is scaled"
    assert places[1] == pytest.approx((left * 200 / 64, (top - 16) * 200 / 64)), (
        "16 rows above are no image"
    )
    with pytest.raises(UsageError, match="1 of 1 images cannot be read"):
        next(task.read_bags([LOSS], bag_format, network))


def test_sequences_are_standardised_as_in_training_and_placed_in_seconds(tmp_path: Path) -> None:
    """Frames of arrays at ten a second, positions of two frames, the last of them half a block."""
    lengths = {"a.npy": 7, "b.npy": 4}
    rng = np.random.default_rng(0)
    frames = {
        name: rng.normal(size=(length, 2)).astype(np.float32) for name, length in lengths.items()
    }
    for name, values in frames.items():
        np.save(tmp_path / name, values)
    (tmp_path / "new.tsv").write_text("file\nb.npy\na.npy\n")
    task = load_task("sequence-bags", table="nowhere.csv", frames_per_second=10)
    known = {
        "kind": "frames of 2 features",
        "frames_per_second": 10.0,
        "mean": [1.0, -1.0],
        "spread": [2.0, 4.0],
    }
    bag_format = task.format_from({"classes": ["owl"], "inputs": 2, **known})
    network = make_network(task, bag_format, "conv", {"stride": 2}, seed=0)
    (batch,) = task.read_bags([tmp_path / "new.tsv"], bag_format, network)
    assert (batch.kind, batch.names) == ("file", ["b.npy", "a.npy"])
    expected = ((frames["a.npy"] - [1, -1]) / [2, 4]).T
    np.testing.assert_allclose(batch.bags.instances[1], expected, rtol=1e-5)
    assert batch.bags.mask is not None
    assert batch.bags.mask.sum(dim=1).tolist() == [4, 7]
    assert batch.places["start"][1].tolist() == pytest.approx([0, 0.2, 0.4, 0.6])
    assert batch.places["end"][1].tolist() == pytest.approx([0.2, 0.4, 0.6, 0.7])
    (read,) = task.read_bags([tmp_path / "a.npy"], bag_format, network)
    np.testing.assert_allclose(read.bags.instances[0], expected, rtol=1e-5)
    np.save(tmp_path / "c.npy", np.zeros((3, 5)))
    with pytest.raises(
        UsageError, match="frames of 5 features, expected frames of 2 features as in training"
    ):
        list(task.read_bags([tmp_path / "c.npy"], bag_format, network))


def test_a_saved_model_needs_neither_store_nor_table_nor_plug_in_nor_what_that_imports(
    store: Root,
    tmp_path: Path,
    found: Callable[..., pd.DataFrame],
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import mlflow.pyfunc

    plugin, package = tmp_path / "mine.py", tmp_path / "lib/own_helpers"
    package.mkdir(parents=True)
    (package / "scale.py").write_text("SCALE = 1.0\n")
    monkeypatch.syspath_prepend(package.parent)
    plugin.write_text(f"{Path(LOSS).read_text()}\nfrom own_helpers.scale import SCALE\n")
    revision = f"1 {losses().entry(resolve(losses(), str(plugin))).record.digest}"
    unrevised = cell("my-loss", str(plugin))
    one = replace(unrevised, loss=replace(unrevised.loss, revision=revision))
    made = galleries.make(
        kind="set", instances=np.zeros((2, 3, 2)), labels=np.zeros((2, 2)), presence=np.zeros((2, 2)),
        probs=np.full((2, 3, 3), 1 / 3), class_names=CLASSES, mask=np.arange(3) < np.array([[1], [3]]),
    )  # fmt: skip
    cell_id = publish(store, one, known_network(), threshold=0.0, memory=MEMORY, gallery=made)
    expected = (
        found(table, of=cell_id)
        .drop(columns=["log_probability", "positions"])
        .reset_index(drop=True)
    )
    folder = store.cell(cell_id)
    write_model(tmp_path / "saved", folder, folder.cell(), folder.result())
    plugin.unlink()
    shutil.rmtree(package)
    for name in ("own_helpers.scale", "own_helpers"):
        del sys.modules[name]
    model = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert model.metadata.signature.inputs.to_dict()[0]["tensor-spec"] == {
        "dtype": "float32",
        "shape": (-1, -1, 2),
    }
    assert model.input_example.shape == (1, 1, 2), "the first bag of the gallery has one instance"
    given = np.array([[[9, 2], [-4, 9]], [[1, 2], [1.5, 3]]], np.float32)
    pd.testing.assert_frame_equal(model.predict(given), expected.head(2), check_dtype=False)
    assert list(model.predict(given[:0]).columns) == list(expected.columns)
