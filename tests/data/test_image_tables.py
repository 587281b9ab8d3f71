"""Tables of images: how images are packed, where boxes are, and that mistakes are named."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from milbench.data.bag_checks import check_bags
from milbench.data.findings import fatal
from milbench.data.image_files import fit_image, fitted_boxes
from milbench.data.load_bags import load_bags
from milbench.data.own_bags import OwnBags
from milbench.data.table_options import ImageOptions
from milbench.errors import UsageError

SMALL = ImageOptions(table="", size=32)


def image_table(folder: Path, names: list[str]) -> Path:
    """Write a table of images; all but the first show a cat."""
    first, *others = names
    rows = ["image,labels", f"{first},", *(f"{name},cat" for name in others)]
    path = folder / "pets.csv"
    path.write_text("\n".join(rows))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three pictures.

    The first is wide and red with a blue corner, the second is a white square with a black point,
    and the third is a copy of the first in another format.
    """
    red = Image.new("RGB", (80, 40), "red")
    red.putpixel((0, 0), (0, 0, 255))
    red.save(tmp_path / "red.png")
    red.save(tmp_path / "again.bmp")
    point = Image.new("L", (32, 32), 255)
    point.putpixel((3, 5), 0)
    point.save(tmp_path / "point.png")
    return image_table(tmp_path, ["red.png", "point.png", "again.bmp"])


@pytest.fixture
def packed(table: Path) -> NDArray[np.uint8]:
    """The pictures of the table in squares of 32 pixels."""
    images = load_bags(table, SMALL).store.packed
    assert images is not None
    return images


def test_images_are_packed_in_squares(packed: NDArray[np.uint8]) -> None:
    assert packed.shape == (3, 3, 32, 32)


def test_grey_images_have_one_channel(table: Path) -> None:
    grey = ImageOptions(table="", size=32, channels=1)
    assert load_bags(table, grey).store[0].shape == (1, 1, 32, 32)


def test_images_are_mapped_from_a_file(packed: NDArray[np.uint8]) -> None:
    # There may be more images than memory holds.
    assert isinstance(packed, np.memmap)


def test_the_original_sizes_of_images_are_kept(table: Path) -> None:
    sizes = load_bags(table, SMALL).sizes
    assert sizes is not None
    assert sizes.tolist() == [[80, 40], [32, 32], [80, 40]]


def test_a_wide_image_is_centred_in_its_square(packed: NDArray[np.uint8]) -> None:
    red = packed[0]
    assert red[:, 16, 16].tolist() == [255, 0, 0]
    # 80 x 40 pixels become 32 x 16: the blue corner is 8 pixels below the corner of the square.
    assert red[2, 8, 0] > 0


def test_an_image_of_the_right_size_keeps_its_pixels(packed: NDArray[np.uint8]) -> None:
    channels, rows, columns = (packed[1] == 0).nonzero()
    assert channels.tolist() == [0, 1, 2]
    assert rows.tolist() == [5, 5, 5]
    assert columns.tolist() == [3, 3, 3]


def test_boxes_move_with_the_pixels() -> None:
    left, top, right, bottom = 30, 12, 60, 36
    picture = Image.new("L", (90, 60), 0)
    picture.paste(255, (left, top, right, bottom))
    is_white = np.asarray(fit_image(picture, 48)) > 127
    rows = np.flatnonzero(is_white.any(axis=1))
    columns = np.flatnonzero(is_white.any(axis=0))
    boxes = np.array([[left, top, right, bottom]], np.float32)
    (box,) = fitted_boxes(boxes, 90, 60, 48)
    painted = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    assert box == pytest.approx(painted, abs=0.5)


@pytest.fixture
def with_unreadable_images(table: Path) -> Path:
    """A table of five images: one of them is cut short, one is missing, and one is a text."""
    folder = table.parent
    (folder / "broken.png").write_bytes((folder / "red.png").read_bytes()[:60])
    (folder / "text.jpg").write_text("no picture")
    return image_table(folder, ["red.png", "broken.png", "absent.png", "point.png", "text.jpg"])


def test_unreadable_images_are_all_named_in_one_line(with_unreadable_images: Path) -> None:
    with pytest.raises(UsageError, match=r"^3 of 5 images cannot be read: ") as error:
        load_bags(with_unreadable_images, SMALL)
    assert error.match(r"pets\.csv, row 3: .*broken\.png")
    assert error.match(r"pets\.csv, row 4: .*absent\.png is not there")
    assert error.match(r"pets\.csv, row 6: .*text\.jpg")
    assert "\n" not in str(error.value)


def test_unreadable_images_leave_no_cache(with_unreadable_images: Path) -> None:
    with pytest.raises(UsageError):
        load_bags(with_unreadable_images, SMALL)
    assert not list(with_unreadable_images.parent.rglob("*.npy"))


