"""The picture of a task: some of its test bags, where they are generated or come with scikit-learn."""

import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from milbench._utils.palette import MUTED, class_colours
from milbench._utils.pictures import plain, show_image
from milbench.contracts.bags import Bags
from milbench.contracts.registry import tasks
from milbench.report.figures.galleries import set_name

DRAWN = ("extended-digits", "sound-events", "synthetic-bags")
BAGS = 3


def picture(name: str) -> bytes:
    """Return a PNG of the first test bags of a task, one of `DRAWN`."""
    # Of bags to evaluate on no more are drawn than a picture needs.
    problem = tasks().create(name, {}).load(limit=20 * BAGS)
    class_names = problem.format.class_names
    bags = problem.gallery().parts(BAGS)[0]
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    for bag, axes in enumerate(figure.subplots(1, len(bags))):
        plain(axes)
        axes.set_title(
            set_name(set(bags.labels[bag].nonzero().flatten().tolist()), class_names),
            fontsize=9,
        )
        _draw(axes, bags.selected(slice(bag, bag + 1)), class_colours(len(class_names)))
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def _draw(axes: Axes, bag: Bags, colours: list[str]) -> None:
    """Draw one bag with its true instances, of any kind of bag."""
    instances = bag.instances[0].numpy()
    if bag.instances.ndim == 4:
        show_image(axes, instances)
    elif bag.truth is not None and bag.truth.boxes is not None:
        features, frames = instances.shape
        axes.imshow(
            instances, cmap="gray", aspect="auto", origin="lower", extent=(0, frames, 0, features)
        )
    else:
        _scatter(axes, bag, colours)
    if bag.truth is None or bag.truth.boxes is None:
        return
    for (left, top, right, bottom), cls in zip(
        bag.truth.boxes[0].tolist(), bag.truth.classes[0].tolist(), strict=True
    ):
        if cls >= 0:
            axes.add_patch(
                Rectangle(
                    (left, top), right - left, bottom - top, fill=False, ec=colours[cls], lw=1.8
                )
            )


def _scatter(axes: Axes, bag: Bags, colours: list[str]) -> None:
    """Draw the first two features of each instance in the colour of its class, background in grey."""
    classes = None if bag.truth is None else bag.truth.position_classes
    shown = np.ones(bag.instances.shape[1], bool) if bag.mask is None else bag.mask[0].numpy()
    for k in np.flatnonzero(shown):
        cls = len(colours) if classes is None else int(classes[0, k])
        x, y = bag.instances[0, k, :2].tolist()
        axes.plot(
            x,
            y,
            "o",
            color=colours[cls] if cls < len(colours) else MUTED,
            ms=7 if cls < len(colours) else 4,
        )
    axes.set(xlim=(-6, 8), ylim=(-6, 8))
