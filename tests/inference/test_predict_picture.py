"""`milbench predict` on pictures, with handmade networks whose logits are known."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from numpy.typing import NDArray
from PIL import Image

from milbench import AllConvolutional, Layer, load_loss, load_task
from milbench._utils import images
from milbench._utils.palette import CLASS_COLOURS
from milbench._utils.pictures import STRENGTH
from milbench.evaluation.reading.component_decoder import ComponentDecoder
from milbench.evaluation.reading.reader import Reader
from milbench.experiment.cell import Cell
from milbench.inference.overlay import prediction_figure, sensitivity_figure
from milbench.inference.predict_picture import read_picture, sensitivity
from milbench.inference.trained import load_trained
from milbench.likelihood import bag_log_prob, best_label_set, presence_log_prob
from milbench.store.cell_folder import CellFolder
from milbench.store.folders import Root
from tests._helpers.command_line import Milbench, Ran
from tests._helpers.handmade import LOGITS, cell, network_of, publish
from tests._helpers.small_data import bomb
from tests._helpers.tasks import new_network

DECODER = ComponentDecoder(
    mass=6.0, apart=0.0, tilt=2.0, reach=(8.0, 5.0, *[8.0] * 8), margin=(4.0, 2.0)
)
"""A decoder for which a one is at most five positions (ten pixels) wide.

It drops components with a mass below six positions as specks.
"""


@dataclass(frozen=True)
class Cells:
    """The ids of cells in a store."""

    root: Path
    digits: str
    """Digits on grey pictures, without a threshold."""
    strict: str
    """Digits on grey pictures, with a threshold that no score reaches."""
    numbers: str
    """House numbers in colours, without a decoder."""
    decoder: str
    """House numbers, with a decoder for components."""
    strongest: str
    """House numbers, with the decoder for strongest positions and a threshold."""
    sets: str
    """Bags that are no pictures."""
    failed: str
    """Digits on grey pictures; the cell failed, so it has no network."""


def number_cell(seed: int) -> Cell:
    return cell("svhn", seed=seed, contrast="raw")


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Cells:
    root = Root(tmp_path_factory.mktemp("cells"))
    digits = network_of("extended-digits")
    numbers = network_of("svhn")
    no_pictures = torch.nn.Linear(1, 1)
    by_components = Reader(learnt=DECODER)
    by_strongest = Reader(learnt=DECODER, decoder="strongest")
    often_wrong = {"test/set_error": 0.84}

    # Seeds have no other use here than to tell cells of one task apart.
    of_digits = publish(root, cell("extended-digits"), digits)
    of_failed = publish(root, cell("extended-digits", seed=1), None)
    of_strict = publish(
        root, cell("extended-digits", seed=5000), digits, threshold=100.0, metrics=often_wrong
    )
    of_numbers = publish(root, number_cell(seed=0), numbers)
    of_decoder = publish(root, number_cell(seed=1), numbers, decoder=by_components)
    of_strongest = publish(root, number_cell(seed=3), numbers, threshold=0.0, decoder=by_strongest)
    of_sets = publish(root, cell("synthetic-bags"), no_pictures)
    return Cells(
        root=root.path,
        digits=of_digits,
        strict=of_strict,
        numbers=of_numbers,
        decoder=of_decoder,
        strongest=of_strongest,
        sets=of_sets,
        failed=of_failed,
    )


@pytest.fixture
def predict(
    milbench: Milbench, cells: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Milbench:
    """Return a function that runs `milbench predict`.

    The working directory has the pictures two.png and house.png.
    """
    monkeypatch.chdir(tmp_path)
    Image.fromarray(squares()).save("two.png")
    Image.fromarray(house_number()).save("house.png")

    def call(*words: str | Path, of: str = cells.digits) -> Ran:
        return milbench(
            "predict", *map(str, words), "--cell", of, "--root", str(cells.root), "--device", "cpu"
        )

    return call


def squares() -> NDArray[np.uint8]:
    """Return a picture of 40x24 pixels: a three and, to its lower right, a seven on black.

    Digits are squares of 6x6 pixels for the handmade network, which tells them by their brightness.
    """
    pixels = np.zeros((24, 40), np.uint8)
    pixels[4:10, 6:12] = 255
    pixels[14:20, 26:32] = 128
    return pixels


def house_number() -> NDArray[np.uint8]:
    """Return a picture of two ones in red, a nine in blue and a two in green."""
    picture = np.zeros((30, 70, 3), np.uint8)
    for left, channel in ((8, RED), (22, RED), (36, BLUE), (52, GREEN)):
        draw_rectangle(picture, channel, left=left, top=8, width=8, height=14)
    return picture


RED = 0
GREEN = 1
BLUE = 2


def draw_rectangle(
    picture: NDArray[np.uint8], channel: int, *, left: int, top: int, width: int, height: int
) -> None:
    picture[top : top + height, left : left + width, channel] = 255


def known_probs(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return the probabilities (C+1, h, w) of the handmade network.

    Position (i, j) depends on the pixel (2 i + 2, 2 j + 2) only.
    """
    values = torch.from_numpy(pixels[2:-2:2, 2:-2:2] / 255).double()
    logits = torch.full((11, *values.shape), -100.0, dtype=torch.float64)
    logits[10] = 0
    for cls, (slope, offset) in LOGITS.items():
        logits[cls] = slope * values + offset
    return logits.softmax(dim=0)


