# %% [markdown]
# # Your own table
# Each row of a table is an instance: the name of its bag, the classes that occur in the bag, and
# features. Here the table is made up: in each bag with a class, one instance has 3 added to one
# feature.

# %%
from pathlib import Path

import numpy as np
import pandas as pd

import milbench

folder = Path("milbench-example")
folder.mkdir(exist_ok=True)
rng = np.random.default_rng(0)
classes = ["nuthatch", "wren"]
rows = []
for bag in range(120):
    # Each class occurs in half of the bags.
    occurring = np.flatnonzero(rng.random(2) < 0.5)
    # Two to seven instances with five features.
    instances = rng.normal(size=(int(rng.integers(2, 8)), 5))
    for c in occurring:
        instances[rng.integers(len(instances)), c] += 3
    labels = ";".join(classes[c] for c in occurring)
    for instance in instances:
        features = {f"f{i}": value for i, value in enumerate(instance)}
        rows.append({"bag": f"recording {bag}", "labels": labels} | features)
table = folder / "birds.csv"
instances = pd.DataFrame(rows)
instances.to_csv(table, index=False)
instances.head(8).round(2)

# %% [markdown]
# `milbench data check milbench-example/birds.csv` says on the command line what is in the table.
# Now two losses on four folds: each is trained four times, and tested on the quarter of the bags
# that it has not seen.

# %%
comparison = milbench.compare(
    losses={"exact": {}, "noisy-or": {"head": "sigmoid"}},
    tasks={"feature-bags": {"table": str(table), "folds": 4, "validation": 0.0}},
    recipe={"epochs": 15, "lr": 1e-2, "evaluate_every": 15},
    name="birds",
    root=folder,
    in_process=True,
    progress=False,
)
comparison

# %% [markdown]
# The row *pooled features, extra trees* is a simple baseline: it sees one row for each bag. The
# difference between the losses, with an interval that allows for folds sharing training bags:

# %%
comparison.differences(metric="set_error").round(3)
