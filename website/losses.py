"""The pages of the losses, and an overview.

The page of a loss has its formula, picture, a worked example, results beside other losses,
docstring and code.
"""

import re
from functools import cache
from typing import get_args

from milbench.contracts.load import load_loss
from milbench.contracts.loss import Loss
from milbench.contracts.parameters import constructor_parameters, type_of
from milbench.contracts.registry import losses
from website import REPOSITORY, lengths, standing, worked_example
from website.loss_pictures import picture

OVERVIEW = """# Every loss in pictures

The bag of all pictures has two positions and one class (`cross-entropy`: one position).
The axes are the logits of the class at the two positions; the background has logit 0.
Dark is large. [What the symbols mean](../../losses.md).

<div class="cards wide" markdown>
{cards}
</div>
"""
CARD = """<div class="card" markdown>
**[{name}]({name}.md)**

{formula}

[![{name}]({name}.png)]({name}.md)
</div>
"""
PAGE = """# {name}

<div class="minimises" markdown>
{formula}
</div>

Learns from: {supervision} · head: {head} · [the code](#code)
· [what the symbols mean](../../losses.md)

## What it sees
<div class="scrolled" markdown>
![{caption}]({name}.png)
</div>

*{caption}*

{example}{standing}{lengths}
## In detail

::: losses.{file}.{cls}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      show_bases: false
      members: []

## Code
`losses/{file}.py`

```python
{code}```
"""
STANDING = """## Where it stands
Set error in %, mean ± standard deviation of five seeds after some 2,000 steps (8,000 on synthetic
bags, 40 epochs on birds), beside no skill; ✓: may be the best of 21 (nowhere, if
nothing is learnt), ≤: then worse than it by at most so many points
([all losses, tuned alike](../../reports/all-losses/index.html)).

{table}

<div class="scrolled" markdown>
![The mean set error of {name} among all losses, task by task]({name}-standing.png)
</div>

*The large symbols in colour: {name}. Grey: the other losses.*

"""
NOT_COMPARED = "Not among [all losses](../../results.md#which-loss-is-best), since it {reason}.\n\n"
LEARNS_FROM = {
    "set": "label sets",
    "count": "counts of classes",
    "order": "the order of classes",
    "position": "the class at each position",
}
"""In words, what the label of a bag says, by the supervision of a loss."""
HOLDS_CLASS = {
    "set": "that holds the class",
    "count": "that holds the class once",
    "order": "that holds the class once",
    "position": "that holds the class at the first position",
}
"""What the caption of a picture says of the bag with the class, by the supervision of a loss."""
OF_PRESENCE = ", in the binary cross-entropy of every class"
"""Words after a formula that gives only the presence P_c, to say how the loss is made from it."""
ROW = re.compile(r"^\| `([\w-]+)` \|(.*)\|$", re.MULTILINE)
"""A pattern of a row of a table of docs/losses.md: the name of a loss, and the other cells."""


def titles() -> list[dict[str, str]]:
    """Return title and path of every page, in the order of the navigation."""
    overview = {"In pictures": "reference/losses/pictures.md"}
    return [overview, *[{name: _path(name)} for name in losses().names()]]


def files() -> dict[str, str | bytes]:
    """Return the pages with their pictures."""
    names = losses().names()
    cards = "\n".join(CARD.format(name=name, formula=formulas()[name]) for name in names)
    made: dict[str, str | bytes] = {"reference/losses/pictures.md": OVERVIEW.format(cards=cards)}
    for name in names:
        loss = load_loss(name, reduction="none")
        made[_path(name)] = _page(name, loss)
        made[f"reference/losses/{name}.png"] = picture(loss)
        if standing.variants(name):
            made[f"reference/losses/{name}-standing.png"] = standing.picture(name)
    return made


@cache
def formulas() -> dict[str, str]:
    """Return what each loss minimises, from the tables of docs/losses.md.

    Raises:
        ValueError: a built-in loss has no row there.
    """
    text = (REPOSITORY / "docs" / "losses.md").read_text("utf-8")
    found = {}
    for name, cells in ROW.findall(text):
        with_formula = [cell.strip() for cell in cells.split(" | ") if "$" in cell]
        if with_formula:
            found[name] = _completed(with_formula[0])
    missing = set(losses().names()) - set(found)
    if missing:
        names = ", ".join(sorted(missing))
        raise ValueError(f"docs/losses.md has no row with a formula for {names}")
    return found


def _completed(formula: str) -> str:
    """Return a complete formula: for some losses the tables give only the presence of a class."""
    if formula.startswith("$P_c"):
        return formula + OF_PRESENCE
    return formula


def linked(overview: str) -> str:
    """Return the text of docs/losses.md with each loss in its tables linked to its page.

    Only the site has these pages.
    """
    return re.sub(
        r"^\| `([\w-]+)` \|(?=.*\$)",
        r"| [`\1`](reference/losses/\1.md) |",
        overview,
        flags=re.MULTILINE,
    )


def _page(name: str, loss: Loss) -> str:
    """Return the page of a loss."""
    file = name.replace("-", "_")
    return PAGE.format(
        name=name,
        supervision=LEARNS_FROM[loss.supervision],
        head=_heads(loss),
        file=file,
        cls=type(loss).__name__,
        caption=caption(loss),
        example=worked_example.section(name, loss),
        formula=formulas()[name],
        standing=_standing(name, loss),
        lengths=lengths.section(loss=name),
        code=(REPOSITORY / "losses" / f"{file}.py").read_text("utf-8"),
    )


def _heads(loss: Loss) -> str:
    """Return the heads that a loss may have."""
    parameter = constructor_parameters(type(loss)).get("head")
    if parameter is None:
        return loss.head
    return " or ".join(get_args(type_of(parameter)))


def _standing(name: str, loss: Loss) -> str:
    """Return the results of a loss beside all losses, or why it was not compared with them."""
    table = standing.table(standing.variants(name))
    if table:
        return STANDING.format(name=name, table=table)
    if loss.supervision == "set":
        return NOT_COMPARED.format(reason="computes what `exact` does")
    return NOT_COMPARED.format(reason="sees more than label sets")


def caption(loss: Loss) -> str:
    """Return what the picture of a loss shows, in a sentence."""
    if loss.head == "class":
        return "The loss of a bag of one position, by the logit of its class."
    presence = "presence" if loss.presence_is_log_odds else "presence score"
    return (
        f"The loss of a bag {HOLDS_CLASS[loss.supervision]}, of one that does not, "
        f"and the {presence}, by the logits at two positions."
    )


def _path(name: str) -> str:
    return f"reference/losses/{name}.md"