def read(name: str, folder: str = "predictions") -> dict[str, Any]:
    """Return the content of the JSON file about a picture."""
    about: dict[str, Any] = json.loads(Path(folder, f"{name}.json").read_text())
    return about


@pytest.fixture
def two(predict: Milbench) -> dict[str, Any]:
    """Return the content of the file about two.png, with all positions."""
    predict("two.png", "--positions").done()
    return read("two")


LOG_PROBS = known_probs(squares()).log().unsqueeze(0)
"""The log-probabilities of the picture with a three and a seven, (1, C+1, h, w)."""


def test_the_reading_and_the_label_set_are_printed(predict: Milbench) -> None:
    said = predict("two.png").done()
    assert "37 (components)" in said
    assert "{3, 7}" in said


def test_a_picture_is_described_with_its_size_and_cell(two: dict[str, Any], cells: Cells) -> None:
    assert two["cell"] == cells.digits
    assert two["size"] == [40, 24]
    assert two["seen"] == [40, 24]


def test_every_position_has_its_probabilities(two: dict[str, Any]) -> None:
    shown = torch.tensor(two["positions"]["probabilities"]).double()
    assert torch.allclose(shown, known_probs(squares()), atol=1e-6)
    assert two["positions"]["y"][:2] == [2.5, 4.5]


def test_the_label_set_is_the_most_probable_one(two: dict[str, Any]) -> None:
    labels, log_prob = best_label_set(LOG_PROBS)
    assert two["label_set"] == [str(c) for c in labels[0].nonzero().flatten().tolist()]
    assert two["label_set_probability"] == pytest.approx(float(log_prob.exp()), rel=1e-4)


def test_every_class_has_its_presence(two: dict[str, Any]) -> None:
    presence = presence_log_prob(LOG_PROBS)[0].exp()
    assert list(two["presence"].values()) == pytest.approx(presence.tolist(), abs=1e-6)


BOX_OF_3 = [5.5, 3.5, 11.5, 9.5]
BOX_OF_7 = [25.5, 13.5, 31.5, 19.5]
"""Left, top, right and bottom of the boxes of both digits.

The three has the rows 4 to 9 and the columns 6 to 11. Its positions depend on the rows 4, 6 and 8
and the columns 6, 8 and 10, so they reach from 3.5 to 9.5 and from 5.5 to 11.5.
"""


def test_detections_have_boxes(two: dict[str, Any]) -> None:
    boxes = {one["class"]: one["box"] for one in two["detections"]}
    assert boxes == {"3": BOX_OF_3, "7": BOX_OF_7}


def note_in(said: str) -> str:
    """Return the only line with a note."""
    (note,) = [line for line in said.splitlines() if "note:" in line]
    return note


