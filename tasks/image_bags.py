"""Images from one's own table and folder, each of which is a bag whose instances are what it shows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.api.bags import Bags, NamedBags, Truth
from milbench.api.network import Network, NetworkMaker
from milbench.api.recipe import Recipe
from milbench.data.image_files import fitted_boxes, unfit_points
from milbench.data.new_bags import new_images
from milbench.data.own_bags import OwnBags
from milbench.data.table_options import ImageOptions
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.augmentation import flip_and_crop
from milbench.families.fixed_bags import Lazy, make_truth
from milbench.families.image_bags import ImageTask
from milbench.families.table_bags import TableBags
from milbench.networks.convolutional import HOUSE_NUMBERS
from milbench.networks.standardise import StandardiseImages

_EVAL_BATCH = 64


class ImageBags(ImageTask, TableBags):
    """Find the classes that occur in images, one's own, given the label sets of training images.

    The table is a file .csv, .tsv or .parquet with a row an image and the columns `image` (its path, from the folder of
    the table) and, as in `feature-bags`, `labels` and perhaps `group` and `split`. A column `boxes` (JSON, [[class,
    left, top, right, bottom], ...] in pixels of the upright image, a box of every class of the labels, or empty where
    they are not known) is evaluated on and never trained on; `boxes` names its other forms. With `rows="boxes"` the
    table has a row a box instead.

    Images are decoded once, shrunk or enlarged so that they just fit into squares of `size` pixels, and kept in a cache
    beside the table, which need not fit into memory.

    Its parameters are described with `milbench.data.table_options.ImageOptions` and the classes that it extends.
    """

    name = "image-bags"
    Options = ImageOptions
    added = ImageOptions.added
    options: ImageOptions
    networks: ClassVar[Mapping[str, NetworkMaker]] = HOUSE_NUMBERS

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.size, self.inputs = self.options.size, self.options.channels
        self.typical_size = self.size, self.size

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        bags = self.own_bags(data_dir)
        split = self.split_bags(bags)
        self._device = device
        self._images = np.empty(0) if bags.store.packed is None else bags.store.packed
        self._labels = torch.from_numpy(bags.labels)
        self._truth = _truth(bags, self.size)
        boxed = bags.marked()
        self.calibration = (
            None if len(split.validation) else self._batches(split.train, truth=False)
        )
        self.eval_splits = {
            part: EvalSplit((), self._batches(images, truth=bool(boxed[images].all())))
            for part, images in split.evaluated.items()
        }

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:
        bags = self._bags(self._split.train[numbers.numpy()], truth=False)
        return replace(
            bags,
            instances=flip_and_crop(
                bags.instances, rng, flip=self.options.flip, crop=self.options.crop
            ),
        )

    def standardise(self) -> StandardiseImages:
        return StandardiseImages()

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW, as for house numbers, in single precision."""
        return Recipe(lr=5e-4, epochs=30, evaluate_every=30)

    def read_bags(self, paths: Sequence[Path], network: Network) -> Iterator[NamedBags]:
        images = new_images(paths, self.options)
        while batch := list(islice(images, _EVAL_BATCH)):
            names, files, pixels, sizes = zip(*batch, strict=True)
            labels = torch.zeros(len(names), self.num_classes, dtype=torch.bool)
            bags = Bags(torch.from_numpy(np.stack(pixels)) / self.white, labels)
            yield NamedBags(
                self.options.image, list(names), bags, self._places(sizes, network), list(files)
            )

    def _bags(self, numbers: NDArray[np.int64], *, truth: bool) -> Bags:
        index = torch.from_numpy(numbers)
        truth_of_bags = self._truth.selected(index) if truth else None
        bags = Bags(
            torch.from_numpy(self._images[numbers]), self._labels[index], truth=truth_of_bags
        ).to(self._device)
        return replace(bags, instances=bags.instances / self.white)  # bytes are sent, not floats

    def _batches(self, numbers: NDArray[np.int64], *, truth: bool) -> Lazy[Bags]:
        def batch(numbers: NDArray[np.int64]) -> Bags:
            origin = self.origin_of(numbers).to(self._device)
            return replace(self._bags(numbers, truth=truth), origin=origin)

        return Lazy.of(numbers, _EVAL_BATCH, batch)

    def _places(self, sizes: Sequence[tuple[int, int]], network: Network) -> dict[str, Tensor]:
        """Return x and y (B, h, w) of the positions, in pixels of the images as they were before they were fitted."""
        centres = network.position_centres(self.size, self.size)
        if centres is None:
            return {}
        ys, xs = (c.double().numpy() for c in centres)
        x, y = zip(
            *(unfit_points(xs, ys, width, height, self.size) for width, height in sizes),
            strict=True,
        )
        shape = (len(sizes), len(ys), len(xs))
        return {
            "x": torch.from_numpy(np.stack(x)).unsqueeze(1).expand(shape),
            "y": torch.from_numpy(np.stack(y)).unsqueeze(2).expand(shape),
        }


def _truth(bags: OwnBags, size: int) -> Truth:
    """Return the boxes of all images, in pixels of the squares."""
    things: list[list[tuple[int, list[float]]]] = [[] for _ in range(len(bags))]
    for image, boxes in enumerate(bags.marks or []):
        if boxes and bags.sizes is not None:
            width, height = bags.sizes[image].tolist()
            sides = fitted_boxes(
                np.array([box.place for box in boxes], np.float32), width, height, size
            )
            things[image] = [
                (box.cls, place) for box, place in zip(boxes, sides.tolist(), strict=True)
            ]
    return make_truth(things, max([1, *map(len, things)]))
