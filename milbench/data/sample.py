"""Make up a small table of bags, for a first comparison by users who have no data of their own."""

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
"""A recording has from `FEWEST_SOUNDS` to `MOST_SOUNDS` sounds."""
BIRD_SHARE = 0.3
"""The share of sounds that are of birds. The other sounds are background."""
LOUDNESS = 3.5
"""The distance of a bird's mean from the background's, in standard deviations of a feature."""


def sample_table() -> pd.DataFrame:
    """Return the table, in which a bag is a recording and an instance is a sound.

    It has a row for each sound: the name of its recording, the birds that are heard in that
    recording, and the features of the sound.

    A sound is of one bird or background. Its features are normally distributed with variance 1.
    Their mean is zero for background, and another point for each bird. The table is the same
    whenever and wherever it is made.
    """
    import pandas as pd

    rng = np.random.default_rng(SEED)
    # The means of the birds are in directions at right angles, so that a network can tell
    # the birds apart.
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
