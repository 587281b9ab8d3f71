"""Maps of where the classes of bags are in the plane, one picture a bag, such as a slide of patches."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

MOST_CLASSES = 4
"""Panels of a picture."""


def draw_maps(positions: pd.DataFrame, bags: pd.DataFrame, folder: Path) -> None:
    """Draw the probability of each class that was found in a bag, or of the likeliest where none was, as NAME.png.

    `positions` and `bags` are as `position_table` and `predict_bags` return them, with x and y of every position.
    """
    from matplotlib.figure import Figure

    from milbench._utils.images import unique_stems

    folder.mkdir(parents=True, exist_ok=True)
    kind = str(positions.columns[0])
    stems = unique_stems([Path(str(name)) for name in bags[kind]])
    for stem, (name, labels) in zip(stems, bags[[kind, "labels"]].itertuples(index=False), strict=True):
        places = positions[positions[kind] == name]
        columns = [f"P({cls})" for cls in labels.split(";") if cls][:MOST_CLASSES]
        columns = columns or [places.filter(like="P(").iloc[:, :-1].max().idxmax()]
        figure = Figure(figsize=(4.5 * len(columns), 4.2), layout="constrained")
        for axes, column in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
            size = max(1.0, 20_000 / len(places)) ** 0.5 * 2
            dots = axes.scatter(
                places["x"], places["y"], c=places[column], s=size, vmin=0, vmax=1, cmap="viridis", lw=0
            )
            axes.set(aspect="equal", title=f"{name}: {column}")
            axes.invert_yaxis()  # as pictures are: y grows downwards
            figure.colorbar(dots, ax=axes)
        figure.savefig(folder / f"{stem}.png", dpi=120)
