"""The data set `house-numbers`: rendered house numbers in SVHN's format, which needs no download.

A number of one to five digits is painted or mounted on a wall, seen by a camera a little askew, and photographed: blur,
exposure, noise and compression. Glyphs are drawn at twice the size and averaged down.
"""

import io
import os
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from milbench._utils import extras
from milbench.data import digit_struct
from milbench.data.digit_struct import Record

Array = NDArray[np.float64]
PICTURES = {
    "house-numbers/train": 4000,
    "house-numbers/test": 1000,
}  # the number of pictures of each folder
SEED = 0
REVISION = 2  # to be raised when the same seed gives other pictures than before
# Fonts of matplotlib with lining digits.
FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono-Bold", "DejaVuSerif", "DejaVuSerif-Bold", "STIXGeneral",
         "STIXGeneralBol", "cmb10", "cmr10", "cmss10", "cmtt10")  # fmt: skip
LENGTHS = (0.15, 0.50, 0.26, 0.08, 0.01)  # shares of numbers with 1 to 5 digits, about as in SVHN
COVERED = 0.25  # share of a pixel that a digit must cover for the pixel to be inside its box


def make(folder: Path, wanted: str) -> None:
    """Render the pictures of a part. A picture depends on its part and number, not on who draws it."""
    from joblib import Parallel, delayed

    extras.load("h5py", "h5", "house-numbers")
    place, count = folder / wanted, PICTURES[wanted]
    place.mkdir(parents=True)
    ways = (delayed(_save)(place, [SEED, place.name == "test", number]) for number in range(count))
    records = Parallel(n_jobs=min(os.cpu_count() or 1, -(-count // 50)), batch_size=50)(ways)
    digit_struct.write(place / digit_struct.FILE, records)


def _save(folder: Path, seed: list[int]) -> Record:
    pixels, digits, boxes = render(np.random.default_rng([REVISION, *map(int, seed)]))
    name = f"{seed[-1] + 1}.png"
    Image.fromarray(pixels).save(folder / name)
    return Record(name, digits, boxes)


def render(rng: Generator) -> tuple[NDArray[np.uint8], tuple[int, ...], Array]:
    """Return a picture (H, W, 3), its n digits in the order of reading, and boxes (n, 4): left, top, width, height."""
    first = 1 + int(rng.choice(9, p=np.log10(1 + 1 / np.arange(1, 10))))  # Benford's law
    digits = (first, *(int(d) for d in rng.integers(0, 10, rng.choice(5, p=LENGTHS))))
    tall = float(np.clip(np.exp(rng.normal(np.log(27), 0.42)), 13, 90))
    masks, plate = _masks(rng, digits, tall)
    wall = _wall(rng, masks.shape[1:], tall)
    if rng.random() < 0.55:
        wall = _cover(wall, plate, rng, tall, _colour(rng))
    ink = masks.max(axis=0)
    behind = float((wall * ink[..., None]).sum() / ink.sum() / 3)
    contrast = rng.uniform(0.3, 0.75) * (1 if behind < 0.5 else -1)
    picture = _cover(
        wall, ink, rng, tall, np.clip(behind + contrast + rng.normal(0, 0.03, 3), 0, 1)
    )
    covered = [mask >= min(COVERED, mask.max() / 2) for mask in masks]
    spans = [[np.flatnonzero(mask.any(axis=axis)) for axis in (0, 1)] for mask in covered]
    boxes = [(x[0], y[0], x[-1] - x[0] + 1, y[-1] - y[0] + 1) for x, y in spans]
    return _photograph(rng, picture, tall), digits, np.array(boxes, float)


def _masks(rng: Generator, digits: tuple[int, ...], tall: float) -> tuple[Array, Array]:
    """Return how much of each pixel every digit covers (n, H, W), and a plate (H, W) around them, seen askew."""
    import matplotlib as mpl

    fonts = Path(mpl.get_data_path()) / "fonts" / "ttf"
    font = ImageFont.truetype(str(fonts / f"{rng.choice(FONTS)}.ttf"), round(2.7 * tall))
    vertical = len(digits) > 1 and rng.random() < 0.06
    gap, step = rng.gamma(2, 0.05), rng.choice([0, rng.uniform(-0.4, 0.4)], p=[0.9, 0.1])
    sizes = [font.getbbox(str(d)) for d in digits]
    places, x, y = [], 0.0, 0.0
    for left, top, right, bottom in sizes:
        places.append((x - (right + left) / 2 if vertical else x - left, y - top))
        x += 0 if vertical else right - left + gap * 2 * tall
        y += bottom - top + gap * 2 * tall if vertical else step * 2 * tall
    corners = [
        (p[0] + s[0], p[1] + s[1], p[0] + s[2], p[1] + s[3])
        for p, s in zip(places, sizes, strict=True)
    ]
    box = np.array([*np.min(corners, axis=0)[:2], *np.max(corners, axis=0)[2:]])
    margins = 2 * tall * np.maximum(rng.gamma(2.2, 0.28, 4), 0.2) * [-1, -1, 1, 1]
    start, size = (
        (box + margins)[:2],
        np.ceil(np.ptp((box + margins).reshape(2, 2), axis=0) / 2).astype(int) * 2,
    )
    tilt, slant, (px, py) = (
        rng.normal(0, 0.06),
        rng.normal(0, 0.08),
        rng.normal(0, 0.1, 2) / size.max(),
    )
    turn = np.array([[1, slant + tilt], [-tilt, 1]])
    shift = size / 2 - turn @ (size / 2)  # the middle stays in its place
    view = [*turn[0], shift[0], *turn[1], shift[1], px, py]

    def view_of(image: Image.Image) -> Array:
        moved = image.transform(
            tuple(size), Image.Transform.PERSPECTIVE, view, Image.Resampling.BILINEAR
        )
        return np.asarray(moved.reduce(2), float) / 255

    masks = []
    for digit, place in zip(digits, places, strict=True):
        image = Image.new("L", tuple(size))
        ImageDraw.Draw(image).text(tuple(place - start), str(digit), fill=255, font=font)
        masks.append(view_of(image))
    image, edge = Image.new("L", tuple(size)), 2 * tall * rng.uniform(0.12, 0.3)
    rim = (*(box[:2] - start - edge), *(box[2:] - start + edge))
    ImageDraw.Draw(image).rounded_rectangle(rim, rng.choice([0, edge]), fill=255)
    return np.array(masks), view_of(image)


def _wall(rng: Generator, shape: tuple[int, ...], tall: float) -> Array:
    """Return a wall (H, W, 3): bricks, boards or plain, unevenly lit."""
    height, width = shape
    y, x = np.mgrid[:height, :width] / tall + rng.uniform(0, 9, 2)[:, None, None]
    rows, kind = rng.uniform(0.5, 1.4), rng.random()
    light = np.ones(shape)
    if kind < 0.35:
        row = np.floor(y / rows)
        across = (x + row % 2 * rows) / (rows * 2.4) if kind < 0.15 else np.zeros(shape)
        shade = rng.normal(1, 0.08, 997)[(row * 31 + np.floor(across) * 17).astype(int) % 997]
        light = np.where(
            (y % rows < 0.1) | ((across % 1 < 0.04) & (kind < 0.15)), rng.uniform(0.5, 1.3), shade
        )
    light = (
        light
        + rng.uniform(0, 0.08) * _clouds(rng, shape, 0.3 * tall)
        + 0.12 * _clouds(rng, shape, max(shape))
    )
    return np.clip(_colour(rng) * light[..., None], 0, 1)


def _cover(wall: Array, shape: Array, rng: Generator, tall: float, colour: Array) -> Array:
    """Return a wall with a shape (H, W) in a colour on it, and sometimes the shadow of it."""
    from scipy.ndimage import gaussian_filter, shift

    if rng.random() < 0.4:
        shadow = gaussian_filter(
            shift(shape, rng.uniform(0, 0.1, 2) * tall, order=1), 0.04 * tall + 0.3
        )
        wall = wall * (1 - 0.5 * shadow[..., None])
    face = np.clip(
        colour * (1 + 0.05 * _clouds(rng, shape.shape, max(shape.shape)))[..., None], 0, 1
    )
    return np.asarray(wall + shape[..., None] * (face - wall))


def _colour(rng: Generator) -> Array:
    """Return a colour (3,): mostly grey, brown or white, dark or light, sometimes any other."""
    level = rng.choice([rng.uniform(0.08, 0.4), rng.uniform(0.45, 0.95)])
    tint = (
        np.array([1, 0.25, -1.25]) * rng.normal(0.03, 0.08)
        if rng.random() < 0.93
        else rng.normal(0, 0.2, 3)
    )
    return np.asarray(np.clip(level * (1 + tint), 0.01, 1))


def _clouds(rng: Generator, shape: tuple[int, ...], size: float) -> Array:
    """Return smooth noise of mean 0 with details of about `size` pixels."""
    coarse = Image.fromarray(
        rng.normal(0, 1, [max(2, round(side / size) + 1) for side in shape]).astype(np.float32)
    )
    return np.asarray(coarse.resize((shape[1], shape[0]), Image.Resampling.BICUBIC), np.float64)


def _photograph(rng: Generator, picture: Array, tall: float) -> NDArray[np.uint8]:
    """Return a photograph of a picture: out of focus, seen from afar, exposed, with noise and compressed."""
    from scipy.ndimage import gaussian_filter

    blur = tall * (0.01 + 0.08 * rng.beta(1.3, 2.6))  # strokes are about a tenth of the height wide
    lit = gaussian_filter(picture, (blur, blur, 0)) ** np.exp(rng.normal(0, 0.25))
    exposed = (rng.uniform(0, 0.15) + rng.uniform(0.6, 0.95) * lit) * (1 + rng.normal(0, 0.04, 3))
    exposed += rng.uniform(0, 0.02) * rng.normal(0, 1, exposed.shape)
    image = Image.fromarray((np.clip(exposed, 0, 1) * 255).round().astype(np.uint8))
    if rng.random() < 0.4:
        distant = image.resize(
            [max(2, round(side * min(1, 14 / tall))) for side in image.size], Image.Resampling.BOX
        )
        image = distant.resize(image.size, Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=int(rng.integers(45, 96)))
    return np.asarray(Image.open(file).convert("RGB"))
