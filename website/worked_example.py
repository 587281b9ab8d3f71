"""The bag of docs/five-steps.md on the page of a loss: what the loss gives for each label."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from milbench.contracts.load import load_loss
from milbench.contracts.loss import Loss
from milbench.contracts.parameters import constructor_parameters, type_of

TABLE = ((0.6, 0.3, 0.1), (0.1, 0.2, 0.7), (0.1, 0.1, 0.8))
"""The probabilities of cat, dog and background at each of three positions."""
Label = tuple[int, ...]
"""A label as a loss is told it: which classes occur, or a target."""
LABEL_SETS: dict[str, Label] = {
    "{cat}": (True, False),
    "{dog}": (False, True),
    "{cat, dog}": (True, True),
    "{}": (False, False),
}
TARGETS: dict[str, dict[str, Label]] = {
    "count": {
        "one cat and one dog": (1, 1),
        "two cats": (2, 0),
        "one cat": (1, 0),
        "nothing": (0, 0),
    },
    "order": {
        "a cat, then a dog": (0, 1),
        "a dog, then a cat": (1, 0),
        "a cat": (0, -1),
        "nothing": (-1, -1),
    },
    "position": {
        "cat, dog, background": (0, 1, 2),
        "cat, background, background": (0, 2, 2),
        "background, background, background": (2, 2, 2),
    },
}
"""What losses with more supervision are told of the bag, in words and as their target."""
LABEL_NAMES = {
    "set": "label set",
    "count": "counts",
    "order": "classes in their order",
    "position": "the class at each position",
}
"""The heading of what the label says, by the supervision of a loss."""
SECTION = """## A worked example
The bag of [the exact likelihood in five steps](../../five-steps.md) has three positions, and the
classes cat and dog. A network gives these probabilities:

| position | cat | dog | background |
|---|---|---|---|
{probabilities}

{logits}

{meaning}

{values}

{remark}The bag with the label *{label}*, in Python:

```python
{code}```

"""
CODE = """import torch
from milbench import load_loss

table = torch.tensor({table})
logits = table.T.{function}().unsqueeze(0)
labels = torch.tensor([{label_set}])
{target}loss = load_loss("{name}"){built}
print(loss(logits, labels{argument}))
"""
USE = """import torch
from milbench import load_loss

{head}loss = load_loss("{name}"){built}
# 2 bags, 2 classes and the background, 4 positions
logits = torch.randn(2, 3, 4, requires_grad=True)
# the classes that occur in each bag
labels = torch.tensor({labels})
{target}loss(logits, labels{argument}).backward()
"""
HEAD_OF_USE = """# its head is a {head}; for a {other}: load_loss("{name}", head="{other}")
"""
TARGETS_OF_USE = {
    "count": """# how often each class occurs
target = torch.tensor([[1, 1], [2, 0]])
""",
    "order": """# the classes in their order; -1: no further one
target = torch.tensor([[0, 1], [0, -1]])
""",
    "position": """# the class at each position; 2: background
