import json
import math
import warnings
from pathlib import Path
from types import SimpleNamespace
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
from milbench.inference.overlay import prediction_figure, sensitivity_figure
from milbench.inference.predict_picture import read_picture, sensitivity
from milbench.inference.trained import load_trained
from milbench.likelihood import bag_log_prob, best_label_set, presence_log_prob
from milbench.store.folders import Root
from tests._helpers.command_line import Milbench, Ran
from tests._helpers.handmade import LOGITS, cell, network_of, publish
from tests._helpers.small_data import bomb

DECODER = ComponentDecoder(
    mass=6.0, apart=0.0, tilt=2.0, reach=(8.0, 5.0, *[8.0] * 8), margin=(4.0, 2.0)
)
"""A one reaches no further than five positions, ten pixels; what is smaller than six positions is a speck."""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = Root(tmp_path_factory.mktemp("cells"))
    digits, numbers = network_of("extended-digits"), network_of("svhn")
    strict: dict[str, Any] = {"threshold": 100.0, "metrics": {"test/set_error": 0.84}}
    strongest: dict[str, Any] = {
        "threshold": 0.0,
        "decoder": Reader(learnt=DECODER, decoder="strongest"),
    }
    learnt = Reader(learnt=DECODER)
    return SimpleNamespace(
        root=root.path,
        digits=publish(root, cell("extended-digits"), digits),
        numbers=publish(root, cell("svhn", contrast="raw"), numbers),
        decoder=publish(root, cell("svhn", seed=1, contrast="raw"), numbers, decoder=learnt),
        sets=publish(root, cell("synthetic-bags"), torch.nn.Linear(1, 1)),
        strict=publish(root, cell("extended-digits", seed=5000), digits, **strict),
        strongest=publish(root, cell("svhn", seed=3, contrast="raw"), numbers, **strongest),
        failed=publish(root, cell("extended-digits", seed=1), None),
    )


