"""Bags of three features, and classifiers that are trained for a moment."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from milbench import BagClassifier, Network

NAMES = np.array(["owl", "wren"])
SGD = {
    "optimizer": "sgd",
    "schedule": "constant",
    "gradient_norm": "none",
    "weight_decay": 0.0,
    "head_init": "paper",
}
"""A recipe whose steps have the length of the gradient, from random biases."""


def sample_bags(seed: int, count: int = 60) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Return bags and label sets (B, 2): class c occurs where feature c of an instance is large."""
    rng = np.random.default_rng(seed)
    bags = []
    labels = np.zeros((count, 2), np.int64)
    for bag in range(count):
        size = rng.integers(2, 6)
        # Of four kinds of instances 2 and 3 are background.
        kinds = rng.integers(0, 4, size)
        is_background = kinds >= 2
        centres = 3 * np.eye(4)[kinds][:, :3]
        centres[is_background] = 0
        bags.append(centres + 0.3 * rng.normal(size=(size, 3)))
        labels[bag, kinds[~is_background]] = 1
    return bags, labels


def named(labels: NDArray[np.int64]) -> list[list[str]]:
    """Return label sets as lists of names."""
    return [NAMES[row > 0].tolist() for row in labels]


def short(**params: Any) -> BagClassifier:
    """Return a classifier that is trained for a moment."""
    settings: dict[str, Any] = {"epochs": 8, "recipe": {"lr": 1e-2}, "device": "cpu"}
    return BagClassifier(**settings | params)


class Line(Network):
    """A linear network, the same for every seed."""

    def __init__(self, features: int, classes: int, seed: int = 0) -> None:
        super().__init__()
        self.head = torch.nn.Linear(features, classes + 1)
        weights = torch.linspace(-1, 1, self.head.weight.numel()).view(-1, features)
        with torch.no_grad():
            self.head.weight.copy_(weights)
            self.head.bias.zero_()

    def forward(self, instances: torch.Tensor) -> torch.Tensor:
        fitted: torch.Tensor = self.head(instances).transpose(1, 2)
        return fitted


def standardised(
    bags: list[NDArray[np.float64]], weights: NDArray[Any] | None = None
) -> list[torch.Tensor]:
    """Return the bags as a classifier sees them, each by the weight of its bag."""
    sizes = [len(bag) for bag in bags]
    row_weights = None if weights is None else np.repeat(weights, sizes)
    rows = np.concatenate(bags)
    scaler = StandardScaler().fit(rows, sample_weight=row_weights)
    return list(torch.tensor(scaler.transform(rows)).float().split(sizes))