target = torch.tensor([[0, 1, 2, 2], [0, 0, 2, 2]])
""",
}
BOTH_HEADS = (
    r"Both heads get the logits $\log p$. A softmax makes $p$ of them again, "
    "a sigmoid $p / (1 + p)$."
)
"""How the probabilities become logits on the page of a loss that may have either head."""
LOGITS = {
    "softmax": "The loss takes a softmax of its logits, so the logit of each probability $p$ is "
    r"$\log p$.",
    "sigmoid": "The loss has a detector for each class, without a softmax, so the logit of each "
    r"probability $p$ is $\log \frac{p}{1 - p}$. It does not read the background.",
    "class": "The loss averages the logits of each class over positions, and takes a softmax of "
    r"the classes. The logit of each probability $p$ is $\log p$. It does not read the background.",
}
"""In words, how the probabilities become logits, by the head of a loss."""
REMARKS = {
    "cross-entropy": "Cat and dog have the same loss by chance: their probabilities have the same "
    "product over positions, 0.6 · 0.1 · 0.1 = 0.3 · 0.2 · 0.1.\n\n",
}
"""What is said below the values of a loss."""
FUNCTIONS = {"softmax": "log", "sigmoid": "logit", "class": "log"}
"""The function of torch that makes logits of probabilities, by the head of a loss."""


def use(name: str, loss: Loss) -> str:
    """Return the few lines of code with which somebody uses a loss."""
    target = TARGETS_OF_USE.get(loss.supervision, "") if loss.takes_target else ""
    heads = [HEAD_OF_USE.format(name=name, head=loss.head, other=o) for o in other_heads(loss)]
    return USE.format(
        name=name,
        built=_build_call(name),
        labels="[[1, 0], [0, 1]]" if loss.head == "class" else "[[1, 1], [1, 0]]",
        head="".join(heads),
        target=target,
        argument=", target=target" if target else "",
    )


def section(name: str, loss: Loss) -> str:
    """Return the section of a loss."""
    columns = {f"`{name}`": values(name)}
    logits = LOGITS[loss.head]
    if "softmax" in other_heads(loss):
        columns[f"`{name} (softmax)`"] = values(name, head="softmax")
        logits = BOTH_HEADS
    if name != "exact":
        columns["`exact`"] = _values_of_exact(loss)
    return SECTION.format(
        probabilities=_rows((str(k), *row) for k, row in enumerate(TABLE, start=1)),
        logits=logits,
        meaning=_meaning(name, loss),
        values=_table_of_values(LABEL_NAMES[_label_kind(loss)], columns, list(_labels(loss))),
        remark=REMARKS.get(name, ""),
        label=_shown_label(loss),
        code=_code(name, loss),
    )


def values(name: str, **settings: Any) -> list[float]:
    """Return the loss of the bag for each label that its page lists."""
    loss = load_loss(name, reduction="none", **settings).build(num_classes=2)
    labels = list(_labels(loss).values())
    label_sets = torch.tensor([_label_set(loss, label) for label in labels])
    logits = _logits(loss).expand(len(labels), -1, -1)
    target = torch.tensor(labels) if loss.takes_target else None
    with torch.no_grad():
        found: list[float] = loss(logits, label_sets, target=target).tolist()
    return found


def _values_of_exact(loss: Loss) -> list[float]:
    """Return the loss `exact` of the bag, for the label set of each label that a page lists."""
    exact = load_loss("exact", reduction="none")
    label_sets = torch.tensor([_label_set(loss, label) for label in _labels(loss).values()])
    found: list[float] = exact(_logits(exact).expand(len(label_sets), -1, -1), label_sets).tolist()
    return found


def _label_kind(loss: Loss) -> str:
    """Return what the label of a bag says: a loss without a target is told the label set."""
    return loss.supervision if loss.takes_target else "set"


def _labels(loss: Loss) -> Mapping[str, Label]:
    """Return the labels that the page of a loss lists, in words and as the loss is told them."""
    if loss.takes_target:
        return TARGETS[loss.supervision]
    if loss.head == "class":
        # Its bags show exactly one class.
        return {words: label for words, label in LABEL_SETS.items() if sum(label) == 1}
    return LABEL_SETS


def _label_set(loss: Loss, label: Label) -> list[bool]:
    """Return whether cat and dog occur in a bag with a label."""
    if _label_kind(loss) in ("set", "count"):
        return [number > 0 for number in label]
    return [cls in label for cls in (0, 1)]


def _shown_label(loss: Loss) -> str:
    """Return the label of the bag in the code: {cat, dog}, or else the first one."""
    labels = list(_labels(loss))
    return "{cat, dog}" if "{cat, dog}" in labels else labels[0]


def _code(name: str, loss: Loss) -> str:
    """Return code that prints one value of the table."""
    label = _labels(loss)[_shown_label(loss)]
    return CODE.format(
        table=[list(row) for row in TABLE],
        function=_function(loss),
        label_set=_label_set(loss, label),
        target=f"target = torch.tensor([{list(label)}])\n" if loss.takes_target else "",
        name=name,
        built=_build_call(name),
        argument=", target=target" if loss.takes_target else "",
    )


def _meaning(name: str, loss: Loss) -> str:
    """Return a sentence about the table of values."""
    said = LABEL_NAMES[_label_kind(loss)].removeprefix("the ")
    meaning = f"The loss of the bag in nats, by the {said}:"
    if name != "exact":
        meaning = f"The loss of the bag in nats, by the {said}, beside `exact`:"
    if loss.takes_target:
        meaning = f"{meaning[:-1]}, which is told the label set alone:"
    if list(loss.parameters()) or _build_call(name):
        meaning = f"The weights of the loss are those before training. {meaning}"
    return meaning


def _function(loss: Loss) -> str:
    """Return the function of torch that makes logits of probabilities.

    A loss that may have either head gets the same logits for both, so that they can be compared.
    """
    return "log" if other_heads(loss) else FUNCTIONS[loss.head]


def _logits(loss: Loss) -> Tensor:
    """Return (cat, dog and background, three positions), the logits for a loss."""
    logits: Tensor = getattr(torch.tensor(TABLE).T, _function(loss))()
    return logits


def other_heads(loss: Loss) -> set[str]:
    """Return the heads that a loss may have by a setting, without the one that it has."""
    parameter = constructor_parameters(type(loss)).get("head")
    if parameter is None:
        return set()
    return set(get_args(type_of(parameter))) - {loss.head}


def _build_call(name: str) -> str:
    """Return the call after which a loss has its weights, or "" if it needs none."""
    loss = load_loss(name)
    before = len(list(loss.parameters()))
    after = len(list(loss.build(num_classes=2).parameters()))
    return ".build(num_classes=2)" if after != before else ""


def _table_of_values(heading: str, columns: dict[str, list[float]], labels: list[str]) -> str:
    """Return a table with a row for each label and a column for each loss."""
    head = "\n".join([f"| {heading} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"])
    of_labels = zip(labels, *columns.values(), strict=True)
    rows = _rows((label, *(f"{value:.4f}" for value in of)) for label, *of in of_labels)
    return f"{head}\n{rows}"


def _rows(rows: Iterable[tuple[Any, ...]]) -> str:
    """Return rows of a table in Markdown."""
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)