def test_the_threshold_decides_the_label_set(predict: Milbench, cells: Cells) -> None:
    # The log-odds of both digits are near 90, and the threshold is 100.
    predict("two.png", of=cells.strict).done()
    about = read("two")
    assert about["label_set_rule"] == "presence threshold of the cell"
    assert about["label_set"] == []
    assert about["reading"] == ""
    nothing = torch.zeros(1, 10, dtype=torch.bool)
    expected = float(bag_log_prob(LOG_PROBS, nothing))
    assert about["label_set_log_probability"] == pytest.approx(expected, rel=1e-4)


def test_a_note_says_how_often_a_cell_errs(predict: Milbench, cells: Cells) -> None:
    said = predict("two.png", of=cells.strict).done()
    assert note_in(said) == (
        f"note: cell {cells.strict} found 84 % of the label sets of its own test bags wrong"
    )


def test_without_a_threshold_the_most_probable_set_is_taken(
    predict: Milbench, cells: Cells
) -> None:
    said = predict("two.png").done()
    assert f"note: cell {cells.digits} has no threshold on presence scores" in note_in(said)
    assert read("two")["label_set"] == ["3", "7"]
    assert read("two")["label_set_rule"] == "most probable"


def test_a_cell_reads_by_the_decoder_chosen_for_it(predict: Milbench, cells: Cells) -> None:
    predict("house.png", of=cells.strongest).done()
    about = read("house")
    assert about["decoder"] == "strongest"
    # This decoder reads each class once, so the second of two ones is not read.
    assert about["reading"] == "192"
    assert [one["class"] for one in about["read_from"]] == ["1", "2", "9"]


@pytest.mark.parametrize(
    ("decoder", "of", "reading"),
    [
        pytest.param("columns", "strongest", "1192", id="columns in place of strongest"),
        pytest.param("strongest", "numbers", "192", id="strongest where none was learnt"),
    ],
)
def test_a_decoder_may_be_named(
    predict: Milbench, cells: Cells, decoder: str, of: str, reading: str
) -> None:
    predict("house.png", "--decoder", decoder, of=getattr(cells, of)).done()
    assert read("house")["reading"] == reading


@pytest.mark.parametrize("name", ["two", "two-sensitivity"])
def test_pictures_are_drawn_as_png(predict: Milbench, name: str) -> None:
    predict("two.png", "--sensitivity").done()
    assert Image.open(f"predictions/{name}.png").format == "PNG"


@pytest.fixture(scope="module")
def drawn(cells: Cells) -> tuple[Any, Any]:
    """Return two matplotlib axes: with positions, and with the pixels that these depend on."""
    model = load_trained(Root(cells.root).find(cells.digits), torch.device("cpu"))
    picture, found = read_picture(model, Image.fromarray(squares()))
    (positions,) = prediction_figure(model, picture, found).axes
    (pixels,) = sensitivity_figure(model, picture, found).axes
    return positions, pixels


@pytest.mark.parametrize("number", [0, 1], ids=["positions", "pixels"])
def test_classes_are_named_where_they_are(drawn: tuple[Any, Any], number: int) -> None:
    names = {text.get_text(): tuple(text.get_position()) for text in drawn[number].texts}
    assert names == {"3": pytest.approx((8.5, 6.5)), "7": pytest.approx((28.5, 16.5))}


def test_positions_lie_over_the_picture(drawn: tuple[Any, Any]) -> None:
    below, above = drawn[0].get_images()
    assert tuple(below.get_extent()) == (0, 40, 24, 0)
    # The centre of position (i, j) is the centre of pixel (2 i + 2, 2 j + 2).
    assert tuple(above.get_extent()) == (1.5, 37.5, 21.5, 1.5)


CORNERS = [(3, 4, 6), (7, 14, 26)]
"""Class, top and left of the two digits, which have 6x6 pixels or 3x3 positions."""


def colour_of(cls: int) -> tuple[float, ...]:
    return (*to_rgb(CLASS_COLOURS[cls]), STRENGTH)


