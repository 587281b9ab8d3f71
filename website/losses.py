"""The pages of the losses, and an overview.

The page of a loss has its question, formula, use, pictures, a worked example, results beside other
losses, docstring and code.
"""

import re
from functools import cache
from typing import NamedTuple

from milbench.contracts.load import load_loss
from milbench.contracts.loss import Loss
from milbench.contracts.registry import losses
from website import REPOSITORY, lengths, loss_pictures, standing, worked_example
from website.line_charts import SMALL
from website.loss_panels import PANELS, Panel
from website.loss_pictures import ALL_PANELS, LEARNT, Same
from website.loss_traits import LEARNS_FROM, heads

OVERVIEW = """# Every loss in pictures

Four questions about a bag of twelve positions and two classes, cat and dog. At every position the
background has logit 0, and a class that is not mentioned −4 or less. All pictures of a question
have the same axes, so that losses can be compared; losses that learn weights are shown before
training. [What the symbols mean](../../losses.md).

{sections}
"""
OVERVIEW_SECTION = """## {question}
{caption} Across: {x_label}. Up: {y_label}.

<div class="pictures">
{pictures}
</div>

"""
SMALL_PICTURE = """<figure><figcaption>{names}</figcaption>{svg}</figure>"""
PAGE = """# {name}

{asks}

<div class="minimises" tabindex="0" role="region" aria-label="Formula" markdown>
{formula}
</div>

Learns from: {supervision} · head: {head} · [the code](#code)
· [what the symbols mean](../../losses.md)

```python
{use}```

## What it does
A bag has twelve positions and two classes, cat and dog. At every position the background has
logit 0, and a class that is not mentioned −4 or less.
[The same pictures of every loss](pictures.md).

{panels}

{same}{learnt}{softmax}{example}{standing}{lengths}
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
SOFTMAX_PANELS = """### With head=softmax
The classes and the background of a position share a total of 1, so that a place shows one class.

{panels}

"""
PANEL = """<figure><figcaption><strong>{question}</strong></figcaption>{svg}
<p>{caption}</p></figure>"""
LEARNT_PANELS = """### With learnt weights
As training might leave it, with {says}

{panels}

"""
STANDING = """## Where it stands
Set error in %, mean ± standard deviation of five seeds after some 2,000 steps (8,000 on synthetic
bags, 40 epochs on birds), beside no skill; ✓: may be the best of 21 (nowhere, if
nothing is learnt), ≤: then worse than it by at most so many points
([all losses, tuned alike](../../reports/all-losses/index.html)).

{table}

<div class="scrolled" tabindex="0" role="region" aria-label="Picture" markdown>
![The mean set error of {name} among all losses, task by task]({name}-standing.png)
</div>

*The large symbols in colour: {name}. Grey: the other losses.*

