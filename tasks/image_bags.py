"""Images from one's own table and folder, each of which is a bag whose instances are what it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from milbench._utils.digests import file_digest
from milbench.api.bags import Bags, NamedBags, Truth
from milbench.api.recipe import Recipe
from milbench.api.task import Network
from milbench.data.image_files import COLOURS, SIDE, Channels, Size, fitted_boxes, unfitted
from milbench.data.new_bags import decode_all, new_images
from milbench.data.own_bags import ImageColumns, OwnBags, load_images
from milbench.errors import UsageError
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.augmentation import flip_and_crop
from milbench.families.fixed_bags import Lazy, truth_of
from milbench.families.image_bags import ImageTask
from milbench.families.table_bags import Count, FoldCount, Share, TableBags, TestShare
from milbench.networks.backbone import Backbone, backbones, read_weights
from milbench.networks.convolutional import standardised
from milbench.networks.registry import load_network, network_name, networks

_EVAL_BATCH = 64
TORCHVISION = "torchvision:"
"""What may stand before the name of a torchvision network."""


class ImageBags(ImageTask, TableBags):
    """Find the classes that occur in images, one's own, given the label sets of training images.

    The table is a file .csv, .tsv or .parquet with a row an image and the columns `image` (its path,
    from the folder of the table) and `labels` (classes with ";" between them, empty for none). Where it has them, these
    columns are used: `boxes` (JSON, [[class, left, top, right, bottom], ...] in pixels of the upright image, a box of
    every class of the labels, or empty where they are not known), to evaluate on and never to train on; `group` (such
    as a patient), whose images stay together in a split; `split` (train, validation, test).

    Images are decoded once, shrunk or enlarged so that they just fit into squares of `size` pixels, and kept in a cache
    beside the table, which need not fit into memory. Parameters that are not listed, such as those of the
    split, mean what they do for `feature-bags`.

    Args:
        image: the column of the paths of images.
        size: the side of the square that an image is fitted into, in pixels; what is left free has its mean colour.
        channels: 3 for colours, 1 for grey.
        network: small, medium or large, the paper's convolutions for house numbers; a network of torchvision such as
            resnet18 or convnext_tiny, made fully convolutional; or another one that `milbench list networks` names.
        stride: of a network of torchvision, at most so many pixels between two positions; later layers are left out.
        weights: a file with the state_dict of the network of torchvision; "": its weights are drawn by the seed.
        flip: whether training images are mirrored at random, left and right swapped.
        crop: training images are shifted by up to so many pixels, at random.
        batch_bags: the number of images in a training batch.
    """

    name = "image-bags"
    kind = "images"

    def __init__(
        self,
        table: str,
        image: str = "image",
        labels: str = "labels",
        classes: str = "",
        size: Size = SIDE,
        channels: Channels = COLOURS,
        network: str = "small",
        stride: Literal[2, 4, 8, 16, 32] = 8,
        weights: str = "",
        flip: bool = False,
        crop: Annotated[int, Field(ge=0)] = 0,
        folds: FoldCount = 0,
        repeats: Count = 1,
        folds_file: str = "",
        test: TestShare = 0.2,
        validation: Share = 0.1,
        batch_bags: Count = 32,
    ) -> None:
        super().__init__(table, folds, repeats, folds_file, test, validation, batch_bags)
        if crop >= size:
            raise UsageError(f"crop = {crop} may leave nothing of an image of size = {size}")
        self.columns = ImageColumns(image, labels, classes, size, channels)
        self.size = size
        self.channels = channels
        name = network_name(network, [*backbones(), *(f"{TORCHVISION}{name}" for name in backbones())])
        self.of_torchvision = name not in networks().entries
        self.network_name = name.removeprefix(TORCHVISION)
        self.dependencies = "" if self.of_torchvision else networks().entry(name).source_digest
        if weights and not self.of_torchvision:
            raise UsageError(f"weights are for networks of torchvision, network = {network} is none")
        self.stride = stride
        self.weights = weights
        self.augmentation: dict[str, Any] = {"flip": flip, "crop": crop}

    def own_bags(self, data_dir: Path | None) -> OwnBags:
        return load_images(self.found(self.table, data_dir), self.columns)

    def check_data(self, data_dir: Path | None) -> str:
        caption = super().check_data(data_dir)
        bags = self.own_bags(data_dir)
        self._check_network(bags, self._network(len(bags.class_names), 0, self._tensors(data_dir)))
        if self.weights:
            path = self.found(self.weights, data_dir, "weights")
            caption += f", weights {path.name}, sha256 {file_digest(path, 'sha256')[:16]}"
        return caption

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        bags = self.own_bags(data_dir)
        split = self.split_bags(bags)
        self._device = device
        self._images = np.empty(0) if bags.store.packed is None else bags.store.packed
        self._labels = torch.from_numpy(bags.labels)
        self._truth = _truth(bags, self.size)
        self._tensors_read = self._tensors(data_dir)
        network = self.network(0)
        self.positions = self._check_network(bags, network)
        where = network.position_centres(self.size, self.size)  # of all images, as they have one size
        self.centres = None if where is None else lambda height, width: where  # noqa: ARG005
        boxed = bags.marked()
        self.calibration = None if len(split.validation) else self._batches(split.train, truth=False)
        self.eval_splits = {
            part: EvalSplit((), self._batches(images, truth=bool(boxed[images].all())))
            for part, images in split.evaluated.items()
        }

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:
        bags = self._bags(self._split.train[numbers.numpy()], truth=False)
        return replace(bags, instances=flip_and_crop(bags.instances, rng, **self.augmentation))

    def network(self, seed: int) -> Network:
        return self._network(self.num_classes, seed, self._tensors_read)

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW, as for house numbers, in single precision."""
        return Recipe(lr=5e-4, epochs=30, evaluate_every=30)

    def recall(self, memory: Mapping[str, Any]) -> None:
        super().recall(memory)
        self._tensors_read = None

    def read_bags(self, paths: Sequence[Path], network: Network) -> Iterator[NamedBags]:
        files = new_images(paths, self.columns.image)
        for start in range(0, len(files), _EVAL_BATCH):
            names = list(files)[start : start + _EVAL_BATCH]
            pixels, sizes = decode_all([files[name] for name in names], self.size, self.channels)
            labels = torch.zeros(len(names), self.num_classes, dtype=torch.bool)
            bags = Bags(torch.from_numpy(pixels) / self.white, labels)
            yield NamedBags(self.columns.image, names, bags, self._places(sizes, network))

    def _bags(self, numbers: NDArray[np.int64], *, truth: bool) -> Bags:
        at = torch.from_numpy(numbers)
        known = self._truth.selected(at) if truth else None
        bags = Bags(torch.from_numpy(self._images[numbers]), self._labels[at], truth=known).to(self._device)
        return replace(bags, instances=bags.instances / self.white)  # bytes are sent, not floats

    def _batches(self, numbers: NDArray[np.int64], *, truth: bool) -> Lazy[Bags]:
        return Lazy.of(numbers, _EVAL_BATCH, partial(self._bags, truth=truth))

    def _places(self, sizes: NDArray[np.int32], network: Network) -> dict[str, Tensor]:
        """Return x and y (B, h, w) of the positions, in pixels of the images as they were before they were fitted."""
        centres = network.position_centres(self.size, self.size)
        if centres is None:
            return {}
        ys, xs = (c.double().numpy() for c in centres)
        x, y = zip(*(unfitted(xs, ys, width, height, self.size) for width, height in sizes.tolist()), strict=True)
        shape = (len(sizes), len(ys), len(xs))
        return {
            "x": torch.from_numpy(np.stack(x)).unsqueeze(1).expand(shape),
            "y": torch.from_numpy(np.stack(y)).unsqueeze(2).expand(shape),
        }

    def _tensors(self, data_dir: Path | None) -> dict[str, Tensor] | None:
        return read_weights(self.found(self.weights, data_dir, "weights")) if self.weights else None

    def _network(self, num_classes: int, seed: int, tensors: dict[str, Tensor] | None) -> Network:
        if self.of_torchvision:
            return Backbone(self.network_name, self.channels, num_classes, seed, stride=self.stride, weights=tensors)
        network = load_network(self.network_name, self.channels, num_classes, seed)
        network.register_forward_pre_hook(standardised)
        return network

    def _check_network(self, bags: OwnBags, network: Network) -> int:
        """Return the number of positions of an image. Raises UsageError for fewer than an image has classes."""
        positions = self.positions_in(network, self.size)
        counts = bags.labels.sum(axis=1)
        if positions < max(most := int(counts.max()), 1):
            raise UsageError(
                f"{bags.path}: {bags.bags[int(counts.argmax())]} has {most} classes, and {self.network_name} "
                f"{positions} positions in {self.size}x{self.size} pixels: choose a larger size or a smaller stride"
            )
        return positions


def _truth(bags: OwnBags, size: int) -> Truth:
    """Return the boxes of all images, in pixels of the squares."""
    things: list[list[tuple[int, list[float]]]] = [[] for _ in range(len(bags))]
    for image, boxes in enumerate(bags.marks or []):
        if boxes and bags.sizes is not None:
            width, height = bags.sizes[image].tolist()
            sides = fitted_boxes(np.array([box.place for box in boxes], np.float32), width, height, size)
            things[image] = [(box.cls, place) for box, place in zip(boxes, sides.tolist(), strict=True)]
    return truth_of(things, max([1, *map(len, things)]))