def test_positions_have_the_colour_of_their_class(drawn: tuple[Any, Any]) -> None:
    expected = np.zeros((10, 18, 4))
    for cls, top, left in CORNERS:
        row = top // 2 - 1
        column = left // 2 - 1
        expected[row : row + 3, column : column + 3] = colour_of(cls)
    _, above = drawn[0].get_images()
    np.testing.assert_allclose(np.array(above.get_array()), expected, atol=1e-4)


def test_pixels_have_the_colour_of_their_class(drawn: tuple[Any, Any]) -> None:
    # The network depends on pixels of even rows and columns only, and within a digit equally on all
    # of these pixels.
    expected = np.zeros((24, 40, 4))
    for cls, top, left in CORNERS:
        expected[top : top + 6 : 2, left : left + 6 : 2] = colour_of(cls)
    _, above = drawn[1].get_images()
    shown = np.array(above.get_array())
    shown[shown[..., 3] == 0] = 0
    np.testing.assert_allclose(shown, expected, atol=1e-6)


def steep_number() -> NDArray[np.uint8]:
    """Return a picture of two ones that touch, a nine to their lower right, and a speck.

    The way down to the nine is less steep than the decoder's tilt.
    """
    picture = np.zeros((60, 90, 3), np.uint8)
    draw_rectangle(picture, RED, left=12, top=10, width=18, height=10)
    draw_rectangle(picture, BLUE, left=42, top=44, width=10, height=8)
    draw_rectangle(picture, GREEN, left=70, top=20, width=4, height=4)
    return picture


def test_a_cell_reads_by_what_its_decoder_has_learnt(predict: Milbench, cells: Cells) -> None:
    Image.fromarray(steep_number()).save("house.png")
    predict("house.png", of=cells.decoder).done()
    about = read("house")
    assert about["decoder"] == "components"
    assert about["reading"] == "119"


def test_components_that_are_read_are_listed_with_their_middles(
    predict: Milbench, cells: Cells
) -> None:
    Image.fromarray(steep_number()).save("house.png")
    predict("house.png", of=cells.decoder).done()
    listed = read("house")["read_from"]
    # The speck, a two, is left out.
    assert [one["class"] for one in listed] == ["1", "9"]
    middles = np.array([(one["x"], one["y"]) for one in listed])
    middle_of_ones = (12 + 18 / 2, 10 + 10 / 2)
    middle_of_nine = (42 + 10 / 2, 44 + 8 / 2)
    assert np.abs(middles - [middle_of_ones, middle_of_nine]).max() <= 1


def boxes_of_ones(folder: str) -> NDArray[Any]:
    detections = read("house", folder)["detections"]
    return np.array([one["box"] for one in detections if one["class"] == "1"])


def test_boxes_have_the_margin_that_the_decoder_has_learnt(predict: Milbench, cells: Cells) -> None:
    Image.fromarray(steep_number()).save("house.png")
    predict("house.png", "--out", "bare", of=cells.numbers).done()
    predict("house.png", "--out", "wider", of=cells.decoder).done()
    bare = boxes_of_ones("bare")
    wider = boxes_of_ones("wider")
    assert len(bare) > 0
    # The margin of DECODER is 4 pixels to the left and right, and 2 above and below.
    assert np.array_equal(wider, bare + np.array([-4, -2, 4, 2]))


def test_the_margin_of_a_box_ends_with_the_picture(predict: Milbench, cells: Cells) -> None:
    picture = steep_number()
    draw_rectangle(picture, RED, left=0, top=0, width=10, height=12)
    Image.fromarray(picture).save("corner.png")
    predict("corner.png", of=cells.decoder).done()
    assert min(one["box"][0] for one in read("corner")["detections"]) == 0


def save_grey(file: str) -> None:
    Image.fromarray(squares()).save(file)


def save_webp(file: str) -> None:
    Image.fromarray(squares()).convert("RGB").save(file, lossless=True)


def save_moving(file: str) -> None:
    first = Image.fromarray(squares()).convert("P")
    others = [Image.new("P", first.size)] * 2
    first.save(file, save_all=True, append_images=others)


def save_with_a_hole(file: str) -> None:
    # The pixels of the three are transparent. Viewers show them on white.
    picture = Image.fromarray(squares()).convert("RGBA")
    picture.paste((255, 255, 255, 0), (6, 4, 12, 10))
    picture.save(file)


