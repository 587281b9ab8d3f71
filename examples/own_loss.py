# %% [markdown]
# # A loss of your own
# A loss is one class, in a notebook or in a file. Here a new one is compared with two built-in
# ones. Two methods are needed: `bag_loss` is trained, and `scores` says how strongly each class is
# present.

# %%
from pathlib import Path

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
# Bags and steps are few: this is an example, not a result. What is computed lies in the folder
# `milbench-example`, and is not computed again when the cell is run once more.

# %%
comparison = milbench.compare(
    losses=[MeanPooling, "exact", "one-vs-rest"],
    tasks={"synthetic-bags": {"bags_per_epoch": 320}},
    seeds=range(3),
    recipe={"epochs": 4, "evaluate_every": 4, "evaluation_bags": 500},
    name="own-loss",
    root=Path("milbench-example"),
    in_process=True,
    progress=False,
)

# %% [markdown]
# A comparison shows its verdict and the table of all losses. ✓: the data do not exclude that the
# loss is the best.

# %%
comparison

# %% [markdown]
# The same as a frame, for what you want to do with it:

# %%
comparison.table()[["mean", "sd", "contender", "worse_by", "seeds"]].round(3)

# %% [markdown]
# The page of the report, with pictures and what limits the comparison:

# %%
print(comparison.report().relative_to(Path.cwd()))
