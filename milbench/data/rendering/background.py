"""Backgrounds of rendered house numbers: walls, edges of doors and windows, and plates.

A picture is an array (H, W, 3) of light in [0, 1]. The generator decides everything that is random.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Light, or a factor on it."""


def colour(rng: Generator, light: float | None = None) -> Array:
    """Return a random colour (3,): mostly grey, brown or white, sometimes blue, seldom any other.

    Args:
        rng: the generator.
        light: about the mean of the channels, in [0, 1]; None: drawn, dark or light.
    """
    level = light if light is not None else float(rng.choice([rng.uniform(0.05, 0.4), rng.uniform(0.3, 0.95)]))
    warm = np.array([1.0, 0.25, -1.25])
    kind = rng.random()
    if kind < 0.04:
        tint = rng.normal(0, 0.3, 3)
    elif kind < 0.16:
        tint = np.array([-0.6, -0.2, 0.8]) * rng.uniform(0.3, 1)
    else:
        tint = warm * rng.normal(0.015, 0.06) + rng.normal(0, 0.015, 3)
    chosen: Array = np.clip(level * (1 + tint - tint.mean() * 0.5), 0.01, 1)
    return chosen


def paint_wall(rng: Generator, width: int, height: int, scale: float) -> Array:
    """Return a wall (height, width, 3): bricks, boards or plain, with up to three edges of other things, unevenly lit.

    Args:
        rng: the generator.
        width: in pixels.
        height: in pixels.
        scale: the height of the digits in pixels; bricks, boards and edges are sized in proportion.

    Returns:
        (height, width, 3) of light in [0, 1].
    """
    base = colour(rng)
    wall = np.broadcast_to(base, (height, width, 3)).copy()
    kind = rng.random()
    if kind < 0.15:
        wall *= _bricks(rng, width, height, scale)[..., None]
    elif kind < 0.35:
        wall *= _boards(rng, width, height, scale)[..., None]
    for _ in range(rng.choice(4, p=[0.45, 0.25, 0.2, 0.1])):
        wall = _edge(rng, wall, scale)
    grain = rng.uniform(0, 0.08) * _clouds(rng, width, height, max(2, round(0.3 * scale)))
    light = rng.uniform(0, 0.25) * _clouds(rng, width, height, max(width, height))
    return np.clip(wall * (1 + grain + light)[..., None], 0, 1)


def add_plate(rng: Generator, wall: Array, shape: Array, scale: float) -> Array:
    """Return a wall with a plate on it: of one colour, sometimes with a rim, sometimes with a shadow.

    Args:
        rng: the generator.
        wall: (H, W, 3).
        shape: (H, W) in [0, 1], how much of each pixel the plate covers.
        scale: the height of the digits in pixels; rim and shadow are sized in proportion.

    Returns:
        (H, W, 3) of light; the input is left as it is.
    """
    from scipy.ndimage import gaussian_filter, minimum_filter, shift

    if rng.random() < 0.5:
        cast = gaussian_filter(shift(shape, rng.uniform(0, 0.12, 2) * scale, order=1), 0.05 * scale + 0.3)
        wall = wall * (1 - 0.5 * cast[..., None])
    own = colour(rng, light=float(rng.choice([rng.uniform(0.03, 0.3), rng.uniform(0.6, 1.0)])))
    face = own * (1 + rng.uniform(0, 0.2) * _clouds(rng, wall.shape[1], wall.shape[0], wall.shape[1]))[..., None]
    result = wall + shape[..., None] * (np.clip(face, 0, 1) - wall)
    if rng.random() < 0.4:
        thick = max(1, round(rng.uniform(0.03, 0.09) * scale))
        outer = minimum_filter(shape, 1 + 2 * round(0.5 * thick))
        rim = outer - minimum_filter(outer, 1 + 2 * thick)
        result = result + rim[..., None] * (colour(rng) - result)
    return result


def _bricks(rng: Generator, width: int, height: int, scale: float) -> Array:
    """Return the light (H, W) of rows of bricks, every other row shifted by half a brick."""
    tall = rng.uniform(0.5, 1.4) * scale
    wide, joint = tall * rng.uniform(2, 3.2), max(0.08 * tall, 0.8)
    y = np.arange(height)[:, None] + rng.uniform(0, tall)
    row = np.floor(y / tall)
    x = np.arange(width)[None, :] + (row % 2) * wide / 2 + rng.uniform(0, wide)
    mortar = (y % tall < joint) | (x % wide < joint)
    shade = rng.normal(1, 0.08, 997)[(row * 31 + np.floor(x / wide) * 17).astype(int) % 997]
    return np.where(mortar, rng.uniform(0.6, 1.35), shade)


def _boards(rng: Generator, width: int, height: int, scale: float) -> Array:
    """Return the light (H, W) of horizontal or vertical boards with dark lines between them."""
    step = rng.uniform(0.5, 2.5) * scale
    lying = rng.random() < 0.65
    along = np.arange(height)[:, None] if lying else np.arange(width)[None, :]
    phase = ((along + rng.uniform(0, step)) % step) / step
    light = 1 + rng.uniform(0, 0.15) * (phase - 0.5) - rng.uniform(0.1, 0.5) * (phase < max(0.06, 1 / step))
    return np.broadcast_to(light, (height, width))


def _edge(rng: Generator, wall: Array, scale: float) -> Array:
    """Return the wall with a straight edge beside its middle, and another colour beyond it or in a bar along it."""
    height, width = wall.shape[:2]
    angle = rng.choice([0, np.pi / 2]) + rng.normal(0, 0.05)
    y, x = np.mgrid[:height, :width]
    distance = (x - width / 2) * np.cos(angle) + (y - height / 2) * np.sin(angle)
    reach = (width * abs(np.cos(angle)) + height * abs(np.sin(angle))) / 2
    distance = distance - rng.choice([-1, 1]) * rng.uniform(0.45, 1) * reach
    thick = rng.choice([0.1, 0.3, 9]) * scale
    beyond = np.clip(distance + 0.5, 0, 1) * np.clip(thick - distance + 0.5, 0, 1)
    if rng.random() < 0.5:
        beyond = np.clip(0.5 - distance, 0, 1) * np.clip(thick + distance + 0.5, 0, 1)
    if beyond[height // 2, width // 2] > 0.5:
        beyond = 1 - beyond
    seen: Array = wall + beyond[..., None] * (colour(rng) - wall)
    return seen


def _clouds(rng: Generator, width: int, height: int, size: int) -> Array:
    """Return smooth noise (H, W) with mean 0 and details of about `size` pixels."""
    from PIL import Image

    shape = max(2, -(-height // size) + 1), max(2, -(-width // size) + 1)
    coarse = Image.fromarray(rng.normal(0, 1, shape).astype(np.float32))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float64)
