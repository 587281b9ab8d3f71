"""The mean of the weights over the last steps of training, which is evaluated and kept in place of the last weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn

from milbench.api.recipe import Recipe


class Averaging:
    """The running mean of the weights of a model over the last share of its steps (Izmailov et al., UAI 2018).

    Training goes on with the weights themselves; the mean never enters it. Statistics of layers that normalise over
    batches are averaged as well. `first` is the number of steps after which the first weights count.
    """

    def __init__(self, recipe: Recipe, model: torch.nn.Module, steps: int) -> None:
        share = recipe.average_last
        self.model = model
        self.first = steps - max(1, math.floor((share or 0.0) * steps)) + 1
        # Without this function torch averages all weights in one operation where it can, which refuses whole numbers,
        # such as the number of batches that BatchNorm counts.
        self._mean = None if share is None else AveragedModel(model, avg_fn=get_swa_avg_fn(), use_buffers=True)

    def count(self, done: int) -> None:
        """Count the weights after `done` steps, if it is time for them."""
        if self._mean is not None and done >= self.first:
            self._mean.update_parameters(self.model)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the mean, if there is one by now, and then its own weights back."""
        own = copy.deepcopy(self.model.state_dict()) if self._mean is not None else None
        self.apply()
        try:
            yield
        finally:
            if own is not None:
                self.model.load_state_dict(own)

    def apply(self) -> None:
        """Give the model the mean for good, if there is one."""
        if self._mean is not None and int(self._mean.n_averaged) > 0:
            self.model.load_state_dict(self._mean.module.state_dict())

    def state_dict(self) -> dict[str, Any] | None:
        """Return the mean, for a checkpoint; None where nothing is averaged."""
        return None if self._mean is None else self._mean.state_dict()

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Set the mean to what `state_dict` returned."""
        if self._mean is not None and state is not None:
            self._mean.load_state_dict(state)
