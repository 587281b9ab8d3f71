from __future__ import annotations

from collections.abc import Iterator

import pytest

from milbench._utils.prefetch import prefetched


def test_what_goes_wrong_with_the_next_batch_is_raised_in_its_place() -> None:
    def batches() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    found = prefetched(batches())
    assert next(found) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)
