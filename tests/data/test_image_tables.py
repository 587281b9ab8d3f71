import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from milbench.data.bag_checks import check_bags, fatal
from milbench.data.image_files import fit_image, fitted_boxes
from milbench.data.own_bags import load_bags
from milbench.data.table_options import ImageOptions
from milbench.errors import UsageError


def image_table(folder: Path, names: list[str]) -> Path:
    """Write a table whose images show a cat, but for the first one."""
    rows = [f"{name},{'cat' * (n > 0)}" for n, name in enumerate(names)]
    (folder / "pets.csv").write_text("\n".join(["image,labels", *rows]))
    return folder / "pets.csv"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three pictures: red and wide, white with a black point and square, and a copy of the first in another format."""
    red, point = Image.new("RGB", (80, 40), "red"), Image.new("L", (32, 32), 255)
    red.putpixel((0, 0), (0, 0, 255))
    point.putpixel((3, 5), 0)
    red.save(tmp_path / "red.png")
    red.save(tmp_path / "again.bmp")
    point.save(tmp_path / "point.png")
    return image_table(tmp_path, ["red.png", "point.png", "again.bmp"])


def test_images_are_fitted_into_squares_and_mapped_from_a_file(table: Path) -> None:
    bags = load_bags(table, ImageOptions(table="", size=32))
    images = bags.store.packed
    assert images is not None
    assert images.shape == (3, 3, 32, 32)
    assert isinstance(images, np.memmap), "more images than memory holds"
    assert bags.sizes is not None
    assert bags.sizes.tolist() == [[80, 40], [32, 32], [80, 40]]
    assert images[0, :, 16, 16].tolist() == [255, 0, 0]
    assert images[0, 2, 8, 0] > 0, (
        "the upper left corner of the picture, 8 pixels below that of the square"
    )
    assert (images[1] == 0).nonzero()[1].tolist() == [5] * 3
    assert (images[1] == 0).nonzero()[2].tolist() == [3] * 3
    assert load_bags(table, ImageOptions(table="", size=32, channels=1)).store[0].shape == (
        1,
        1,
        32,
        32,
    )


def test_boxes_move_with_the_pixels() -> None:
    picture = Image.new("L", (90, 60), 0)
    picture.paste(255, (30, 12, 60, 36))
    square = np.asarray(fit_image(picture, 48)) > 127
    rows, columns = (np.flatnonzero(square.any(axis=axis)) for axis in (1, 0))
    (box,) = fitted_boxes(np.array([[30, 12, 60, 36]], np.float32), 90, 60, 48)
    assert box == pytest.approx([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], abs=0.5)


def test_unreadable_images_are_all_named_and_leave_no_cache(table: Path) -> None:
    folder = table.parent
    (folder / "broken.png").write_bytes((folder / "red.png").read_bytes()[:60])
    (folder / "text.jpg").write_text("no picture")
    wrong = image_table(folder, ["red.png", "broken.png", "absent.png", "point.png", "text.jpg"])
    with pytest.raises(UsageError, match=r"^3 of 5 images cannot be read: ") as error:
        load_bags(wrong, ImageOptions(table="", size=32))
    for place in (
        "pets.csv, row 3: .*broken.png",
        "pets.csv, row 4: .*absent.png is not there",
        "row 6: .*text.jpg",
    ):
        assert error.match(place)
    assert "\n" not in str(error.value)
    assert not list(folder.rglob("*.npy"))


def test_checks_name_images_of_one_colour(table: Path) -> None:
    folder, options = table.parent, ImageOptions(table="", size=32)
    Image.new("RGB", (20, 30), "green").save(folder / "plain.png")
    Image.new("RGB", (9, 9), "blue").save(folder / "blue.png")
    bags = load_bags(image_table(folder, ["red.png", "point.png", "plain.png"]), options)
    found = {one.what: (one.level, one.detail) for one in check_bags(bags, options)}
    assert found["images"] == ("fact", "3, of 20x30 to 80x40 pixels")
    assert found["images of one colour"] == ("warning", "1: plain.png")
    plain = load_bags(image_table(folder, ["plain.png", "blue.png"]), options)
    assert fatal(check_bags(plain, options)) == [
        "images: all are of one colour: nothing can be told from them"
    ]


HEADER = "image\tlabels\tboxes"
CAT, DOG = ["cat", 0, 1, 10, 11.5], ["dog", 5, 5, 9, 9]


def load(folder: Path, *rows: str, header: str = HEADER, classes: str = "") -> Any:
    for name in ("a.png", "b.jpg", "c.png", "first.png"):
        Image.new("L", (16, 16), ord(name[0])).save(folder / name)
    (folder / "pets.tsv").write_text("\n".join([header, *rows]), "utf-8")
    return load_bags(folder / "pets.tsv", ImageOptions(table="", classes=classes, size=16))


def quoted(boxes: object) -> str:
    return '"' + json.dumps(boxes).replace('"', '""') + '"'


def test_images_are_bags_with_label_sets_and_boxes(tmp_path: Path) -> None:
    table = load(
        tmp_path, f"a.png\tdog;cat\t{quoted([DOG, CAT, DOG])}", "b.jpg\t\t", "c.png\tcat\t"
    )
    assert table.bags == ["a.png", "b.jpg", "c.png"]
    assert table.class_names == ["cat", "dog"]
    assert table.labels.tolist() == [[True, True], [False, False], [True, False]]
    assert table.marks[0] == [(1, tuple(DOG[1:])), (0, tuple(CAT[1:])), (1, tuple(DOG[1:]))]
    assert table.marked().tolist() == [True, True, False], "none are expected of an empty label set"
    assert load(tmp_path, "a.png\tcat", header="image\tlabels").marks is None


@pytest.mark.parametrize(("row", "complaint"), [
    ("first.png\tcat\t", r"row 3: 'first.png' is the image of row 2 too"),
    ("a.png\tcat\t[", r"row 3: boxes '\[' cannot be read"),
    (f"a.png\tcat\t{quoted([['cat', 1, 2, 3]])}", r"row 3: boxes: \['cat', 1, 2, 3\] is wrong; expected \[class"),
    (f"a.png\tcat\t{quoted([['cat', 1, 2, 3, 10**400]])}", r"row 3: boxes: .* is wrong"),
    (f"a.png\tcat\t{quoted([['cat', 5, 2, 5, 4]])}", r"row 3: boxes: .* is wrong; .* left < right"),
    (f"a.png\tcat\t{quoted([['dgo', 1, 2, 3, 4]])}", r"row 3: 'dgo' is no class; did you mean 'dog'"),
    (f"a.png\tcat;dog\t{quoted([CAT])}", r"row 3: the boxes are of \{cat\}, .* the labels \{cat, dog\}"),
])  # fmt: skip
def test_a_row_that_is_wrong_is_named(tmp_path: Path, row: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        load(tmp_path, "first.png\tcat\t", row, classes="cat;dog")