"""
NOT_COMPARED = "Not among [all losses](../../results.md#which-loss-is-best), since it {reason}.\n\n"
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
    made: dict[str, str | bytes] = {"reference/losses/pictures.md": _overview()}
    for name in losses().names():
        made[_path(name)] = _page(name)
        if standing.variants(name):
            made[f"reference/losses/{name}-standing.png"] = standing.picture(name)
    return made


def _overview() -> str:
    """Return the page with the pictures of all losses, panel by panel."""
    return OVERVIEW.format(sections="".join(_overview_section(panel) for panel in PANELS))


def _overview_section(panel: Panel) -> str:
    """Return the pictures of a panel; losses with the same picture share one."""
    pictures = []
    for group in loss_pictures.groups(panel):
        # Not Markdown, which would take a name for emphasis where it has a hyphen or underscore.
        names = ", ".join(f'<a href="{name}.html">{name}</a>' for name in group)
        svg = loss_pictures.picture(loss_pictures.built(group[0]), panel, SMALL)
        pictures.append(SMALL_PICTURE.format(names=names, svg=svg))
    return OVERVIEW_SECTION.format(
        question=panel.question,
        caption=panel.caption,
        x_label=panel.axes.x_label,
        y_label=panel.axes.y_label,
        pictures="\n".join(pictures),
    )


class Definition(NamedTuple):
    """What docs/losses.md says of a loss."""

    asks: str
    """A question in words."""
    formula: str
    """What the loss minimises."""


@cache
def definitions() -> dict[str, Definition]:
    """Return the definition of every loss, from the tables of docs/losses.md.

    Raises:
        ValueError: a built-in loss has no row with a formula there.
    """
    text = (REPOSITORY / "docs" / "losses.md").read_text("utf-8")
    found = {}
    for name, cells in ROW.findall(text):
        asks, *others = [cell.strip() for cell in cells.split(" | ")]
        with_formula = [cell for cell in others if "$" in cell]
        if with_formula:
            found[name] = Definition(asks, _completed(with_formula[0]))
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
    names = "|".join(losses().names())
    return re.sub(
        rf"^\| `({names})` \|",
        r"| [`\1`](reference/losses/\1.md) |",
        overview,
        flags=re.MULTILINE,
    )


def _page(name: str) -> str:
    """Return the page of a loss."""
    file = name.replace("-", "_")
    loss = loss_pictures.built(name)
    asks, formula = definitions()[name]
    return PAGE.format(
        name=name,
        asks=asks,
        formula=formula,
        supervision=LEARNS_FROM[loss.supervision],
        head=heads(loss),
        use=worked_example.use(name, loss),
        same=_same(name),
        panels=_panels(loss),
        learnt=_learnt(name),
        softmax=_softmax(name),
        example=worked_example.section(name, load_loss(name)),
        standing=_standing(name, loss),
        lengths=lengths.section(loss=name),
        file=file,
        cls=type(loss).__name__,
        code=(REPOSITORY / "losses" / f"{file}.py").read_text("utf-8"),
    )


def _panels(loss: Loss) -> str:
    """Return all panels of a loss."""
    panels = [
        PANEL.format(
            question=panel.question,
            caption=panel.caption,
            svg=loss_pictures.picture(loss, panel),
        )
        for panel in PANELS
    ]
    return '<div class="panels">\n' + "\n".join(panels) + "\n</div>"


def _learnt(name: str) -> str:
    """Return the panels of a loss with learnt weights, or "" if it learns none."""
    if name not in LEARNT:
        return ""
    return LEARNT_PANELS.format(says=LEARNT[name].says, panels=_panels(loss_pictures.learnt(name)))


def _softmax(name: str) -> str:
    """Return the panels of a loss whose other head is a softmax, or "" if it has none."""
    if "softmax" not in worked_example.other_heads(loss_pictures.built(name)):
        return ""
    return SOFTMAX_PANELS.format(panels=_panels(loss_pictures.built(name, head="softmax")))


def _same(name: str) -> str:
    """Return of which other losses the panels are those of this loss, too, and why; or ""."""
    paragraphs = []
    told = {name}
    for same in loss_pictures.same_as(name):
        others = [f"[`{other}`]({other}.md)" for other in same.losses if other not in told]
        told |= set(same.losses)
        *first, last = others
        names = f"{', '.join(first)} and {last}" if first else last
        paragraphs.append(f"{_which(same)} {names}{same.when}. {same.reason}\n\n")
    return "".join(paragraphs)


def _which(same: Same) -> str:
    """Return the beginning of a sentence that says which panels of losses are the same."""
    if same.panels == ALL_PANELS:
        return "The same four pictures as"
    questions = [panel.question for panel in PANELS if panel.name in same.panels]
    return f"The picture *{questions[0]}* is the same for"


def _standing(name: str, loss: Loss) -> str:
    """Return the results of a loss beside all losses, or why it was not compared with them."""
    table = standing.table(standing.variants(name))
    if table:
        return STANDING.format(name=name, table=table)
    if loss.supervision == "set":
        return NOT_COMPARED.format(reason="computes what `exact` does")
    return NOT_COMPARED.format(reason="sees more than label sets")


def _path(name: str) -> str:
    return f"reference/losses/{name}.md"
