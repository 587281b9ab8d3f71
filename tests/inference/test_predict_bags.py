"""`milbench predict` on tables, files and folders of bags, with networks of known logits."""

import itertools
import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from milbench import BagFormat, Network, Task, UsageError, load_task
from milbench.contracts.bags import NamedBags
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
"""What a task of two features stores with a trained network, to read other bags later."""

Predict = Callable[..., pd.DataFrame]


def known_network() -> Network:
    """Return a network whose logits for cat, dog and background are f0 - 1, f1 - 2 and 0.

    It standardises features with the means 1 and 2, and deviations of 1.
    """
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
    """A cell of `noisy-or`, with log-odds as presence scores; the table of its task is missing."""
    return publish(store, cell(), known_network(), threshold=0.0, memory=MEMORY)


@pytest.fixture
def found(store: Root, known: str, tmp_path: Path, milbench: Milbench) -> Predict:
    """Return a function that runs `milbench predict`, and returns the predictions by bag."""

    def call(*words: object, of: str = known) -> pd.DataFrame:
        file = tmp_path / "found.csv"
        folders = ["--out", str(file), "--root", str(store.path)]
        milbench("predict", *map(str, words), "--cell", of, *folders).done()
        return pd.read_csv(file, keep_default_na=False).set_index("bag")

    return call


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write a table of bags without labels.

    Its columns have another order than in training, one column is new, and rows of different bags
    take turns.
    """
    rows = [
        "f1,note,bag,f0",
        "2,x,a,9",
        "2,y,b,1",
        "9,z,a,-4",
        "-7,x,c,-8",
        "3,x,b,1.5",
    ]
    path = tmp_path / "new.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def softmax(f0: float, f1: float) -> list[float]:
    """Return the probabilities that the known network gives to cat, dog and background."""
    weights = [math.exp(f0 - 1), math.exp(f1 - 2), 1.0]
    total = sum(weights)
    return [weight / total for weight in weights]


def set_probability(probs: list[list[float]], wanted: set[int]) -> float:
    """Return the probability of a label set by an enumeration of label maps; 2 is background."""
    total = 0.0
    for shown in itertools.product(range(3), repeat=len(probs)):
        if set(shown) - {2} == wanted:
            total += math.prod(at_position[c] for at_position, c in zip(probs, shown, strict=True))
    return total


MAPS = {
    "a": [softmax(9, 2), softmax(-4, 9)],
    "b": [softmax(1, 2), softmax(1.5, 3)],
    "c": [softmax(-8, -7)],
}
"""The probabilities of the known network at every position, by the bags of the table."""


def presence_of(probs: list[list[float]], c: int) -> float:
    """Return the probability that a class is at any position."""
    return 1 - math.prod(1 - at_position[c] for at_position in probs)


def test_a_table_gives_label_sets(found: Predict, table: Path) -> None:
    assert found(table)["labels"].to_dict() == {"a": "cat;dog", "b": "cat;dog", "c": ""}


def test_label_sets_have_their_probabilities(found: Predict, table: Path) -> None:
    expected = {bag: set_probability(MAPS[bag], {0, 1}) for bag in "ab"}
    expected["c"] = set_probability(MAPS["c"], set())
    assert found(table)["probability"].to_dict() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("c", "name"), enumerate(CLASSES))
def test_classes_have_their_presence(found: Predict, table: Path, c: int, name: str) -> None:
    expected = {bag: presence_of(probs, c) for bag, probs in MAPS.items()}
    assert found(table)[f"presence {name}"].to_dict() == pytest.approx(expected, rel=1e-6)


def test_the_strongest_position_of_each_class_is_listed(found: Predict, table: Path) -> None:
    listed = {}
    for bag, text in found(table, "--positions")["positions"].items():
        listed[bag] = [(one["class"], one["instance"]) for one in json.loads(text)]
    assert listed == {"a": [("cat", 0), ("dog", 1)], "b": [("cat", 1), ("dog", 1)], "c": []}


def test_a_strongest_position_has_its_probability(found: Predict, table: Path) -> None:
    dog = json.loads(found(table, "--positions")["positions"]["a"])[1]
    assert dog["probability"] == pytest.approx(MAPS["a"][1][1], rel=1e-6)


def test_every_position_has_its_probabilities_in_a_second_file(found: Predict, table: Path) -> None:
    found(table, "--positions")
    positions = pd.read_csv(table.parent / "found-positions.csv")
    assert positions["bag"].tolist() == ["a", "a", "b", "b", "c"]
    assert positions["instance"].tolist() == [0, 1, 0, 1, 0]
    probs = positions[["P(cat)", "P(dog)", "P(background)"]].to_numpy()
    np.testing.assert_allclose(probs, MAPS["a"] + MAPS["b"] + MAPS["c"], rtol=1e-6)


@pytest.fixture
def averaged(store: Root, known: str, found: Predict, table: Path) -> pd.DataFrame:
    """Return predictions averaged over two networks.

    One is the known network. The other gives 1/3 to each class and to background everywhere.
    """
    even = known_network()
    with torch.no_grad():
        even.head.weight.zero_()
    second = publish(store, replace(cell(), seed=1), even, threshold=-20.0, memory=MEMORY)
    return found(table, of=f"{known},{second[:9]}")


@pytest.mark.parametrize(("c", "name"), enumerate(CLASSES))
def test_the_presence_of_several_seeds_is_averaged(
    averaged: pd.DataFrame, c: int, name: str
) -> None:
    of_known = presence_of(MAPS["a"], c)
    # Bag a has two positions. The class is at neither of them with probability (2 / 3)^2.
    of_even = 1 - (2 / 3) ** 2
    found = averaged.loc["a", f"presence {name}"]
    assert found == pytest.approx((of_known + of_even) / 2, rel=1e-6)


def test_the_probability_of_several_seeds_is_averaged(averaged: pd.DataFrame) -> None:
    of_known = set_probability(MAPS["a"], {0, 1})
    of_even = set_probability([[1 / 3] * 3] * 2, {0, 1})
    found = averaged.loc["a", "probability"]
    assert found == pytest.approx((of_known + of_even) / 2, rel=1e-6)


def test_the_distance_to_the_threshold_is_averaged_over_seeds(averaged: pd.DataFrame) -> None:
    # In bag c, the known network has presence scores of -9 with a threshold of 0. The other network
    # has scores of 0 with a threshold of -20. On average scores are (-9 + 20) / 2 = 5.5 above the
    # threshold, though the known network alone names nothing.
    assert averaged["labels"].to_dict() == {"a": "cat;dog", "b": "cat;dog", "c": "cat;dog"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_inputs() -> None:
    """Write tables and arrays into the working directory; most of them are wrong in some way."""
    Path("empty").mkdir()
    np.save("a.npy", np.zeros((2, 2)))
    np.save("wide.npy", np.zeros((2, 3)))
    Path("damaged.npy").write_bytes(b"no array")
    Path("bags.csv").write_text("bags,f0,f1\na,1,2\n")
    Path("far.csv").write_text("bag,f0,f1\na,1,2\na,1e60,2\n")
    Path("mine.csv").write_text("bag,f0,f1\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        pytest.param(
            ["bags.csv"],
            "has no column 'bag' (the bag that an instance belongs to); did you mean 'bags'?",
            id="no bags",
        ),
        pytest.param(
            ["far.csv"], "bag 'a', instance 1 (from 0): a feature is not finite", id="infinite"
        ),
        pytest.param(["empty"], "the folder empty has no file .npy", id="empty folder"),
        pytest.param(
            ["wide.npy"],
            "bag 'wide.npy' has 3 features, expected the 2 that were trained on (f0, f1)",
            id="too many features",
        ),
        pytest.param(["a.npy", "a.npy"], "there are two bags 'a.npy'", id="twice"),
        pytest.param(
            ["damaged.npy", "a.npy", "--positions"],
            "1 of 2 files cannot be read: damaged.npy",
            id="damaged",
        ),
        pytest.param(
            ["mine.csv", "--out", "mine.csv"],
            "mine.csv is one of the inputs and would be overwritten",
            id="overwritten",
        ),
        pytest.param(
            ["mine.csv", "--invert"], "--invert is for pictures: mine.csv holds bags", id="invert"
        ),
    ],
)
def test_what_cannot_be_read_is_refused_and_nothing_is_written(
    store: Root, known: str, here: Path, milbench: Milbench, words: list[str], complaint: str
) -> None:
    write_inputs()
    ran = milbench("predict", "--cell", known, *words, "--root", str(store.path))
    assert complaint in ran.complaint()
    assert Path("mine.csv").read_text() == "bag,f0,f1\n"
    assert not (here / "predictions").exists()


@pytest.mark.usefixtures("here")
def test_a_cell_that_remembers_nothing_needs_its_data(store: Root, milbench: Milbench) -> None:
    write_inputs()
    of = publish(store, cell("exact"), known_network(), threshold=0.0)
    ran = milbench("predict", "bags.csv", "--cell", of, "--root", str(store.path))
    assert "needs data that its task does not remember: " in ran.complaint()


@pytest.mark.usefixtures("here")
def test_networks_of_two_losses_are_not_averaged(
    store: Root, known: str, milbench: Milbench
) -> None:
    write_inputs()
    other = publish(store, cell("exact"), known_network(), threshold=0.0, memory=MEMORY)
    ran = milbench("predict", "mine.csv", "--cell", f"{known},{other}", "--root", str(store.path))
    assert "differ in more than their seeds" in ran.complaint()


@pytest.fixture(scope="module")
def image_task() -> tuple[Task, BagFormat, Network]:
    """Return a task of images of 64x64 pixels, what it remembers of its bags, and a network."""
    task = load_task("image-bags", table="nowhere.csv", size=64)
    bag_format = task.format_from({"classes": ["red"], "inputs": 3})
    return task, bag_format, make_network(task, bag_format, "small", {}, seed=0)


@pytest.fixture(scope="module")
def two_images(
    image_task: tuple[Task, BagFormat, Network], tmp_path_factory: pytest.TempPathFactory
) -> NamedBags:
    """Return the bags that are read from two images.

    They are a green square of 100x100 pixels, and a red image of 200x100.
    """
    task, bag_format, network = image_task
    folder = tmp_path_factory.mktemp("shots")
    Image.new("RGB", (200, 100), (200, 0, 0)).save(folder / "wide.png")
    Image.new("RGB", (100, 100), (0, 200, 0)).save(folder / "even.jpg")
    (batch,) = task.read_bags([folder], bag_format, network)
    return batch


def test_images_of_a_folder_are_read_by_name(two_images: NamedBags) -> None:
    assert [Path(name).name for name in two_images.names] == ["even.jpg", "wide.png"]
    assert two_images.bags.instances.shape == (2, 3, 64, 64)


def test_images_keep_their_colours(two_images: NamedBags) -> None:
    # The second channel of the green square.
    green = two_images.bags.instances[0, 1]
    assert green.mean() == pytest.approx(200 / 255, abs=0.02)


def test_positions_are_given_in_pixels_of_the_original_image(
    image_task: tuple[Task, BagFormat, Network], two_images: NamedBags
) -> None:
    _, _, network = image_task
    centres: Any = network.position_centres(64, 64)
    rows, columns = centres
    middle = len(rows) // 2
    # Where the middle row and the first column of positions are, in pixels of the 64x64 image that
    # the network sees.
    y = float(rows[middle])
    x = float(columns[0])
    xs = two_images.places["x"][:, middle, 0].tolist()
    ys = two_images.places["y"][:, middle, 0].tolist()
    # The square was shrunk from 100x100 to 64x64 pixels.
    assert xs[0] == pytest.approx(x * 100 / 64)
    assert ys[0] == pytest.approx(y * 100 / 64)
    # The wide image was shrunk to 64x32 pixels, with a margin of 16 rows above and below.
    assert xs[1] == pytest.approx(x * 200 / 64)
    assert ys[1] == pytest.approx((y - 16) * 200 / 64)


def test_a_file_that_is_no_image_is_refused(
    image_task: tuple[Task, BagFormat, Network],
) -> None:
    task, bag_format, network = image_task
    with pytest.raises(UsageError, match="1 of 1 images cannot be read"):
        next(task.read_bags([LOSS], bag_format, network))


@dataclass
class Sequences:
    """A task with ten frames a second, and a network with a position for every two frames."""

    folder: Path
    task: Task
    bag_format: BagFormat
    network: Network

    def read(self, file: str) -> NamedBags:
        (batch,) = self.task.read_bags([self.folder / file], self.bag_format, self.network)
        return batch


MEAN = np.array([1.0, -1.0])
SPREAD = np.array([2.0, 4.0])


@pytest.fixture
def sequences(tmp_path: Path) -> Sequences:
    """Return a task and a folder with a table of two sequences, of 7 and of 4 frames."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.normal(size=(7, 2)).astype(np.float32))
    np.save(tmp_path / "b.npy", rng.normal(size=(4, 2)).astype(np.float32))
    (tmp_path / "new.tsv").write_text("file\nb.npy\na.npy\n")
    task = load_task("sequence-bags", table="nowhere.csv", frames_per_second=10)
    memory = {
        "classes": ["owl"],
        "inputs": 2,
        "kind": "frames of 2 features",
        "frames_per_second": 10.0,
        "mean": MEAN.tolist(),
        "spread": SPREAD.tolist(),
    }
    bag_format = task.format_from(memory)
    network = make_network(task, bag_format, "conv", {"stride": 2}, seed=0)
    return Sequences(tmp_path, task, bag_format, network)


