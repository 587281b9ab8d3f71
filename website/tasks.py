"""The pages of the tasks: facts, a picture or drawing of its bags, and the docstring."""

import re

from milbench.contracts.registry import tasks
from milbench.contracts.task import Task
from website.task_drawings import drawing
from website.task_facts import Facts, facts, needs_files
from website.task_pictures import DRAWN, picture

PAGE = """# {name}

<div class="facts" markdown>
{facts}
</div>

{picture}

::: tasks.{file}.{cls}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      show_bases: false
      members: []

Losses are ranked by `{primary}` ([metrics](../metrics.md#{primary})), unless the text above
or a parameter says otherwise. The file is `tasks/{file}.py`.
[All tasks](../../tasks.md).
"""
PICTURE = """<div class="scrolled" tabindex="0" role="region" aria-label="Picture" markdown>
![Some test bags of {name}, with their label sets]({name}.png)
</div>

*Test bags with their label sets, and where their instances are.*"""
DRAWING = """<div class="pictures">
<figure>{svg}<figcaption>A drawing of such a bag, not data</figcaption></figure>
</div>"""
FACT_NAMES = Facts(
    training="trains on",
    test="tested on",
    instances="instances a bag",
    classes="classes",
    time="one training",
    data="data",
    licence="licence",
)
"""The names of the facts in the box of a page."""
PLACEHOLDER = "<!-- pictures of tasks -->"
"""Where docs/tasks.md has the pictures on the site."""
NO_DATA = "*Where a bag has a cat or a dog, it is a drawing of the kind of bag, not data.*"
CARD = """<figure><figcaption><a href="reference/tasks/{name}.html">{name}</a></figcaption>{shown}
</figure>"""
PHOTO = """<img src="reference/tasks/{name}-small.png" alt="A test bag of {name}">"""


def titles() -> list[dict[str, str]]:
    """Return title and path of every page, in the order of the navigation."""
    return [{name: _path(name)} for name in tasks().names()]


def files() -> dict[str, str | bytes]:
    """Return the pages, with their pictures."""
    made: dict[str, str | bytes] = {}
    for name in tasks().names():
        made[_path(name)] = _page(name, tasks().get(name))
        if name in DRAWN:
            made[f"reference/tasks/{name}.png"] = picture(name)
            made[f"reference/tasks/{name}-small.png"] = picture(name, bags=1)
    return made


def _page(name: str, cls: type[Task]) -> str:
    """Return the page of a task."""
    return PAGE.format(
        name=name,
        file=name.replace("-", "_"),
        cls=cls.__name__,
        primary=cls.primary,
        picture=_picture(name, cls),
        facts=_box(name),
    )


def _picture(name: str, cls: type[Task]) -> str:
    """Return bags of a task, or a drawing where they cannot be shown."""
    if name in DRAWN:
        return PICTURE.format(name=name)
    return DRAWING.format(svg=_drawing(name, cls))


def _drawing(name: str, cls: type[Task]) -> str:
    """Return a drawing of a bag of a task."""
    return drawing(cls.bag_kind, of_one_instance=facts(name).instances == "1")


def _box(name: str) -> str:
    """Return the facts of a task as a table with a row for each."""
    its = facts(name, link="../../reports/{report}/index.html")
    rows = [f"| {fact} | {value} |" for fact, value in zip(FACT_NAMES, its, strict=True)]
    return "\n".join(["| | |", "|---|---|", *rows, f"| try it | {_command(name)} |"])


def _command(name: str) -> str:
    """Return a command that trains on a task."""
    of_files = " -p task.table=FILE" if needs_files(name) else ""
    return f"`milbench run --loss exact --task {name}{of_files}`"


def pictured(overview: str) -> str:
    """Return the text of docs/tasks.md with the pictures, and with links to the pages of tasks.

    Only the site has these pages.
    """
    cards = []
    for name in tasks().names():
        shown = _drawing(name, tasks().get(name))
        if name in DRAWN:
            shown = PHOTO.format(name=name)
        cards.append(CARD.format(name=name, shown=shown))
    pictures = "\n".join(['<div class="pictures">', *cards, "</div>", "", NO_DATA])
    names = "|".join(tasks().names())
    linked = re.sub(
        rf"^\| `({names})` \|",
        r"| [`\1`](reference/tasks/\1.md) |",
        overview,
        flags=re.MULTILINE,
    )
    return linked.replace(PLACEHOLDER, pictures)


def _path(name: str) -> str:
    return f"reference/tasks/{name}.md"
