"""The pages of the tasks: the docstring of each, and a picture if its bags need no download."""

from milbench.contracts.registry import tasks
from milbench.contracts.task import Task
from website.task_pictures import DRAWN, picture

PAGE = """# {name}

{picture}::: tasks.{file}.{cls}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      show_bases: false
      members: []

Losses are ranked by `{primary}` ([metrics](../metrics.md#{primary})), unless the text above
or a parameter says otherwise. The file is `tasks/{file}.py`.
How to get the data: [the tasks](../../tasks.md).
"""
PICTURE = """<div class="scrolled" markdown>
![Some test bags of {name}, with their label sets]({name}.png)
</div>

*Test bags with their label sets, and where their instances are.*

"""


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
    return made


def _page(name: str, cls: type[Task]) -> str:
    """Return the page of a task."""
    return PAGE.format(
        name=name,
        file=name.replace("-", "_"),
        cls=cls.__name__,
        primary=cls.primary,
        picture=PICTURE.format(name=name) if name in DRAWN else "",
    )


def _path(name: str) -> str:
    return f"reference/tasks/{name}.md"