def test_the_sequences_of_a_table_are_read_in_its_order(sequences: Sequences) -> None:
    batch = sequences.read("new.tsv")
    assert batch.name_column == "file"
    assert batch.names == ["b.npy", "a.npy"]
    assert batch.bags.mask is not None
    assert batch.bags.mask.sum(dim=1).tolist() == [4, 7]


@pytest.mark.parametrize(
    ("file", "number"),
    [pytest.param("new.tsv", 1, id="of a table"), pytest.param("a.npy", 0, id="alone")],
)
def test_sequences_are_standardised_as_in_training(
    sequences: Sequences, file: str, number: int
) -> None:
    frames = np.load(sequences.folder / "a.npy")
    read = sequences.read(file).bags.instances[number]
    np.testing.assert_allclose(read, ((frames - MEAN) / SPREAD).T, rtol=1e-5)


def test_positions_of_sequences_are_given_in_seconds(sequences: Sequences) -> None:
    times = sequences.read("new.tsv").places
    assert times["start"][1].tolist() == pytest.approx([0, 0.2, 0.4, 0.6])
    # The sequence has seven frames, so the last position has one frame instead of two.
    assert times["end"][1].tolist() == pytest.approx([0.2, 0.4, 0.6, 0.7])


def test_sequences_of_other_features_are_refused(sequences: Sequences) -> None:
    np.save(sequences.folder / "c.npy", np.zeros((3, 5)))
    with pytest.raises(
        UsageError, match="frames of 5 features, expected frames of 2 features as in training"
    ):
        sequences.read("c.npy")


