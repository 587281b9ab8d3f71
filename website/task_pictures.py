"""The picture of a task: some of its test bags, for tasks that need no download."""

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
"""The tasks that have a picture."""
BAGS = 3
"""How many bags the picture on the page of a task shows."""


def picture(name: str, bags: int = BAGS) -> bytes:
    """Return a PNG of the first `bags` test bags of a task, one of `DRAWN`."""
    # The gallery takes bags that differ, so that it needs more bags than are shown. It does not
    # need the thousands of bags of an evaluation.
    problem = tasks().create(name, {}).load(limit=20 * bags)
    class_names = problem.format.class_names
    shown = problem.gallery().parts(bags)[0]
    figure = Figure(figsize=(3.2 * bags, 3.2), layout="constrained")
    colours = class_colours(len(class_names))
    for number, axes in enumerate(figure.subplots(1, bags, squeeze=False)[0]):
        plain(axes)
        label_set = set(shown.labels[number].nonzero().flatten().tolist())
        axes.set_title(set_name(label_set, class_names), fontsize=9)
        _draw(axes, shown.selected(slice(number, number + 1)), colours)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def _draw(axes: Axes, bag: Bags, colours: list[str]) -> None:
    """Draw one bag with its true instances, of any kind of bag."""
    instances = bag.instances[0].numpy()
    is_image = bag.instances.ndim == 4
    # In the tasks of `DRAWN`, sequences and images have boxes, and sets have none.
    has_boxes = bag.truth is not None and bag.truth.boxes is not None
    if is_image:
        show_image(axes, instances)
    elif has_boxes:
        features, frames = instances.shape
        extent = (0, frames, 0, features)
        axes.imshow(instances, cmap="gray", aspect="auto", origin="lower", extent=extent)
    else:
        _scatter(axes, bag, colours)
    _frame_instances(axes, bag, colours)


def _frame_instances(axes: Axes, bag: Bags, colours: list[str]) -> None:
    """Draw a frame around every true instance, if the boxes of instances are known."""
    if bag.truth is None or bag.truth.boxes is None:
        return
    classes = bag.truth.classes[0].tolist()
    boxes = bag.truth.boxes[0].tolist()
    for cls, (left, top, right, bottom) in zip(classes, boxes, strict=True):
        # Bags with fewer instances than others are padded with -1.
        if cls < 0:
            continue
        size = (right - left, bottom - top)
        axes.add_patch(Rectangle((left, top), *size, fill=False, ec=colours[cls], lw=1.8))


def _scatter(axes: Axes, bag: Bags, colours: list[str]) -> None:
    """Draw the first two features of each instance, in the colour of its class or grey."""
    background = len(colours)
    is_instance = np.ones(bag.instances.shape[1], bool)
    if bag.mask is not None:
        is_instance = bag.mask[0].numpy()
    classes = np.full(len(is_instance), background)
    if bag.truth is not None and bag.truth.position_classes is not None:
        classes = bag.truth.position_classes[0].numpy()
    for k in np.flatnonzero(is_instance):
        x, y = bag.instances[0, k, :2].tolist()
        if classes[k] == background:
            axes.plot(x, y, "o", color=MUTED, ms=4)
        else:
            axes.plot(x, y, "o", color=colours[classes[k]], ms=7)
    axes.set(xlim=(-6, 8), ylim=(-6, 8))