def save_turned(file: str) -> None:
    orientation = 0x0112
    exif = Image.Exif()
    # The picture is stored turned, and orientation 6 tells viewers to turn it back.
    exif[orientation] = 6
    Image.fromarray(squares()).transpose(Image.Transpose.ROTATE_90).save(file, exif=exif)


@pytest.mark.parametrize(
    ("file", "save"),
    [
        pytest.param("grey.png", save_grey, id="grey PNG"),
        pytest.param("rgb.webp", save_webp, id="WebP in colours"),
        pytest.param("moving.gif", save_moving, id="moving GIF"),
        pytest.param("rgba.png", save_with_a_hole, id="PNG with a hole"),
        pytest.param("turned.tif", save_turned, id="turned TIFF"),
        pytest.param("turned_too.png", save_turned, id="turned PNG"),
    ],
)
def test_every_kind_of_picture_is_read_as_it_is_shown(
    predict: Milbench, file: str, save: Callable[[str], None]
) -> None:
    save(file)
    predict(file).done()
    about = read(Path(file).stem)
    assert about["size"] == [40, 24]
    assert about["reading"] == "37"
    assert [one["box"] for one in about["detections"]] == [BOX_OF_3, BOX_OF_7]


def test_a_picture_for_print_is_read(predict: Milbench) -> None:
    printed = Image.fromarray(squares()).convert("RGB").convert("CMYK")
    printed.save("printed.jpg", quality=100, subsampling=0)
    predict("printed.jpg").done()
    assert read("printed")["reading"] == "37"


def test_a_dark_picture_on_white_is_inverted_on_request(predict: Milbench) -> None:
    Image.fromarray(255 - squares()).save("inverted.png")
    predict("inverted.png", "--invert").done()
    assert read("inverted")["reading"] == "37"


def save_white(file: str, width: int, height: int) -> None:
    """Save a picture that the network takes for a three all over."""
    Image.new("L", (width, height), 255).save(file)


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(("width", "height"), [(5, 5), (41, 7), (9, 333)])
def test_small_and_long_pictures_are_read_and_drawn(
    predict: Milbench, width: int, height: int
) -> None:
    # Matplotlib would warn if a caption left no room for its picture.
    save_white("white.png", width, height)
    predict("white.png").done()
    assert read("white")["reading"] == "3"


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_strip_of_two_hundred_digits_is_read(predict: Milbench) -> None:
    Image.fromarray(np.tile(squares()[:13], 200)).save("strip.png")
    predict("strip.png").done()
    assert read("strip")["reading"] == 200 * "3"


def test_a_picture_too_small_for_the_network_is_refused(predict: Milbench) -> None:
    save_white("enough.png", 5, 5)
    save_white("thin.png", 4, 30)
    complaint = predict("enough.png", "thin.png", "--out", "no").complaint()
    assert "thin.png: 4x30 pixels: the network of extended-digits needs at least 5x5" in complaint
    assert not Path("no").exists()


