"""A task for images of your own, listed in a table: each image is a bag of the things it shows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from milbench.families.fixed_bags import FixedBags, Lazy, batched, make_truth
from milbench.families.image_task import ImageTask
from milbench.families.table_bags import Origins, TableBags, TableFormat, class_names_in
from milbench.networks.convolutional import HOUSE_NUMBERS
from milbench.networks.standardise import StandardiseImages

WHITE = ImageTask.white
_EVAL_BATCH = 64
"""The number of images in a batch to evaluate on."""


class ImageBags(ImageTask, TableBags):
    """Find which classes occur in your own images, trained from label sets alone.

    The table is a file .csv, .tsv or .parquet with a row for each image. It has the columns `image`
    (its path, relative to the folder of the table) and `labels`, and may have `group` and `split`,
    as in `feature-bags`. A column `boxes`, if there is one, is evaluated on and never trained on.
    It is JSON, [[class, left, top, right, bottom], ...] in pixels of the upright image, with at
    least one box for every class of the labels, or empty where boxes are not known; the parameter
    `boxes` describes other forms. With `rows="boxes"` the table has a row for each box instead.

    Images are decoded once, shrunk or enlarged so that they just fit into squares of `size` pixels,
    and kept in a cache beside the table. The cache may be larger than the memory.

    Its parameters are described with `milbench.data.table_options.ImageOptions` and the classes
    that it extends.
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
        """Return a one-cycle schedule with AdamW, as for house numbers."""
        return Recipe(lr=5e-4, epochs=30, evaluate_every=30)

    def format_from(self, memory: Mapping[str, Any]) -> BagFormat:
        return TableFormat(
            inputs=int(memory["inputs"]),
            class_names=class_names_in(memory),
            standardise=StandardiseImages,
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

        def make_batch(numbers: Tensor, rng: torch.Generator) -> Bags:
            batch = bags.filled(split.train[numbers.numpy()])
            changed = flip_and_crop(
                batch.instances, rng, flip=self.options.flip, crop=self.options.crop
            )
            return replace(batch, instances=changed)

        has_boxes = table.marked()
        splits = {}
        for part, images in split.evaluated.items():
            has_truth = bool(has_boxes[images].all())
            splits[part] = EvalSplit((), bags.batches(images, with_truth=has_truth))
        calibration = None
        if not len(split.validation):
            # Thresholds are then chosen on training images.
            calibration = bags.batches(split.train, with_truth=False)
        bag_format = TableFormat(
            inputs=self.channels,
            class_names=tuple(table.class_names),
            standardise=StandardiseImages,
        )
        labels = bags.labels[torch.from_numpy(split.train)]
        return FixedBags(
            task_name=self.name,
            seed=seed,
            format=bag_format,
            typical_shape=(self.channels, self.options.size, self.options.size),
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
        for new in batched(new_images(paths, self.options), _EVAL_BATCH):
            names, files, images, sizes = zip(*new, strict=True)
            pixels = torch.from_numpy(np.stack(images))
            # A batch must have labels. Those of new images are unknown, and nobody reads them.
            labels = torch.zeros(len(new), bag_format.num_classes, dtype=torch.bool)
            bags = Bags(pixels / WHITE, labels)
            places = self._places(sizes, network)
            yield NamedBags(self.options.image, list(names), bags, places, list(files))

    def _places(self, sizes: Sequence[tuple[int, int]], network: Network) -> dict[str, Tensor]:
        """Return x and y (B, h, w) of the positions, in pixels of the original images.

        It is {} for a network that does not know where its positions are.

        Args:
            sizes: width and height of each image, before it was fitted into a square.
            network: the network whose positions are meant.
        """
        side = self.options.size
        centres = network.position_centres(side, side)
        if centres is None:
            return {}
        rows, columns = centres
        ys_in_square = rows.double().numpy()
        xs_in_square = columns.double().numpy()
        xs: list[Tensor] = []
        ys: list[Tensor] = []
        for width, height in sizes:
            x, y = unfit_points(xs_in_square, ys_in_square, width, height, side)
            xs.append(torch.from_numpy(x))
            ys.append(torch.from_numpy(y))
        shape = (len(sizes), len(rows), len(columns))
        return {
            "x": torch.stack(xs).unsqueeze(1).expand(shape),
            "y": torch.stack(ys).unsqueeze(2).expand(shape),
        }


class _TableImages:
    """Makes batches of the images of a table, as squares of `size` pixels, on a device."""

    def __init__(self, table: OwnBags, size: int, device: torch.device) -> None:
        self.labels = torch.from_numpy(table.labels)
        # A table without images has no packed pixels.
        self._pixels = np.empty(0) if table.store.packed is None else table.store.packed
        self._truth = _truth(table, size)
        self._origins = Origins(table)
        self._device = device

    def filled(self, numbers: NDArray[np.int64]) -> Bags:
        """Return the images with these numbers (B,) as one batch, without truth."""
        index = torch.from_numpy(numbers)
        pixels = torch.from_numpy(self._pixels[numbers])
        # Bytes are sent to the device and become floats there, since floats are four times larger.
        bags = Bags(pixels, self.labels[index]).to(self._device)
        return replace(bags, instances=bags.instances / WHITE)

    def batches(self, numbers: NDArray[np.int64], *, with_truth: bool) -> Lazy[Bags]:
        """Return images in batches to evaluate on."""

        def evaluated(numbers: NDArray[np.int64]) -> Bags:
            origin = self._origins.of(numbers).to(self._device)
            bags = replace(self.filled(numbers), origin=origin)
            if not with_truth:
                return bags
            truth = self._truth.selected(torch.from_numpy(numbers))
            return replace(bags, truth=truth.to(self._device))

        return Lazy.of(numbers, _EVAL_BATCH, evaluated)


def _truth(table: OwnBags, size: int) -> Truth:
    """Return the classes and boxes of all images, in pixels of the squares of `size` pixels."""
    things = [_things_in(table, image, size) for image in range(len(table))]
    most = max(len(things_in_image) for things_in_image in things)
    # Even without any box a truth needs room for one thing.
    return make_truth(things, max(1, most))


def _things_in(table: OwnBags, image: int, size: int) -> list[tuple[int, list[float]]]:
    """Return the class and the box of each thing in an image; [] if they are not known."""
    if table.marks is None or table.sizes is None:
        return []
    boxes = table.marks[image]
    if not boxes:
        return []
    width, height = table.sizes[image].tolist()
    edges = np.array([box.place for box in boxes], np.float32)
    in_square = fitted_boxes(edges, width, height, size).tolist()
    classes = [box.cls for box in boxes]
    return list(zip(classes, in_square, strict=True))
