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
    """The running mean of the weights of a model from one step on, equally weighted (Izmailov et al., UAI 2018).

    Training goes on with the weights themselves; the mean never enters it. Statistics of layers that normalise over
    batches are averaged as well.

    Args:
        model: whose weights are averaged.
        first: the number of steps after which the first weights count; None: nothing is averaged.
    """

    def __init__(self, model: torch.nn.Module, first: int | None) -> None:
        self.model = model
        self.first = first
        # Without this function torch averages all weights in one operation where it can, which refuses whole numbers,
        # such as the number of batches that BatchNorm counts.
        self._mean = None if first is None else AveragedModel(model, avg_fn=get_swa_avg_fn(), use_buffers=True)

    @classmethod
    def of(cls, recipe: Recipe, model: torch.nn.Module, steps: int) -> Averaging:
        """Return the averaging of a recipe over a training of so many steps, before the first one.

        Examples:
            >>> Averaging.of(Recipe(average_last=0.25), torch.nn.Linear(1, 1), steps=100).first
            76
        """
        share = recipe.average_last
        return cls(model, None if share is None else steps - max(1, math.floor(share * steps)) + 1)

    @property
    def begun(self) -> bool:
        """Whether some weights count already."""
        return self._mean is not None and int(self._mean.n_averaged) > 0

    def count(self, done: int) -> None:
        """Count the weights after `done` steps, if it is time for them."""
        if self._mean is not None and self.first is not None and done >= self.first:
            self._mean.update_parameters(self.model)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the mean, if there is one by now, and then its own weights back."""
        if not self.begun:
            yield
            return
        own = copy.deepcopy(self.model.state_dict())
        self.apply()
        try:
            yield
        finally:
            self.model.load_state_dict(own)

    def apply(self) -> None:
        """Give the model the mean for good, if there is one."""
        if self._mean is not None and self.begun:
            self.model.load_state_dict(self._mean.module.state_dict())

    def state_dict(self) -> dict[str, Any] | None:
        """Return the mean, for a checkpoint; None where nothing is averaged."""
        return None if self._mean is None else self._mean.state_dict()

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Set the mean to what `state_dict` returned."""
        if self._mean is not None and state is not None:
            self._mean.load_state_dict(state)
