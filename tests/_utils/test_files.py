"""Utilities for writing files, for reading images, and for making batches ahead."""

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

    file = tmp_path / "x"
    file.write_text("old")
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(file, fill)
    assert caught.value.filename == str(file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_scratch_folder_is_gone_whatever_happens_in_it(tmp_path: Path) -> None:
    parent = tmp_path / "new"

    def be_interrupted() -> None:
        with scratch_folder(parent, "crops") as folder:
            (folder / "part").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert list(parent.iterdir()) == []


def test_an_error_of_a_batch_is_raised_when_the_batch_is_asked_for() -> None:
    def batches() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    found = prefetched(batches())
    assert next(found) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)


MOST_PIXELS = 1000


@pytest.mark.parametrize(("width", "height"), [(10, 10), (1000, 1)])
def test_a_small_image_keeps_its_size(width: int, height: int) -> None:
    assert bounded(width, height, MOST_PIXELS) == (width, height)


@pytest.mark.parametrize(("width", "height"), [(2000, 1500), (37, 911)])
def test_a_large_image_is_shrunk_in_its_proportions(width: int, height: int) -> None:
    new_width, new_height = bounded(width, height, MOST_PIXELS)
    assert new_width * new_height <= MOST_PIXELS
    assert (new_width + 1) * (new_height + 1) > MOST_PIXELS, "no smaller than it has to be"
    # The proportions are kept as far as whole pixels allow.
    assert abs(new_width * height - new_height * width) <= max(width, height)


@pytest.mark.parametrize(("width", "height"), [(3000, 1), (1, 3000)])
def test_a_strip_is_shrunk_to_what_fits(width: int, height: int) -> None:
    new_width, new_height = bounded(width, height, MOST_PIXELS)
    assert 1 <= new_width * new_height <= MOST_PIXELS


def test_stems_are_unique_regardless_of_case() -> None:
    paths = [Path(name) for name in ("a/x.png", "b/x.jpg", "X.gif", "x-2.png", "y.png")]
    assert unique_stems(paths) == ["x", "x-2", "X-3", "x-2-2", "y"]


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        # White is 65,535, and 65,535 / 255 = 257.
        pytest.param("uint16", [0, 257, 65535], [0, 1, 255], id="16 bits"),
        # White is 1, and 0.5 * 255 = 127.5.
        pytest.param("float32", [0, 0.5, 1], [0, 128, 255], id="floats up to 1"),
        # White is 255.
        pytest.param("float32", [0, 51, 255], [0, 51, 255], id="floats up to 255"),
        # White is 500, and 100 / 500 * 255 = 51.
        pytest.param("float32", [0, 100, 500], [0, 51, 255], id="larger floats"),
        pytest.param("float32", [-5, np.nan, 1], [0, 0, 255], id="floats that are no brightness"),
        pytest.param("int32", [0, 100, 200], [0, 100, 200], id="8 bits in 32"),
        pytest.param("int32", [0, 257, 65535], [0, 1, 255], id="16 bits in 32"),
        # White is 1,000,000, and 0.1 * 255 = 25.5, rounded to the even 26.
        pytest.param("int32", [0, 100_000, 1_000_000], [0, 26, 255], id="32 bits"),
    ],
)
def test_wide_pixels_are_scaled_to_eight_bits(
    dtype: str, values: list[float], expected: list[int]
) -> None:
    image = eight_bits(Image.fromarray(np.array([values], dtype)))
    assert image.mode == "L"
    assert np.asarray(image).tolist() == [expected]


@pytest.mark.timeout(20)
def test_a_named_pipe_beside_a_scratch_folder_does_not_block(tmp_path: Path) -> None:
    # Opening a named pipe waits until another process opens it, too.
    os.mkfifo(tmp_path / ".cache-left")
    with scratch_folder(tmp_path, "cache") as scratch:
        assert scratch.is_dir()
