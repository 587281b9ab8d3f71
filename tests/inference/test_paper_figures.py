import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image

from milbench._utils.pictures import RIGHT, WRONG
from milbench._utils.seeding import generator
from milbench.api.registry import tasks
from milbench.data.digit_struct import read
from milbench.engine.folders import Root
from milbench.families.nested_digits import NestedDigits
from milbench.families.street_numbers import StreetNumbers
from milbench.inference.load import load_trained
from milbench.inference.paper_figures import draw_figure
from milbench.inference.predict import predict
from tests._helpers.command_line import Milbench
from tests._helpers.handmade import cell, network_of, publish

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    root = Root(tmp_path_factory.mktemp("figures"))
    digits = publish(root, cell("extended-digits"), network_of("extended-digits"))
    numbers = publish(root, cell("svhn", contrast="raw", validation=10), network_of("svhn"))
    return root.path, digits, numbers


def shown(figure: Figure) -> list[tuple[NDArray[Any], str, object]]:
    """Return the pictures of a figure with the text above each and its colour."""
    pictures = [part.axes[0] for part in figure.subfigs if part.axes]
    above = [
        next(t for t in axes.findobj(Text) if t.get_text() == axes.get_title("left"))
        for axes in pictures
    ]
    pixels = [np.asarray(axes.get_images()[0].get_array()) for axes in pictures]
    return [
        (image, text.get_text(), text.get_color())
        for image, text in zip(pixels, above, strict=True)
    ]


def test_figure_1_shows_test_crops_and_the_class_at_every_position(
    where: tuple[Path, str, str], street_data: Path
) -> None:
    root, _, numbers = where
    model = load_trained(Root(root).find(numbers), CPU)
    figure, notes = draw_figure("1", model, 5, street_data)
    assert "note: these are other data than the cell's" in notes[0]
    task = tasks().create("svhn", {"validation": 10})
    assert isinstance(task, StreetNumbers)
    task.prepare(street_data, CPU)
    crops = task.figure_bags(generator("figure", "1", 5))[0].instances
    expected = [(crop * 256).byte().permute(1, 2, 0).numpy() for crop in crops]
    assert all(
        np.array_equal(pixels, crop)
        for (pixels, *_), crop in zip(shown(figure), expected, strict=True)
    )
    for part, crop in zip(figure.subfigs, crops, strict=True):
        found = predict(model, crop)
        classes = found.probs.argmax(dim=0)
        ys, xs = found.centres
        seen = classes[classes < 10].unique().tolist()
        for letters, c in zip(part.axes[1].collections, seen, strict=True):
            rows, columns = (classes == c).nonzero(as_tuple=True)
            assert np.array_equal(
                letters.get_offsets(), torch.stack([xs[columns], ys[rows]], dim=1)
            )


def test_figure_4_shows_whole_pictures_with_what_is_read_in_them(
    milbench: Milbench, where: tuple[Path, str, str], street_data: Path, tmp_path: Path
) -> None:
    root, _, numbers = where
    common = ("--cell", numbers, "--root", str(root), "--device", "cpu")
    out = tmp_path / "deep" / "4.png"
    words = (
        "figure",
        "4",
        *common,
        "--seed",
        "3",
        "--data-dir",
        str(street_data),
        "--out",
        str(out),
    )
    assert f"wrote {out}\nnext: open {out}" in milbench(*words).done()
    assert Image.open(out).format == "PNG"
    folder = street_data / "svhn" / "test"
    records = read(folder / "digitStruct.mat")
    drawn = [
        records[n]
        for n in torch.randperm(len(records), generator=generator("figure", "4", 3))[:8].tolist()
    ]
    files = [str(folder / record.name) for record in drawn]
    assert milbench("predict", *files, *common, "--out", str(tmp_path / "p")).code == 0
    figure, _ = draw_figure("4", load_trained(Root(root).find(numbers), CPU), 3, street_data)
    for record, (pixels, above, colour) in zip(drawn, shown(figure), strict=True):
        assert np.array_equal(pixels, np.asarray(Image.open(folder / record.name).convert("RGB")))
        found = json.loads((tmp_path / "p" / record.name).with_suffix(".json").read_text())[
            "reading"
        ]
        truth = "".join(map(str, record.classes))
        assert above == (f"{found}  ✓" if found == truth else f"{found or 'nothing'}  ✗ {truth}")
        assert colour == (RIGHT if found == truth else WRONG)


def test_figure_2_shows_test_digits_that_do_not_overlap(
    milbench: Milbench, where: tuple[Path, str, str], tmp_path: Path
) -> None:
    root, digits, _ = where
    out = tmp_path / "2.png"
    assert (
        milbench("figure", "2", "--cell", digits, "--root", str(root), "--out", str(out)).code == 0
    )
    assert Image.open(out).format == "PNG"
    task = tasks().create("extended-digits", {})
    assert isinstance(task, NestedDigits)
    task.prepare(None, CPU)
    bags = task.test_canvas(3.0, 4.0, 5, torch.Generator().manual_seed(1))
    assert bags.instances.shape == (1, 1, 24, 32)
    assert bags.truth is not None
    assert bags.truth.boxes is not None
    boxes, test = (
        bags.truth.boxes[0].int().tolist(),
        [b.instances for b in task.eval_splits["test"].single_instance],
    )
    everything = torch.cat(test)[:, 0]
    for left, top, right, bottom in boxes:
        patch = bags.instances[0, 0, top:bottom, left:right]
        assert (everything == patch).flatten(1).all(dim=1).any(), "a test digit, whole"
