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

from milbench.contracts.bags import Bags, NamedBags, Truth
from milbench.contracts.network import Network, NetworkMaker
from milbench.contracts.problem import BagFormat, EvalSplit
from milbench.contracts.recipe import Recipe
from milbench.contracts.task import CPU
from milbench.data.image_files import fitted_boxes, unfit_points
from milbench.data.new_bags import new_images
from milbench.data.own_bags import OwnBags
from milbench.data.table_options import ImageOptions
from milbench.families.augmentation import flip_and_crop
from milbench.families.fixed_bags import FixedBags, Lazy, make_truth
from milbench.families.image_task import ImageTask
from milbench.families.table_bags import Origins, TableBags, TableFormat, class_names_in
from milbench.networks.convolutional import HOUSE_NUMBERS
from milbench.networks.standardise import StandardiseImages

WHITE = ImageTask.white
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

    @property
    def channels(self) -> int:
        return self.options.channels

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW, as for house numbers, in single precision."""
        return Recipe(lr=5e-4, epochs=30, evaluate_every=30)

    def format_from(self, memory: Mapping[str, Any]) -> BagFormat:
        return TableFormat(
            int(memory["inputs"]), class_names_in(memory), standardise=StandardiseImages
        )

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> FixedBags:
        table = self.own_bags(data_dir)
        split = self.split(table, seed)
        bags = _TableImages(table, self.options.size, device)
        flip, crop = self.options.flip, self.options.crop

        def make_batch(numbers: Tensor, rng: torch.Generator) -> Bags:
            drawn = bags.filled(split.train[numbers.numpy()])
            return replace(
                drawn, instances=flip_and_crop(drawn.instances, rng, flip=flip, crop=crop)
            )

        boxed = table.marked()
        splits = {}
        for part, images in split.evaluated.items():
            has_truth = bool(boxed[images].all())
            splits[part] = EvalSplit((), bags.batches(images, with_truth=has_truth))
        calibration = None
        if not len(split.validation):
            calibration = bags.batches(split.train, with_truth=False)
        side, channels = self.options.size, self.options.channels
        labels = bags.labels[torch.from_numpy(split.train)]
        return FixedBags(
            task_name=self.name,
            seed=seed,
            format=TableFormat(channels, (*table.class_names,), standardise=StandardiseImages),
            typical_shape=(channels, side, side),
            batch_bags=self.options.batch_bags,
            splits=splits,
            max_labels=int(labels.sum(dim=1).max()),
            training_count=len(split.train),
            make_batch=make_batch,
            prefetches=True,
            calibration=calibration,
            training_labels=labels,
            limit=limit,
        )

    def read_bags(
        self, paths: Sequence[Path], bag_format: BagFormat, network: Network
    ) -> Iterator[NamedBags]:
        images = new_images(paths, self.options)
        while batch := list(islice(images, _EVAL_BATCH)):
            names, files, pixels, sizes = zip(*batch, strict=True)
            labels = torch.zeros(len(names), bag_format.num_classes, dtype=torch.bool)
            bags = Bags(torch.from_numpy(np.stack(pixels)) / WHITE, labels)
            yield NamedBags(
                self.options.image, list(names), bags, self._places(sizes, network), list(files)
            )

    def _places(self, sizes: Sequence[tuple[int, int]], network: Network) -> dict[str, Tensor]:
        """Return x and y (B, h, w) of the positions, in pixels of the images as they were before they were fitted."""
        side = self.options.size
        centres = network.position_centres(side, side)
        if centres is None:
            return {}
        ys, xs = (c.double().numpy() for c in centres)
        x, y = zip(
            *(unfit_points(xs, ys, width, height, side) for width, height in sizes),
            strict=True,
        )
        shape = (len(sizes), len(ys), len(xs))
        return {
            "x": torch.from_numpy(np.stack(x)).unsqueeze(1).expand(shape),
            "y": torch.from_numpy(np.stack(y)).unsqueeze(2).expand(shape),
        }


class _TableImages:
    """Makes batches of the images of a table, as squares of `size` pixels, on a device."""

    def __init__(self, table: OwnBags, size: int, device: torch.device) -> None:
        self.labels = torch.from_numpy(table.labels)
        self._pixels = np.empty(0) if table.store.packed is None else table.store.packed
        self._truth = _truth(table, size)
        self._origins = Origins(table)
        self._device = device

    def filled(self, numbers: NDArray[np.int64]) -> Bags:
        """Return images with some numbers (B,) as one batch, without truth."""
        index = torch.from_numpy(numbers)
        # Bytes are sent to the device, not floats.
        bags = Bags(torch.from_numpy(self._pixels[numbers]), self.labels[index]).to(self._device)
        return replace(bags, instances=bags.instances / WHITE)

    def batches(self, numbers: NDArray[np.int64], *, with_truth: bool) -> Lazy[Bags]:
        """Return images in batches to evaluate on."""

        def evaluated(numbers: NDArray[np.int64]) -> Bags:
            bags = replace(self.filled(numbers), origin=self._origins.of(numbers).to(self._device))
            if not with_truth:
                return bags
            truth = self._truth.selected(torch.from_numpy(numbers))
            return replace(bags, truth=truth.to(self._device))

        return Lazy.of(numbers, _EVAL_BATCH, evaluated)


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
