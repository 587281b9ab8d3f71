"""Small bags of three features, and classifiers that train quickly, for tests of the estimator."""

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
"""A recipe whose steps follow the gradient as it is; the biases of the head begin at random."""


def sample_bags(seed: int, count: int = 60) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Return bags and label sets (B, 2): an instance shows class c if its feature c is about 3."""
    rng = np.random.default_rng(seed)
    bags = []
    labels = np.zeros((count, 2), np.int64)
    for bag in range(count):
        size = rng.integers(2, 6)
        # Kinds 0 and 1 are the classes, kinds 2 and 3 are background.
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
    """Return a classifier that is trained for 8 epochs only, with changes of its parameters."""
    settings: dict[str, Any] = {"epochs": 8, "recipe": {"lr": 1e-2}, "device": "cpu"}
    return BagClassifier(**settings | params)


class Line(Network):
    """A linear network whose weights are the same for every seed."""

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
    """Return bags with standardised features, as a classifier gives them to its network.

    The instances of a bag count with its weight in the mean and the deviation.
    """
    sizes = [len(bag) for bag in bags]
    row_weights = None if weights is None else np.repeat(weights, sizes)
    rows = np.concatenate(bags)
    scaler = StandardScaler().fit(rows, sample_weight=row_weights)
    return list(torch.tensor(scaler.transform(rows)).float().split(sizes))
