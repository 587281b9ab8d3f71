"""Files that are written, images that are read, and batches that are made ahead."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from milbench._utils.files import scratch_folder, write_atomically
from milbench._utils.images import bounded, eight_bits, unique_stems
from milbench.data.in_order import prefetched


def test_an_error_midway_names_the_file_and_leaves_it(tmp_path: Path) -> None:
    def fill(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "x").write_text("old")
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(tmp_path / "x", fill)
    assert caught.value.filename == str(tmp_path / "x")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("x", "old")]


def test_a_scratch_folder_is_gone_whatever_happens_in_it(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scratch_folder(tmp_path / "new", "crops") as folder:  # noqa: PT012
        (folder / "part").write_text("half")
        raise KeyboardInterrupt
    assert list((tmp_path / "new").iterdir()) == []


def test_an_error_of_the_next_batch_comes_in_its_place() -> None:
    def batches() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    found = prefetched(batches())
    assert next(found) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)


@pytest.mark.parametrize(
    "size", [(10, 10), (3000, 1), (1, 3000), (2000, 1500), (37, 911), (1000, 1)]
)
def test_an_image_is_shrunk_in_its_proportions(size: tuple[int, int]) -> None:
    width, height = bounded(*size, 1000)
    assert 1 <= width * height <= 1000
    if size[0] * size[1] <= 1000:
        assert (width, height) == size
    elif 1 not in size:
        assert (width + 1) * (height + 1) > 1000, "no smaller than it has to be"
        assert abs(width * size[1] - height * size[0]) <= max(
            size
        )  # each side is off by less than a pixel


def test_stems_are_unique_regardless_of_case() -> None:
    paths = [Path(name) for name in ("a/x.png", "b/x.jpg", "X.gif", "x-2.png", "y.png")]
    assert unique_stems(paths) == ["x", "x-2", "X-3", "x-2-2", "y"]


@pytest.mark.parametrize(("values", "expected"), [
    (np.array([[0, 257, 65535]], np.uint16), [0, 1, 255]),
    (np.array([[0, 0.5, 1]], np.float32), [0, 128, 255]),
    (np.array([[0, 51, 255]], np.float32), [0, 51, 255]),
    (np.array([[0, 100, 500]], np.float32), [0, 51, 255]),
    (np.array([[-5, np.nan, 1]], np.float32), [0, 0, 255]),
    (np.array([[0, 100, 200]], np.int32), [0, 100, 200]),
    (np.array([[0, 257, 65535]], np.int32), [0, 1, 255]),
    (np.array([[0, 100_000, 1_000_000]], np.int32), [0, 26, 255]),
])  # fmt: skip
def test_wide_pixels_are_scaled_to_eight_bits(values: np.ndarray, expected: list[int]) -> None:
    image = eight_bits(Image.fromarray(values))
    assert image.mode == "L"
    assert np.asarray(image).tolist() == [expected]


@pytest.mark.timeout(20)
def test_a_named_pipe_beside_a_scratch_folder_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".cache-left")
    with scratch_folder(tmp_path, "cache") as scratch:
        assert scratch.is_dir()
