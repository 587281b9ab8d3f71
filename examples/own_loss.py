# %% [markdown]
# # A loss of one's own
# A loss is one class, in a notebook or in a file. Here it is compared with two built-in ones.

# %%
from pathlib import Path
from tempfile import mkdtemp

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import milbench
from milbench import Loss, bag_sizes


class MeanPooling(Loss):
    """A class occurs if its mean logit is positive."""

    name = "mean-pooling"
    head = "sigmoid"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.scores(logits, mask)
        by_class = binary_cross_entropy_with_logits(scores, labels.to(scores), reduction="none")
        return by_class.sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return logits[:, :-1].sum(dim=2) / bag_sizes(logits, mask).unsqueeze(1)


# %% [markdown]
# Three losses with three seeds. For each seed, all losses have the same bags and initial weights.
# Bags and steps are few: this is an example, not a result.

# %%
comparison = milbench.compare(
    losses=[MeanPooling, "exact", "one-vs-rest"],
    tasks={"synthetic-bags": {"bags_per_epoch": 320}},
    seeds=range(3),
    recipe={"epochs": 4},
    name="own-loss",
    root=Path(mkdtemp(prefix="milbench-example-")),
    in_process=True,
    progress=False,
)

# %%
print(*comparison.sentences, sep="\n")
print(comparison.table())

# %% [markdown]
# The page of the report, and what was measured as a tidy frame:

# %%
print(comparison.report())
print(comparison.frame.head())