def test_checks_name_the_sizes_of_images(table: Path) -> None:
    bags = load_bags(table, SMALL)
    findings = {finding.what: finding for finding in check_bags(bags, SMALL)}
    assert findings["images"].level == "fact"
    assert findings["images"].detail == "3, of 32x32 to 80x40 pixels"


def test_checks_name_images_of_one_colour(table: Path) -> None:
    folder = table.parent
    Image.new("RGB", (20, 30), "green").save(folder / "plain.png")
    bags = load_bags(image_table(folder, ["red.png", "point.png", "plain.png"]), SMALL)
    findings = {finding.what: finding for finding in check_bags(bags, SMALL)}
    assert findings["images of one colour"].level == "warning"
    assert findings["images of one colour"].detail == "1: plain.png"


def test_images_that_are_all_of_one_colour_are_fatal(table: Path) -> None:
    folder = table.parent
    Image.new("RGB", (20, 30), "green").save(folder / "plain.png")
    Image.new("RGB", (9, 9), "blue").save(folder / "blue.png")
    bags = load_bags(image_table(folder, ["plain.png", "blue.png"]), SMALL)
    assert fatal(check_bags(bags, SMALL)) == [
        "images: all are of one colour: nothing can be told from them"
    ]


HEADER = "image\tlabels\tboxes"
# Boxes: class, left, top, right and bottom.
CAT = ["cat", 0, 1, 10, 11.5]
DOG = ["dog", 5, 5, 9, 9]
CAT_CLASS, DOG_CLASS = 0, 1


def load(folder: Path, *rows: str, header: str = HEADER, classes: str = "") -> OwnBags:
    """Return the bags of a table of these rows; each image has another grey."""
    for name in ("a.png", "b.jpg", "c.png", "first.png"):
        Image.new("L", (16, 16), ord(name[0])).save(folder / name)
    (folder / "pets.tsv").write_text("\n".join([header, *rows]), "utf-8")
    return load_bags(folder / "pets.tsv", ImageOptions(table="", classes=classes, size=16))


def quoted(boxes: object) -> str:
    """Return boxes as a quoted field of JSON, in which quotation marks are doubled."""
    doubled = json.dumps(boxes).replace('"', '""')
    return f'"{doubled}"'


@pytest.fixture
def with_boxes(tmp_path: Path) -> OwnBags:
    """Three images: one has boxes of a dog, a cat and a dog, one shows nothing, one has no box."""
    boxes = quoted([DOG, CAT, DOG])
    return load(tmp_path, f"a.png\tdog;cat\t{boxes}", "b.jpg\t\t", "c.png\tcat\t")


def test_images_are_bags_with_label_sets(with_boxes: OwnBags) -> None:
    assert with_boxes.bags == ["a.png", "b.jpg", "c.png"]
    assert with_boxes.class_names == ["cat", "dog"]
    assert with_boxes.labels.tolist() == [[True, True], [False, False], [True, False]]


def test_boxes_are_kept_in_their_order(with_boxes: OwnBags) -> None:
    dog = (DOG_CLASS, tuple(DOG[1:]))
    cat = (CAT_CLASS, tuple(CAT[1:]))
    assert with_boxes.marks == [[dog, cat, dog], [], []]


def test_an_image_of_no_class_needs_no_box(with_boxes: OwnBags) -> None:
    assert with_boxes.marked().tolist() == [True, True, False]


def test_a_table_without_boxes_has_no_annotations(tmp_path: Path) -> None:
    assert load(tmp_path, "a.png\tcat", header="image\tlabels").marks is None


FIRST_ROW = "first.png\tcat\t"


@pytest.mark.parametrize(("row", "complaint"), [
    pytest.param("first.png\tcat\t",
                 r"row 3: 'first.png' is the image of row 2 too", id="an image twice"),
    pytest.param("a.png\tcat\t[", r"row 3: boxes '\[' cannot be read", id="no JSON"),
    pytest.param(f"a.png\tcat\t{quoted([['cat', 1, 2, 3]])}",
                 r"row 3: boxes: \['cat', 1, 2, 3\] is wrong; expected \[class",
                 id="three numbers"),
    pytest.param(f"a.png\tcat\t{quoted([['cat', 1, 2, 3, 10**400]])}",
                 r"row 3: boxes: .* is wrong", id="far away"),
    pytest.param(f"a.png\tcat\t{quoted([['cat', 5, 2, 5, 4]])}",
                 r"row 3: boxes: .* is wrong; .* left < right", id="no width"),
    pytest.param(f"a.png\tcat\t{quoted([['dgo', 1, 2, 3, 4]])}",
                 r"row 3: 'dgo' is no class; did you mean 'dog'", id="no class"),
    pytest.param(f"a.png\tcat;dog\t{quoted([CAT])}",
                 r"row 3: the boxes are of \{cat\}, .* the labels \{cat, dog\}",
                 id="a class without a box"),
])  # fmt: skip
def test_a_row_that_is_wrong_is_named(tmp_path: Path, row: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        load(tmp_path, FIRST_ROW, row, classes="cat;dog")