@pytest.fixture
def predict(
    milbench: Milbench, cells: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Milbench:
    """Return a function that calls `milbench predict` in a folder with the pictures two.png and house.png."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(squares()).save("two.png")
    Image.fromarray(house_number()).save("house.png")

    def call(*words: str | Path, of: str = cells.digits) -> Ran:
        return milbench(
            "predict", *map(str, words), "--cell", of, "--root", str(cells.root), "--device", "cpu"
        )

    return call


def squares() -> NDArray[np.uint8]:
    """A three and, to its right and lower, a seven on black: squares of 6x6 pixels in 40x24."""
    pixels = np.zeros((24, 40), np.uint8)
    pixels[4:10, 6:12] = 255
    pixels[14:20, 26:32] = 128
    return pixels


def house_number() -> NDArray[np.uint8]:
    """Two ones in red, a nine in blue and a two in green."""
    pixels = np.zeros((30, 70, 3), np.uint8)
    for left, channel in ((8, 0), (22, 0), (36, 2), (52, 1)):
        pixels[8:22, left : left + 8, channel] = 255
    return pixels


def known_probs(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """P of the handmade network: position (i, j) depends on pixel (2 i + 2, 2 j + 2) alone."""
    values = torch.from_numpy(pixels[2:-2:2, 2:-2:2] / 255).double()
    logits = torch.full((11, *values.shape), -100.0, dtype=torch.float64)
    logits[10] = 0
    for cls, (slope, offset) in LOGITS.items():
        logits[cls] = slope * values + offset
    return logits.softmax(dim=0)


def read(name: str, folder: str = "predictions") -> dict[str, Any]:
    about: dict[str, Any] = json.loads(Path(folder, f"{name}.json").read_text())
    return about


def test_what_is_read_is_what_the_likelihood_says(predict: Milbench, cells: Any) -> None:
    said = predict("two.png", "--positions").done()
    assert "37 (components)" in said
    assert "{3, 7}" in said
    about, probs = read("two"), known_probs(squares())
    assert about["cell"] == cells.digits
    assert (about["size"], about["seen"]) == ([40, 24], [40, 24])
    shown = torch.tensor(about["positions"]["probabilities"])
    assert torch.allclose(shown.double(), probs, atol=1e-6)
    assert about["positions"]["y"][:2] == [2.5, 4.5]
    labels, log_prob = best_label_set(probs.log().unsqueeze(0))
    assert about["label_set"] == [str(c) for c in labels[0].nonzero().flatten().tolist()]
    assert about["label_set_probability"] == pytest.approx(float(log_prob.exp()), rel=1e-4)
    presence = presence_log_prob(probs.log().unsqueeze(0))[0].exp()
    assert list(about["presence"].values()) == pytest.approx(presence.tolist(), abs=1e-6)
    assert about["reading"] == "37"
    # The squares' pixels 4..9 and 6..11 hold the middles of the positions that depend on 4, 6, 8 and on 6, 8, 10.
    found = {one["class"]: one["box"] for one in about["detections"]}
    assert found == {"3": [5.5, 3.5, 11.5, 9.5], "7": [25.5, 13.5, 31.5, 19.5]}


def test_the_label_set_is_that_of_the_threshold_of_the_cell(predict: Milbench, cells: Any) -> None:
    """The log-odds of both digits are near 90, and those of all others far below 0."""
    said = predict("two.png", of=cells.strict).done()
    about = read("two")
    assert (about["label_set"], about["reading"]) == ([], "")
    assert about["label_set_rule"] == "presence threshold of the cell"
    given = known_probs(squares()).log().unsqueeze(0)
    of_nothing = float(bag_log_prob(given, torch.zeros(1, 10, dtype=torch.bool)))
    assert about["label_set_log_probability"] == pytest.approx(of_nothing, rel=1e-4)
    (note,) = (line for line in said.splitlines() if "note:" in line)
    assert (
        note == f"note: cell {cells.strict} found 84 % of the label sets of its own test bags wrong"
    )
    (note,) = (line for line in predict("two.png").done().splitlines() if "note:" in line)
    assert f"note: cell {cells.digits} has no threshold on presence scores" in note
    assert (read("two")["label_set"], read("two")["label_set_rule"]) == (
        ["3", "7"],
        "most probable",
    )


def test_a_cell_reads_by_the_decoder_that_was_chosen_for_it(predict: Milbench, cells: Any) -> None:
    predict("house.png", of=cells.strongest).done()
    assert (read("house")["reading"], read("house")["decoder"]) == ("192", "strongest"), (
        "the second one is not read"
    )
    assert [one["class"] for one in read("house")["read_from"]] == ["1", "2", "9"]
    for decoder, of, reading in (
        ("columns", cells.strongest, "1192"),
        ("strongest", cells.numbers, "192"),
    ):
        predict("house.png", "--decoder", decoder, of=of).done()
        assert read("house")["reading"] == reading


def test_figures_have_their_colours_and_names_in_their_places(
    predict: Milbench, cells: Any
) -> None:
    assert predict("two.png", "--sensitivity").code == 0
    assert {
        Image.open(f"predictions/{name}.png").format for name in ("two", "two-sensitivity")
    } == {"PNG"}
    model = load_trained(Root(cells.root).find(cells.digits), torch.device("cpu"))
    picture, found = read_picture(model, Image.fromarray(squares()))
    (positions,), (pixels,) = (
        draw(model, picture, found).axes for draw in (prediction_figure, sensitivity_figure)
    )
    for axes in (positions, pixels):
        names = {text.get_text(): pytest.approx(text.get_position()) for text in axes.texts}
        assert names == {"3": (8.5, 6.5), "7": (28.5, 16.5)}
    below, above = positions.get_images()
    assert tuple(below.get_extent()) == (0, 40, 24, 0)
    assert tuple(above.get_extent()) == (
        1.5,
        37.5,
        21.5,
        1.5,
    )  # position (i, j) is around pixel (2 i + 2, 2 j + 2)
    expected, seen = np.zeros((10, 18, 4)), np.zeros((24, 40, 4))
    for cls, y, x in ((3, 4, 6), (7, 14, 26)):
        expected[y // 2 - 1 : y // 2 + 2, x // 2 - 1 : x // 2 + 2] = (
            *to_rgb(CLASS_COLOURS[cls]),
            STRENGTH,
        )
        # The network depends on pixels of even row and column alone, and on all of a square in the same way.
        seen[y : y + 6 : 2, x : x + 6 : 2] = (*to_rgb(CLASS_COLOURS[cls]), STRENGTH)
    np.testing.assert_allclose(np.array(above.get_array()), expected, atol=1e-4)
    shown = np.array(pixels.get_images()[1].get_array())
    shown[shown[..., 3] == 0] = 0
    np.testing.assert_allclose(shown, seen, atol=1e-6)


def test_a_cell_that_has_learnt_a_decoder_reads_by_it(predict: Milbench, cells: Any) -> None:
    """Two ones that touch, a nine far lower but less steep than the decoder's tilt, and a speck."""
    picture = np.zeros((60, 90, 3), np.uint8)
    for left, top, width, height, channel in (
        (12, 10, 18, 10, 0),
        (42, 44, 10, 8, 2),
        (70, 20, 4, 4, 1),
    ):
        picture[top : top + height, left : left + width, channel] = 255
    Image.fromarray(picture).save("house.png")
    assert predict("house.png", of=cells.decoder).code == 0
    assert (read("house")["reading"], read("house")["decoder"]) == ("119", "components")
    # What is read is listed with its places, specks aside, and boxes reach as far beyond as the run has learnt.
    assert [one["class"] for one in read("house")["read_from"]] == ["1", "9"]
    places = [(one["x"], one["y"]) for one in read("house")["read_from"]]
    assert np.abs(np.array(places) - [(21, 15), (47, 48)]).max() <= 1
    picture[:12, :10, 0] = 255  # in the corner the margin ends with the picture
    Image.fromarray(picture).save("corner.png")
    assert predict("house.png", "corner.png", "--out", "r", of=cells.decoder).code == 0
    assert predict("house.png", "--out", "b", of=cells.numbers).code == 0
    bare, ones = (
        [d["box"] for d in read("house", f)["detections"] if d["class"] == "1"] for f in ("b", "r")
    )
    assert np.array_equal(np.array(ones) - bare, [[-4, -2, 4, 2]] * len(bare))
    assert min(left for left, *_ in (d["box"] for d in read("corner", "r")["detections"])) == 0


def test_every_kind_of_picture_is_read_as_it_is_shown(predict: Milbench) -> None:
    plain = Image.fromarray(squares())
    plain.save("grey.png")
    plain.convert("RGB").save("rgb.webp", lossless=True)
    plain.convert("P").save(
        "moving.gif", save_all=True, append_images=[Image.new("P", plain.size)] * 2
    )
    plain.convert("RGB").convert("CMYK").save("printed.jpg", quality=100, subsampling=0)
    see_through = plain.convert("RGBA")
    see_through.paste((255, 255, 255, 0), (6, 4, 12, 10))  # the three is a hole, shown on white
    see_through.save("rgba.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned
    for name in ("turned.tif", "turned_too.png"):
        plain.transpose(Image.Transpose.ROTATE_90).save(name, exif=exif)
    Image.fromarray(255 - squares()).save("inverted.png")
    files = ["grey.png", "rgb.webp", "moving.gif", "rgba.png", "turned.tif", "turned_too.png"]
    assert predict(*files).code == 0
    for name in files:
        about = read(Path(name).stem)
        assert (about["size"], about["reading"]) == ([40, 24], "37"), name
        assert [d["box"] for d in about["detections"]] == [
            [5.5, 3.5, 11.5, 9.5],
            [25.5, 13.5, 31.5, 19.5],
        ], name
    predict("printed.jpg").done()
    predict("inverted.png", "--invert").done()
    assert read("printed")["reading"] == read("inverted")["reading"] == "37"


def test_pictures_of_any_size(predict: Milbench, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ((5, 5), (41, 7), (9, 333)):
        Image.new("L", size, 255).save(f"{size[0]}.png")
    Image.fromarray(np.tile(squares()[:13], 200)).save("strip.png")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "error", UserWarning
        )  # such as of a caption that leaves no room for its picture
        predict("5.png", "41.png", "9.png", "strip.png").done()
    assert [read(name)["reading"] for name in ("5", "41", "9", "strip")] == [
        "3",
        "3",
        "3",
        200 * "3",
    ]
    Image.new("L", (4, 30)).save("thin.png")
    complaint = predict("5.png", "thin.png", "--out", "no").complaint()
    assert "thin.png: 4x30 pixels: the network of extended-digits needs at least 5x5" in complaint
    assert not Path("no").exists()
    monkeypatch.setattr(images.bounded, "__defaults__", (2400,))
    Image.fromarray(squares()).resize((400, 240), Image.Resampling.NEAREST).save("large.png")
    predict("large.png").done()
    about = read("large")
    assert about["size"] == [400, 240]
    assert 2300 < math.prod(about["seen"]) <= 2400
    box = about["detections"][0]["box"]  # in pixels of the picture as it is
    assert np.abs(np.array(box) - [60, 40, 120, 100]).max() < 25


@pytest.mark.parametrize(
    ("of", "file", "change", "complaint"),
    [
        (
            "decoder",
            "decoder",
            ("components/2", "components/1"),
            "decoder.json: format = 'components/1' is wrong",
        ),
        (
            "decoder",
            "decoder",
            ('"mass": 6.0', '"mass": -1.0'),
            "decoder.json: learnt.mass = -1.0 is wrong",
        ),
        ("decoder", "decoder", ('"components/2"', "null"), "decoder.json cannot be read"),
        ("digits", "weights", None, "is damaged: weights.safetensors"),
        ("sets", "weights", ("", ""), "do not fit its network"),
    ],
)
def test_what_is_damaged_or_does_not_fit_is_refused(
    predict: Milbench,
    cells: Any,
    of: str,
    file: str,
    change: tuple[str, str] | None,
    complaint: str,
) -> None:
    folder = Root(cells.root).cell(getattr(cells, of))
    path, whole = getattr(folder, file), getattr(folder, file).read_bytes()
    path.write_bytes(whole.replace(*(text.encode() for text in change)) if change else whole[:-100])
    if file == "decoder":
        folder.finish(folder.result())  # as if it had been written so
    try:
        assert complaint in predict("two.png", of=getattr(cells, of)).complaint()
    finally:
        path.write_bytes(whole)
        folder.finish(folder.result())


def test_a_picture_is_read_at_the_scale_that_is_given(predict: Milbench, cells: Any) -> None:
    for scale, seen in (("2.5", [175, 75]), ("0.5", [35, 15]), ("1", [70, 30])):
        assert predict("house.png", "--scale", scale, of=cells.numbers).code == 0
        about = read("house")
        assert (about["size"], about["seen"], about["label_set"]) == (
            [70, 30],
            seen,
            ["1", "2", "9"],
        )
        # Boxes are in pixels of the picture as it is, whatever the scale was.
        left = sorted(found["box"][0] for found in about["detections"])
        assert np.abs(np.array(left) - [8, 22, 36, 52]).max() < 4
    for wrong in ("-1", "nan", "1e9"):
        complaint = predict("house.png", f"--scale={wrong}", "--out", "no").complaint()
        assert "expected a number from 0.001 to 1000" in complaint
    assert (
        "house.png: 1x1 pixels"
        in predict("house.png", "--scale", "0.01", "--out", "no").complaint()
    )
    assert not Path("no").exists()


def test_nothing_is_written_where_one_picture_is_bad(predict: Milbench) -> None:
    Image.fromarray(squares()).save("good.png")
    whole = Path("good.png").read_bytes()
    Path("folder.png").mkdir()
    for name, content, complaint in (
        ("cut.png", whole[: len(whole) // 2], "cut.png cannot be read as an image"),
        (
            "text.jpg",
            b"no picture",
            "text.jpg cannot be read as an image: unknown or damaged format",
        ),
        ("bomb.png", bomb(60_000), "bomb.png has more than 100,000,000 pixels"),
        ("large.png", bomb(10_500), "large.png has more than 100,000,000 pixels"),
        ("folder.png", None, "folder.png is a folder"),
        ("absent.png", None, "absent.png is not there"),
    ):
        if content:
            Path(name).write_bytes(content)
        assert complaint in predict("good.png", name).complaint()
    assert "good.png is one of the inputs" in predict("good.png", "--out", ".").complaint()
    assert (
        "Not a directory: text.jpg/deep"
        in predict("good.png", "--out", "text.jpg/deep").complaint()
    )
    assert Path("good.png").read_bytes() == whole
    assert not Path("predictions").exists()


def test_a_cell_is_named_by_the_beginning_of_its_id_and_has_to_be_done(
    predict: Milbench, cells: Any
) -> None:
    assert predict("two.png", of=cells.digits[:12]).code == 0
    assert read("two")["cell"] == cells.digits
    assert (
        "is not done (failed: ValueError: it broke)"
        in predict("two.png", of=cells.failed).complaint()
    )
    with pytest.raises(ValueError, match="synthetic-bags has no pictures"):
        load_task("synthetic-bags").instances_from(Image.new("L", (30, 30)))


def test_sensitivity_agrees_with_finite_differences() -> None:
    network = AllConvolutional((Layer(4, 3, 2, 1), Layer(3, 3)), 2, seed=0).double()
    image = torch.randn(2, 8, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shape: Any = network.output_shape(8, 9)
    positions = torch.zeros(shape, dtype=torch.bool)
    positions[0, 1] = positions[1, 2] = True

    def log_p(pixels: torch.Tensor) -> float:
        with torch.no_grad():
            p = network(pixels.unsqueeze(0)).softmax(dim=1)[0, 1]
        return math.log(p[0, 1]) + math.log(p[1, 2])

    with torch.no_grad():
        got = sensitivity(
            network, load_loss("exact"), image, 1, positions
        )  # its map is the softmax
    expected = torch.zeros(8, 9, dtype=torch.float64)
    for n, y, x in torch.cartesian_prod(*map(torch.arange, image.shape)).tolist():
        step = torch.zeros_like(image)
        step[n, y, x] = 1e-5
        expected[y, x] += abs(log_p(image + step) - log_p(image - step)) / 2e-5
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-8)
    assert (got > 0).any()