def test_a_large_picture_is_made_smaller_and_boxes_are_not(
    predict: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `bounded` limits the number of pixels that are read. Its callers use the default of the
    # argument `pixels`, which is lowered for this test.
    monkeypatch.setattr(images.bounded, "__defaults__", (2400,))
    ten_times = Image.fromarray(squares()).resize((400, 240), Image.Resampling.NEAREST)
    ten_times.save("large.png")
    predict("large.png").done()
    about = read("large")
    assert about["size"] == [400, 240]
    assert 2300 < math.prod(about["seen"]) <= 2400
    box = np.array(about["detections"][0]["box"])
    # The three is a square of 60x60 pixels. In the smaller picture positions are two pixels apart,
    # so the box is less precise.
    assert np.abs(box - [60, 40, 120, 100]).max() < 25


@pytest.fixture
def restored(cells: Cells) -> Iterator[Callable[[str], CellFolder]]:
    """Return a function that gives the folder of a cell; its files are restored after the test."""
    before: dict[Path, bytes] = {}
    opened: list[CellFolder] = []

    def folder_of(cell_id: str) -> CellFolder:
        folder = Root(cells.root).cell(cell_id)
        for path in (folder.decoder, folder.weights):
            if path.exists():
                before[path] = path.read_bytes()
        opened.append(folder)
        return folder

    yield folder_of
    for path, content in before.items():
        path.write_bytes(content)
    for folder in opened:
        folder.finish(folder.result())


Restored = Callable[[str], CellFolder]


@pytest.mark.parametrize(
    ("written", "changed", "complaint"),
    [
        pytest.param(
            "components/2",
            "components/1",
            "decoder.json: format = 'components/1' is wrong",
            id="another format",
        ),
        pytest.param(
            '"mass": 6.0',
            '"mass": -1.0',
            "decoder.json: learnt.mass = -1.0 is wrong",
            id="a value that is wrong",
        ),
        pytest.param('"components/2"', "null", "decoder.json cannot be read", id="no format"),
    ],
)
def test_a_decoder_that_is_wrong_is_refused(
    predict: Milbench, cells: Cells, restored: Restored, written: str, changed: str, complaint: str
) -> None:
    folder = restored(cells.decoder)
    text = folder.decoder.read_text()
    assert written in text
    folder.decoder.write_text(text.replace(written, changed))
    # A finished cell has digests of its files. They are computed again here, so that the change is
    # not taken for damage.
    folder.finish(folder.result())
    assert complaint in predict("two.png", of=cells.decoder).complaint()


def test_weights_that_are_cut_off_are_refused(
    predict: Milbench, cells: Cells, restored: Restored
) -> None:
    folder = restored(cells.digits)
    folder.weights.write_bytes(folder.weights.read_bytes()[:-100])
    complaint = predict("two.png", of=cells.digits).complaint()
    assert "is damaged: weights.safetensors" in complaint


def test_a_picture_is_read_by_one_cell(predict: Milbench, cells: Cells) -> None:
    complaint = predict("two.png", of=f"{cells.digits}, {cells.strict}").complaint()
    assert "extended-digits has pictures, expected one cell" in complaint


def test_a_task_that_reads_no_files_is_told_what_it_needs(predict: Milbench, cells: Cells) -> None:
    sets = cell("synthetic-bags", seed=1)
    network = new_network(load_task("synthetic-bags"))
    reference = publish(Root(cells.root), sets, network)
    complaint = predict("two.png", of=reference).complaint()
    assert "synthetic-bags reads neither pictures nor other bags" in complaint
    assert "needs a method read_bags, or instances_from for pictures" in complaint


def test_weights_of_another_network_are_refused(predict: Milbench, cells: Cells) -> None:
    assert "do not fit its network" in predict("two.png", of=cells.sets).complaint()


@pytest.mark.parametrize(
    ("scale", "seen"),
    [
        pytest.param("2.5", [175, 75], id="larger"),
        pytest.param("0.5", [35, 15], id="smaller"),
        pytest.param("1", [70, 30], id="as it is"),
    ],
)
def test_a_picture_is_read_at_the_scale_that_is_given(
    predict: Milbench, cells: Cells, scale: str, seen: list[int]
) -> None:
    predict("house.png", "--scale", scale, of=cells.numbers).done()
    about = read("house")
    assert about["size"] == [70, 30]
    assert about["seen"] == seen
    assert about["label_set"] == ["1", "2", "9"]
    # Boxes are in pixels of the picture as it is, whatever the scale was.
    left = sorted(one["box"][0] for one in about["detections"])
    assert np.abs(np.array(left) - [8, 22, 36, 52]).max() < 4


@pytest.mark.parametrize("scale", ["-1", "nan", "1e9"])
def test_a_scale_out_of_range_is_refused(predict: Milbench, scale: str) -> None:
    complaint = predict("house.png", f"--scale={scale}", "--out", "no").complaint()
    assert "expected a number from 0.001 to 1000" in complaint
    assert not Path("no").exists()


def test_a_picture_that_scale_makes_too_small_is_refused(predict: Milbench) -> None:
    complaint = predict("house.png", "--scale", "0.01", "--out", "no").complaint()
    assert "house.png: 1x1 pixels" in complaint
    assert not Path("no").exists()


def half_a_picture() -> bytes:
    save_grey("whole.png")
    content = Path("whole.png").read_bytes()
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        pytest.param("cut.png", half_a_picture, "cut.png cannot be read as an image", id="cut off"),
        pytest.param(
            "text.jpg",
            lambda: b"no picture",
            "text.jpg cannot be read as an image: unknown or damaged format",
            id="no picture",
        ),
        pytest.param(
            "bomb.png",
            lambda: bomb(60_000),
            "bomb.png has more than 100,000,000 pixels",
            id="a bomb",
        ),
        pytest.param(
            "large.png",
            lambda: bomb(10_500),
            "large.png has more than 100,000,000 pixels",
            id="too large",
        ),
    ],
)
def test_nothing_is_written_where_one_picture_is_bad(
    predict: Milbench, name: str, content: Callable[[], bytes], complaint: str
) -> None:
    Path(name).write_bytes(content())
    assert complaint in predict("two.png", name).complaint()
    assert not Path("predictions").exists()


