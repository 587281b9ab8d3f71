"""Small tables of bags, for tests of the tasks on one's own data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw


def small_table(folder: Path, bags: int = 60) -> Path:
    """Write bags.csv with 1 to 4 instances a bag; every other bag has the label "odd", of its first instance."""
    rows = [
        f"{bag},{'odd' if bag % 2 else ''},{'odd' if bag % 2 and i == 0 else ''},{bag / 7 + i},{bag * i % 5}"
        for bag in range(bags)
        for i in range(1 + bag % 4)
    ]
    (folder / "bags.csv").write_text("\n".join(["bag,labels,instance_label,f0,f1", *rows]))
    return folder


def small_images(folder: Path, count: int = 60) -> Path:
    """Write images.csv and pictures of several sizes with coloured squares and discs, the classes, and their boxes.

    Args:
        folder: of the table; the pictures are in its folder `pictures`.
        count: the number of pictures. Every third one is empty, has a square, or has a square and a disc.
    """
    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir()
    rows = []
    for n in range(count):
        width, height = (int(side) for side in rng.integers(60, 101, 2))
        picture = Image.new("RGB", (width, height), tuple(rng.integers(0, 90, 3).tolist()))
        draw, placed = ImageDraw.Draw(picture), []
        for number, (name, shape) in enumerate((("square", draw.rectangle), ("disc", draw.ellipse))[: n % 3]):
            left = int(rng.integers(0, width - 25))
            top = int(rng.integers(0, height // 2 - 25)) + number * (height // 2)
            shape((left, top, left + 24, top + 24), fill=tuple(rng.integers(160, 256, 3).tolist()))
            placed.append([name, left, top, left + 25, top + 25])
        picture.save(folder / "pictures" / f"{n}.png")
        labels = ";".join(str(name) for name, *_ in placed)
        rows.append({"image": f"pictures/{n}.png", "labels": labels, "boxes": json.dumps(placed)})
    pd.DataFrame(rows).to_csv(folder / "images.csv", index=False)
    return folder
