"""The scale on which losses are compared: shares as logits, other positive values as logarithms."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from milbench.report.statistics.sampling import Floats, SamplingNoise


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Values of losses (losses, seeds) on the scale of the comparison, the smaller the better."""

    values: Floats
    noise: SamplingNoise | None  # of `values`
    kind: str  # "logit", "log" or "" for values as they are
    sign: int  # -1 where the larger value of the metric is the better

    def metric(self, values: Floats) -> Floats:
        """Return values of this scale as values of the metric, with the sign that makes the smaller the better."""
        signed = self.sign * values
        with np.errstate(over="ignore"):
            back = special.expit(signed) if self.kind == "logit" else np.exp(signed) if self.kind == "log" else signed
        return np.asarray(self.sign * back)


def scaled(values: Floats, lower_is_better: bool, noise: SamplingNoise | None) -> Scaled:
    """Return values on the scale that makes their variances alike; zeros are moved off zero, and ones off one."""
    kind, moved, slopes = "", values, np.ones_like(values)
    least, rest = _least(values), _least(1 - values)
    if (values > 1).any() and not (values < 0).any():
        kind, moved = "log", np.maximum(values, least / 2)
        slopes = 1 / moved
    elif not (values < 0).any():
        kind, moved = "logit", np.clip(values, min(least, 0.5) / 2, 1 - min(rest, 0.5) / 2)
        if noise is not None:  # half an item wrong and half an item right, as for the logit of a binomial share
            items = np.where(noise.items > 0, noise.items, np.inf)
            moved = np.where(np.isfinite(items), (values + 0.5 / items) / (1 + 1 / items), moved)
        slopes = 1 / (moved * (1 - moved))
    if noise is not None:
        covariance = noise.covariance * slopes[:, :, None, None] * slopes
        noise = replace(noise, covariance=covariance, unit=noise.unit * slopes)
    on_scale = special.logit(moved) if kind == "logit" else np.log(moved) if kind == "log" else moved
    sign = 1 if lower_is_better else -1
    return Scaled(sign * on_scale, noise, kind, sign)


def _least(values: Floats) -> float:
    """Return the least value above zero."""
    return float(values[values > 0].min(initial=np.inf))
