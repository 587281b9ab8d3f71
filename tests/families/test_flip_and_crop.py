from __future__ import annotations

import torch

from milbench import generator
from milbench.families.augmentation import flip_and_crop

IMAGES = torch.arange(40 * 3 * 6 * 8, dtype=torch.int64).view(40, 3, 6, 8)


def test_about_half_of_the_images_are_mirrored() -> None:
    found = flip_and_crop(IMAGES, generator(0), flip=True, crop=0)
    kept, mirrored = ((found == other).flatten(1).all(dim=1) for other in (IMAGES, IMAGES.flip(3)))
    assert (kept ^ mirrored).all()
    assert 10 <= int(mirrored.sum()) <= 30


def test_images_are_shifted_by_up_to_so_many_pixels_each_by_its_own_draw() -> None:
    images = torch.zeros(200, 1, 9, 9, dtype=torch.uint8)
    images[:, :, 4, 4] = 255
    found = flip_and_crop(images, generator(0), flip=False, crop=2)
    assert found.shape == images.shape
    places = (found[:, 0] == 255).nonzero()
    assert len(places) == 200, "no pixel is made or lost"
    assert {tuple(place) for place in places[:, 1:].tolist()} == {(y, x) for y in range(2, 7) for x in range(2, 7)}


def test_only_the_generator_decides() -> None:
    torch.manual_seed(1)
    first = flip_and_crop(IMAGES, generator(3), flip=True, crop=2)
    torch.manual_seed(2)
    assert torch.equal(flip_and_crop(IMAGES, generator(3), flip=True, crop=2), first)
    assert not torch.equal(flip_and_crop(IMAGES, generator(4), flip=True, crop=2), first)
