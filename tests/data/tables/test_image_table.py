from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from milbench.data.tables.image_table import ImageTable, is_image_table, load_image_table
from milbench.errors import UsageError

HEADER = "image\tlabels\tboxes"
CAT, DOG = ["cat", 0, 1, 10, 11.5], ["dog", 5, 5, 9, 9]


def load(folder: Path, *rows: str, header: str = HEADER, classes: str = "") -> ImageTable:
    (folder / "pets.tsv").write_text("\n".join([header, *rows]), "utf-8")
    return load_image_table(folder / "pets.tsv", classes=classes)


def quoted(boxes: object) -> str:
    return '"' + json.dumps(boxes).replace('"', '""') + '"'


def test_images_are_bags_with_label_sets_and_boxes(tmp_path: Path) -> None:
    table = load(tmp_path, f"a.png\tdog;cat\t{quoted([DOG, CAT, DOG])}", "sub/b.jpg\t\t", "c.png\tcat\t")
    assert table.bags == ["a.png", "sub/b.jpg", "c.png"]
    assert table.files[1] == tmp_path / "sub/b.jpg"
    assert table.class_names == ["cat", "dog"]
    assert table.labels.tolist() == [[True, True], [False, False], [True, False]]
    assert table.boxes is not None
    classes, sides = table.boxes[0]
    assert classes.tolist() == [1, 0, 1]
    assert sides.tolist() == [DOG[1:], CAT[1:], DOG[1:]]
    assert table.boxed().tolist() == [True, True, False], "none are expected of an empty label set"
    assert load(tmp_path, "a.png\tcat", header="image\tlabels").boxes is None


def test_the_digest_changes_with_labels_and_boxes(tmp_path: Path) -> None:
    moved = ["cat", 0, 1, 10, 12]
    digests = [
        load(tmp_path, f"a.png\tcat\t{text}", classes="cat;dog").digest
        for text in ("", quoted([CAT]), quoted([moved]), quoted([CAT]))
    ]
    assert digests[1] == digests[3]
    assert len(set(digests)) == 3
    assert load(tmp_path, "a.png\tdog\t", classes="cat;dog").digest not in digests


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("\tcat\t", r"pets.tsv, row 3: the column 'image' is empty"),
        ("first.png\tcat\t", r"row 3: 'first.png' is the image of row 2 too"),
        ("a.png\tcta\t", r"row 3: 'cta' is no class; did you mean 'cat'\?"),
        ("a.png\tcat\t[", r"row 3: boxes cannot be read as JSON"),
        ("a.png\tcat\t3", r"row 3: boxes are '3', expected \[\[class, left, top"),
        (f"a.png\tcat\t{quoted([['cat', 1, 2, 3]])}", r"row 3: the box \['cat', 1, 2, 3\] is not \[class"),
        (f"a.png\tcat\t{quoted([['cat', 1, 2, 3, float('nan')]])}", r"row 3: the box .* is not \[class"),
        (f"a.png\tcat\t{quoted([['cat', 5, 2, 5, 4]])}", r"row 3: the box .* is empty, expected left < right"),
        (f"a.png\tcat\t{quoted([['dgo', 1, 2, 3, 4]])}", r"row 3: a box of 'dgo', .* did you mean 'dog'"),
        (f"a.png\tcat;dog\t{quoted([CAT])}", r"row 3: the boxes are of \{cat\}, .* the labels \{cat, dog\}"),
        (f"a.png\t\t{quoted([CAT])}", r"row 3: the boxes are of \{cat\}, .* the labels \{\}"),
    ],
)
def test_a_row_that_is_wrong_is_named(tmp_path: Path, row: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        load(tmp_path, "first.png\tcat\t", row, classes="cat;dog")


def test_a_table_of_images_is_told_from_one_of_features(tmp_path: Path) -> None:
    path = tmp_path / "bags.csv"
    for header, images in (("image,labels", True), ("bag,labels,image,f0", False), ("bag,labels,f0", False)):
        path.write_text(f"{header}\n{','.join('1' for _ in header.split(','))}")
        assert is_image_table(path) is images
    assert np.array_equal(load(tmp_path, "a.png\tcat\t").labels, [[True]])
