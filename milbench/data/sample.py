"""A small table of bags that milbench makes up, for a first comparison without data of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SEED = 7
CLASSES = ("wren", "nuthatch", "robin")
BAGS = 120
FEATURES = 6
FEWEST_SOUNDS = 3
MOST_SOUNDS = 8
"""In a recording."""
BIRD_SHARE = 0.3
"""Of the sounds; the others are background."""
LOUDNESS = 3.5
"""How far the sounds of a bird lie from the background, in deviations of the noise."""


def sample_table() -> pd.DataFrame:
    """Return the table: a row a sound, with the recording it is in, the birds of that recording and features.

    A sound is that of a bird or background. Its features are normal, with a mean of its own for
    every bird and zero for background. The table is the same wherever and whenever it is made.
    """
    import pandas as pd

    rng = np.random.default_rng(SEED)
    # Every bird has a direction of its own, so that a network can tell the birds apart.
    directions, _ = np.linalg.qr(rng.normal(size=(FEATURES, FEATURES)))
    means = LOUDNESS * directions[: len(CLASSES)]
    rows: list[tuple[str | float, ...]] = []
    for number in range(1, BAGS + 1):
        count = int(rng.integers(FEWEST_SOUNDS, MOST_SOUNDS + 1))
        is_bird = rng.random(count) < BIRD_SHARE
        birds = rng.integers(len(CLASSES), size=count)
        features = rng.normal(size=(count, FEATURES))
        features[is_bird] += means[birds[is_bird]]
        present = sorted(set(birds[is_bird].tolist()))
        labels = ";".join(CLASSES[bird] for bird in present)
        rows += [(f"rec-{number:03}", labels, *values) for values in features.round(3).tolist()]
    columns = ["bag", "labels", *(f"f{number}" for number in range(FEATURES))]
    return pd.DataFrame(rows, columns=columns)
