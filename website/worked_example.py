"""The bag of docs/five-steps.md on the page of a loss: what the loss gives for each label set."""

from collections.abc import Iterable
from typing import Any, get_args

import torch
from torch import Tensor

from milbench.contracts.load import load_loss
from milbench.contracts.loss import Loss
from milbench.contracts.parameters import constructor_parameters, type_of

TABLE = ((0.6, 0.3, 0.1), (0.1, 0.2, 0.7), (0.1, 0.1, 0.8))
"""The probabilities of cat, dog and background at each of three positions."""
LABEL_SETS = {
    "{cat}": (True, False),
    "{dog}": (False, True),
    "{cat, dog}": (True, True),
    "{}": (False, False),
}
SECTION = """## A worked example
The bag of [the exact likelihood in five steps](../../five-steps.md) has three positions, and the
classes cat and dog. A network gives these probabilities:

| position | cat | dog | background |
|---|---|---|---|
{probabilities}

{logits}

{meaning}

{values}

The bag with the label set {{cat, dog}}, in Python:

```python
import torch
from milbench import load_loss

table = torch.tensor({table})
loss = load_loss("{name}"){built}
print(loss(table.T.{function}().unsqueeze(0), torch.tensor([[True, True]])))
```

"""
LOGITS = {
    "softmax": "The loss takes a softmax of its logits, so the logit of each probability $p$ is "
    r"$\log p$.",
    "sigmoid": "The loss has a detector for each class, without a softmax, so the logit of each "
    r"probability $p$ is $\log \frac{p}{1 - p}$. It does not read the background.",
}
"""In words, how the probabilities become logits, by the head of a loss."""
FUNCTIONS = {"softmax": "log", "sigmoid": "logit"}
"""The function of torch that makes logits of probabilities, by the head of a loss."""


def section(name: str, loss: Loss) -> str:
    """Return the section of a loss, or "" if it learns from more than label sets."""
    if loss.supervision != "set":
        return ""
    head = loss.head
    columns = {f"`{name}`": values(name)}
    logits = LOGITS[head]
    if "softmax" in _other_heads(loss):
        columns[f"`{name} (softmax)`"] = values(name, head="softmax")
        logits += r" With the setting `head=softmax` it is $\log p$."
    meaning = "The loss of the bag in nats, by its label set:"
    if name != "exact":
        columns["`exact`"] = values("exact")
        meaning = "The loss of the bag by its label set, in nats, beside `exact`:"
    if list(loss.parameters()) or _is_built(name):
        meaning = f"The weights of the loss are those before training. {meaning}"
    return SECTION.format(
        probabilities=_rows((str(k), *row) for k, row in enumerate(TABLE, start=1)),
        logits=logits,
        meaning=meaning,
        values=_table_of_values(columns),
        table=[list(row) for row in TABLE],
        name=name,
        built=".build(num_classes=2)" if _is_built(name) else "",
        function=FUNCTIONS[head],
    )


def values(name: str, **settings: Any) -> list[float]:
    """Return the loss of the bag for each of LABEL_SETS."""
    loss = load_loss(name, reduction="none", **settings).build(num_classes=2)
    logits = _logits(loss).expand(len(LABEL_SETS), -1, -1)
    with torch.no_grad():
        found: list[float] = loss(logits, torch.tensor(list(LABEL_SETS.values()))).tolist()
    return found


def _logits(loss: Loss) -> Tensor:
    """Return (cat, dog and background, three positions), the logits for the head of a loss."""
    probabilities = torch.tensor(TABLE).T
    return probabilities.log() if loss.head == "softmax" else probabilities.logit()


def _other_heads(loss: Loss) -> set[str]:
    """Return the heads that a loss may have by a setting, without the one that it has."""
    parameter = constructor_parameters(type(loss)).get("head")
    if parameter is None:
        return set()
    return set(get_args(type_of(parameter))) - {loss.head}


def _is_built(name: str) -> bool:
    """Return whether a loss has weights only after it was told the number of classes."""
    loss = load_loss(name)
    before = len(list(loss.parameters()))
    return len(list(loss.build(num_classes=2).parameters())) != before


def _table_of_values(columns: dict[str, list[float]]) -> str:
    """Return a table with a row for each label set and a column for each loss."""
    head = "\n".join([f"| label set | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"])
    of_label_sets = zip(LABEL_SETS, *columns.values(), strict=True)
    rows = _rows((label_set, *(f"{value:.4f}" for value in of)) for label_set, *of in of_label_sets)
    return f"{head}\n{rows}"


def _rows(rows: Iterable[tuple[Any, ...]]) -> str:
    """Return rows of a table in Markdown."""
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)
