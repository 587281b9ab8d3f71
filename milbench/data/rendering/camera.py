"""A simulated camera: blur, exposure, tint, noise and compression."""

from __future__ import annotations

import io

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from milbench.data.rendering.background import Array


def photograph(rng: Generator, picture: Array, height: float) -> NDArray[np.uint8]:
    """Return a photograph (H, W, 3) uint8 of a picture.

    Black becomes 0 to 0.15 of full light and white 0.6 to 1.1, noise has a deviation of 0 to 0.02, and the quality of
    the JPEG compression is 45 to 95.

    Args:
        rng: the generator, which decides every draw.
        picture: (H, W, 3) of light in [0, 1].
        height: of the digits in pixels; blur is in proportion.

    Returns:
        (H, W, 3) uint8, red, green and blue.
    """
    from PIL import Image

    blurred = _blur(rng, picture, height)
    lit = np.clip(blurred, 0, 1) ** np.exp(rng.normal(0, 0.25))
    low, high = rng.uniform(0, 0.15), rng.uniform(0.6, 1.1)
    cast = 1 + rng.normal(0, 0.04, 3) + rng.normal(0.01, 0.04) * np.array([-1, 0, 1])
    seen = (low + (high - low) * lit) * cast
    seen = seen + rng.uniform(0, 0.02) * rng.normal(0, 1, seen.shape)
    pixels = Image.fromarray((np.clip(seen, 0, 1) * 255).round().astype(np.uint8))
    file = io.BytesIO()
    pixels.save(file, "JPEG", quality=int(rng.integers(45, 96)))
    with Image.open(file) as developed:
        return np.asarray(developed.convert("RGB"))


def _blur(rng: Generator, picture: Array, height: float) -> Array:
    """Return the picture (H, W, 3) out of focus, moved, or seen from far away.

    Strokes are about a tenth of `height` wide. The blur is limited so that they never run together.
    """
    from PIL import Image
    from scipy.ndimage import gaussian_filter, uniform_filter1d

    focus = height * (0.01 + 0.1 * rng.beta(1.3, 2.6))
    blurred: Array = gaussian_filter(picture, (focus, focus, 0))
    if rng.random() < 0.2:
        blurred = uniform_filter1d(blurred, max(1, round(rng.uniform(0.03, 0.12) * height)), axis=int(rng.integers(2)))
    if rng.random() < 0.4:
        share = min(1, rng.uniform(9, 16) / height)
        h, w = blurred.shape[:2]
        small = max(2, round(w * share)), max(2, round(h * share))
        channels = [Image.fromarray(c.astype(np.float32)) for c in np.moveaxis(blurred, 2, 0)]
        sized = [c.resize(small, Image.Resampling.BOX).resize((w, h), Image.Resampling.BICUBIC) for c in channels]
        blurred = np.stack([np.asarray(c, dtype=np.float64) for c in sized], axis=2)
    return blurred
