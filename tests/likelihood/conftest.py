"""Settings of the likelihood tests: one thread and one seed, so that every run computes the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

settings.register_profile("likelihood", max_examples=25, deadline=None, derandomize=True)
settings.load_profile("likelihood")


@pytest.fixture(autouse=True)
def reproducible() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
