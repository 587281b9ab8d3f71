from __future__ import annotations

import torch

from milbench.families.augmentation import augment


def named_pixels() -> torch.Tensor:
    """Two images where every pixel of every channel has a value of its own."""
    return torch.arange(2 * 3 * 64 * 64, dtype=torch.float64).view(2, 3, 64, 64)


def test_every_pixel_is_what_plain_python_says() -> None:
    images, boxes = named_pixels(), torch.tensor([[[10.0, 12, 20, 40], [61, 1, 64, 3]]]).expand(2, 2, 4)
    old = images.tolist()
    heights, widths, places, orders = [], [], [], []
    for seed in range(32):
        new, moved = augment(images, boxes, torch.Generator().manual_seed(seed))
        height, width = new.shape[2:]
        seen = new.tolist()
        heights.append(height)
        widths.append(width)
        # Read the draw off the first pixel and the order of the channels, then predict all the others.
        channels = [int(seen[0][c][0][0]) // 4096 for c in range(3)]
        top, left = divmod(int(seen[0][0][0][0]) % 4096, 64)
        places.append((top, left))
        orders.append(tuple(channels))
        for y in (0, 1, height // 2, height - 1):
            for x in (0, 1, width // 3, width - 1):
                row, column = top + int((y + 0.5) * 60 / height), left + int((x + 0.5) * 60 / width)
                for c in range(3):
                    assert seen[1][c][y][x] == old[1][channels[c]][row][column]
        for k, box in enumerate([(10, 12, 20, 40), (61, 1, 64, 3)]):
            expected = [
                min(max(v - o, 0), 60) * size / 60
                for v, o, size in zip(box, (left, top) * 2, (width, height) * 2, strict=True)
            ]
            torch.testing.assert_close(moved[0, k], torch.tensor(expected))
    assert 50 <= min(heights + widths) < 54
    assert 66 < max(heights + widths) <= 70
    assert heights != widths
    assert {v for place in places for v in place} == {0, 1, 2, 3, 4}
    assert len(set(orders)) == 6


def test_all_images_of_a_batch_change_alike_and_the_generator_alone_decides() -> None:
    images, boxes = named_pixels(), torch.zeros(2, 1, 4)
    one, _ = augment(images, boxes, torch.Generator().manual_seed(1))
    torch.manual_seed(99)
    two, _ = augment(images, boxes, torch.Generator().manual_seed(1))
    assert torch.equal(one, two)
    assert torch.equal(one[1] - one[0], torch.full_like(one[0], 3 * 64 * 64))
