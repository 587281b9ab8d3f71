from __future__ import annotations

import torch

from milbench import AllConvolutional, Bags, InstanceMLP, Layer

LAYERS = (Layer(4, 3, stride=2, padding=1), Layer(3, 3))
"""The centres are half a pixel plus two pixels a position, moved inwards by the second layer: 2.5, 4.5, ..."""


def test_positions_have_centres_in_images_alone() -> None:
    image = Bags(torch.zeros(2, 1, 12, 10), torch.zeros(2, 2, dtype=torch.bool))
    points = Bags(torch.zeros(2, 12, 10), image.labels)
    network = AllConvolutional(LAYERS, 1, seed=0)
    centres = network.centres_in(image)
    assert centres is not None
    assert [c.tolist() for c in centres] == [[2.5, 4.5, 6.5, 8.5], [2.5, 4.5, 6.5]]
    assert network.centres_in(points) is None
    perceptron = InstanceMLP((10, 3), seed=0)
    assert perceptron.centres_in(points) is None
    assert perceptron.as_input(points.instances) is points.instances
