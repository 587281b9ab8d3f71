"""The classes of a bag's instances, drawn as independent ones on the condition that their label set is a given one."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench.families.label_set_prior import LabelSetPrior, contains


class ConditionedDraws:
    """Draws label sets from their prior, and then the classes of instances, exactly and one position at a time.

    Let r be the `rates` (C+1,) of independent instances, background last, and q_m(S) the probability that m of them
    have the label set S. Where m instances, which have to have the label set S, are still to be drawn, the next one

    - is background with a probability proportional to r_background q_{m-1}(S),
    - is of class c in S, and another one of c follows, to r_c q_{m-1}(S),
    - is of class c in S, and no other one of c follows, to r_c q_{m-1}(S - c).

    As instances are exchangeable, it does not matter which position is drawn first. No sum has alternating signs.
    """

    def __init__(self, prior: LabelSetPrior, rates: Tensor) -> None:
        self.prior = prior
        classes = len(rates) - 1
        sets, bits = torch.arange(2**classes), 2 ** torch.arange(classes)
        within, log_rates = contains(classes), rates.log()
        others = prior.log_independent[:-1]  # of the m - 1 instances after the next one
        again = others.unsqueeze(2).expand(-1, -1, classes)
        last = others[:, sets.unsqueeze(1) & ~bits]
        of_class = [(log_rates[:-1] + follow).masked_fill(~within, -torch.inf) for follow in (again, last)]
        outcomes = torch.cat([log_rates[-1] + others.unsqueeze(2), *of_class], dim=2).softmax(dim=2)
        steps = outcomes.cumsum(dim=2)
        self._steps = steps / steps[..., -1:]
        """(N, 2^C, 2C+1), by m - 1 and S. Rows of sets that m instances cannot have are NaN, and never looked at."""
        self._class = torch.cat([torch.tensor([classes]), torch.arange(classes), torch.arange(classes)])
        self._done = torch.cat([torch.zeros(1 + classes, dtype=torch.int64), bits])

    def __call__(self, sizes: Tensor, uniform: Tensor) -> Tensor:
        """Return the classes (B, K), C beyond the size of a bag, by draws (B, 1+K) for its label set and positions."""
        return self.given(sizes, self.prior.draw(sizes, uniform[:, 0]), uniform[:, 1:])

    def given(self, sizes: Tensor, sets: Tensor, uniform: Tensor) -> Tensor:
        """Return the classes (B, K) of bags of `sizes` (B,) and known label sets (B,), by draws (B, K) from [0, 1)."""
        left, drawn = sets, []
        for k in range(uniform.shape[1]):
            # Beyond its size a bag has to have the empty set, so that what is drawn is background.
            steps = self._steps[(sizes - k - 1).clamp(min=0), left]
            outcome = torch.searchsorted(steps, uniform[:, k : k + 1].contiguous(), right=True).squeeze(1)
            drawn.append(self._class[outcome])
            left = left - self._done[outcome]
        return torch.stack(drawn, dim=1)