def test_a_folder_instead_of_a_picture_is_named(predict: Milbench) -> None:
    Path("folder.png").mkdir()
    assert "folder.png is a folder" in predict("two.png", "folder.png").complaint()
    assert not Path("predictions").exists()


def test_a_picture_that_is_missing_is_named(predict: Milbench) -> None:
    assert "absent.png is not there" in predict("two.png", "absent.png").complaint()
    assert not Path("predictions").exists()


def test_a_picture_is_not_overwritten(predict: Milbench) -> None:
    before = Path("two.png").read_bytes()
    assert "two.png is one of the inputs" in predict("two.png", "--out", ".").complaint()
    assert Path("two.png").read_bytes() == before


def test_a_folder_for_predictions_that_cannot_be_made_is_named(predict: Milbench) -> None:
    Path("text.jpg").write_bytes(b"no folder")
    complaint = predict("two.png", "--out", "text.jpg/deep").complaint()
    assert "Not a directory: text.jpg/deep" in complaint


def test_a_cell_is_named_by_the_beginning_of_its_id(predict: Milbench, cells: Cells) -> None:
    predict("two.png", of=cells.digits[:12]).done()
    assert read("two")["cell"] == cells.digits


def test_a_cell_that_failed_reads_nothing(predict: Milbench, cells: Cells) -> None:
    complaint = predict("two.png", of=cells.failed).complaint()
    assert "is not done (failed: ValueError: it broke)" in complaint


def test_a_task_without_pictures_says_so() -> None:
    with pytest.raises(ValueError, match="synthetic-bags has no pictures"):
        load_task("synthetic-bags").instances_from(Image.new("L", (30, 30)))


def test_sensitivity_agrees_with_finite_differences() -> None:
    network = AllConvolutional((Layer(4, 3, 2, 1), Layer(3, 3)), 2, seed=0).double()
    # The map of the loss `exact` is the softmax of the logits.
    loss = load_loss("exact")
    image = torch.randn(2, 8, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shape: Any = network.output_shape(8, 9)
    positions = torch.zeros(shape, dtype=torch.bool)
    positions[0, 1] = True
    positions[1, 2] = True

    def log_p(pixels: torch.Tensor) -> float:
        """Return the log-probability that both positions show class 1."""
        with torch.no_grad():
            p = network(pixels.unsqueeze(0)).softmax(dim=1)[0, 1]
        return math.log(p[0, 1]) + math.log(p[1, 2])

    # `sensitivity` must compute gradients even if its caller has switched them off.
    with torch.no_grad():
        found = sensitivity(network, loss, image, 1, positions)
    channels, height, width = image.shape
    size = 1e-5
    expected = torch.zeros(height, width, dtype=torch.float64)
    for channel, y, x in itertools.product(range(channels), range(height), range(width)):
        step = torch.zeros_like(image)
        step[channel, y, x] = size
        difference = log_p(image + step) - log_p(image - step)
        # The sensitivity of a pixel is summed over its channels.
        expected[y, x] += abs(difference) / (2 * size)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-8)
    assert (found > 0).any()