@dataclass
class Saved:
    """A saved model, and the predictions of its cell for the table."""

    model: Any
    expected: pd.DataFrame


@dataclass
class PlugIn:
    """A file with a loss, and a package that it imports."""

    file: Path
    package: Path

    def cell(self) -> Cell:
        """Return a cell with this loss in its present version."""
        digest = losses().entry(resolve(losses(), str(self.file))).record.digest
        one = cell("my-loss", str(self.file))
        return replace(one, loss=replace(one.loss, revision=f"1 {digest}"))

    def remove(self) -> None:
        """Remove the files, and forget what was imported from them."""
        self.file.unlink()
        shutil.rmtree(self.package)
        for name in ("own_helpers.scale", "own_helpers"):
            del sys.modules[name]


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlugIn:
    package = tmp_path / "lib" / "own_helpers"
    package.mkdir(parents=True)
    (package / "scale.py").write_text("SCALE = 1.0\n")
    monkeypatch.syspath_prepend(package.parent)
    file = tmp_path / "mine.py"
    file.write_text(f"{Path(LOSS).read_text()}\nfrom own_helpers.scale import SCALE\n")
    return PlugIn(file, package)


@pytest.fixture
def saved(store: Root, tmp_path: Path, found: Predict, table: Path, plug_in: PlugIn) -> Saved:
    """Save a model of a plug-in's loss, remove the plug-in and its imports, and load the model."""
    import mlflow.pyfunc

    gallery = galleries.make(
        kind="set",
        instances=np.zeros((2, 3, 2)),
        labels=np.zeros((2, 2)),
        presence=np.zeros((2, 2)),
        probs=np.full((2, 3, 3), 1 / 3),
        class_names=CLASSES,
        mask=np.array([[True, False, False], [True, True, True]]),
    )
    cell_id = publish(
        store, plug_in.cell(), known_network(), threshold=0.0, memory=MEMORY, gallery=gallery
    )
    by_the_cell = found(table, of=cell_id).drop(columns=["log_probability", "positions"])
    folder = store.cell(cell_id)
    write_model(tmp_path / "saved", folder, folder.cell(), folder.result())

    plug_in.remove()
    model = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    return Saved(model, by_the_cell.reset_index(drop=True))


def test_a_saved_model_needs_nothing_that_it_was_made_of(saved: Saved) -> None:
    bags_a_and_b = np.array([[[9, 2], [-4, 9]], [[1, 2], [1.5, 3]]], np.float32)
    found = saved.model.predict(bags_a_and_b)
    pd.testing.assert_frame_equal(found, saved.expected.head(2), check_dtype=False)
    # A prediction for no bags has the same columns.
    assert list(saved.model.predict(bags_a_and_b[:0]).columns) == list(saved.expected.columns)
    # By its signature, the model takes any number of bags of any number of instances, which have
    # two features.
    takes = saved.model.metadata.signature.inputs.to_dict()[0]["tensor-spec"]
    assert takes == {"dtype": "float32", "shape": (-1, -1, 2)}
    # The first bag of the gallery, which has one instance, is the example.
    assert saved.model.input_example.shape == (1, 1, 2)
