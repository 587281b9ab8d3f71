"""The pages of the losses: what each minimises, from its docstring, and how it looks on a bag of two positions."""

from __future__ import annotations

from milbench.api.loss import Loss
from milbench.api.registry import losses
from website.loss_pictures import picture

OVERVIEW = """# Every loss in pictures

The bag of all pictures has two positions and one class (`cross-entropy`: one position). The axes are the logits of the
class at the two positions; the background has logit 0. Dark is large.

<div class="cards" markdown>
{cards}
</div>
"""
CARD = """<div class="card" markdown>
**[{name}]({name}.md)**

[![{name}]({name}.png)]({name}.md)
</div>
"""
PAGE = """# {name}

| supervision | head | file |
|---|---|---|
| {supervision} | {head} | `losses/{file}.py` |

<div class="scrolled" markdown>
![{caption}]({name}.png)
</div>

*{caption}*

::: losses.{file}.{cls}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      show_bases: false
      members: []
"""


def titles() -> list[dict[str, str]]:
    """Return title and path of every page, in the order of the navigation."""
    return [{"In pictures": "reference/losses/index.md"}, *({name: _path(name)} for name in losses().names())]


def files() -> dict[str, str | bytes]:
    """Return the pages with their pictures."""
    made: dict[str, str | bytes] = {
        "reference/losses/index.md": OVERVIEW.format(cards="\n".join(CARD.format(name=n) for n in losses().names()))
    }
    for name in losses().names():
        loss = losses().create(name, {})
        loss.reduction = "none"
        made[_path(name)] = _page(name, loss)
        made[f"reference/losses/{name}.png"] = picture(loss)
    return made


def _page(name: str, loss: Loss) -> str:
    return PAGE.format(
        name=name, supervision=loss.supervision, head=loss.head, file=name.replace("-", "_"), cls=type(loss).__name__,
        caption=caption(loss),
    )  # fmt: skip


def caption(loss: Loss) -> str:
    """Return what the picture of a loss shows, in a sentence."""
    if loss.head == "class":
        return "The loss of a bag of one position, by the logit of its class."
    what = "presence" if loss.presence_is_log_odds else "presence score"
    given = {"set": "", "count": " once", "order": " once", "position": " at the first position"}[loss.supervision]
    bags = f"The loss of a bag that holds the class{given}, of one that does not"
    return f"{bags}, and the {what}, by the logits at two positions."


def _path(name: str) -> str:
    return f"reference/losses/{name}.md"
