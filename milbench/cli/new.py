"""`milbench new`: the file of a loss, a task or a network of one's own, and its test, which run as they are."""

from __future__ import annotations

import importlib.util
import keyword
import re
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from milbench._utils.files import write_atomically
from milbench.errors import UsageError, as_usage

HELP = "Write a loss, a task or a network, and its test.\n\nExample: milbench new loss mine"
app = typer.Typer(no_args_is_help=True, help=HELP)
NameArgument = Annotated[str, typer.Argument(help="In lower case with hyphens, such as mean-pooling.")]


@app.command("loss")
def new_loss(name: NameArgument) -> int:
    """Write NAME.py, a loss that runs as it is, and test_NAME.py, its contract test.

    Example: milbench new loss my-loss
    """
    return _write("loss", name, then="--loss {},exact --task extended-digits")


@app.command("task")
def new_task(name: NameArgument) -> int:
    """Write NAME.py, a task that runs as it is, and test_NAME.py, its contract test.

    Example: milbench new task my-task
    """
    return _write("task", name, then="--loss exact,max-pooling --task {}")


@app.command("network")
def new_network(name: NameArgument) -> int:
    """Write NAME.py, a network for images that runs as it is, and test_NAME.py, its contract test.

    Example: milbench new network my-network
    """
    return _write("network", name, then="--loss exact --task extended-digits --network default,{}")


def _write(kind: str, name: str, then: str) -> int:
    """Write a template and its test under another name, and say which run then tries the file {} out."""
    template = f"my-{kind}"
    code = _template(f"{_stem(template)}.py")
    _check_name(kind, name, code.replace(_class_name(template), ""))
    file, tests = Path(f"{_stem(name)}.py"), Path(f"test_{_stem(name)}.py")
    texts = {
        file: _renamed(code, template, name),
        tests: _renamed(_template(f"test_{_stem(template)}.py"), template, name),
    }
    with as_usage():
        for path in texts:
            if path.exists():
                raise UsageError(f"{path} is there already and stays as it is; choose another name or remove it")
        _check_module(file)
        for path, text in texts.items():
            write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
    typer.echo(f"wrote {file} and {tests}; try: milbench run {then.format(file)} --dry-run; pytest {tests}")
    return 0


def _check_name(kind: str, name: str, code: str) -> None:
    """Raise UsageError where a name is not one, is taken, or makes a class whose name the code uses for another."""
    from milbench.api.registry import check_name

    check_name(name)
    if origin := _known(kind).get(name):
        raise UsageError(f"there is a {kind} {name!r} already, from {origin}; choose another name")
    class_name = _class_name(name)
    if keyword.iskeyword(class_name) or re.search(rf"\b{class_name}\b", code):
        raise UsageError(
            f"the class of {name!r} would be {class_name}, a name that Python or the file uses; choose another name"
        )


def _known(kind: str) -> dict[str, str]:
    """Return the names that are taken for a loss, task or network, each with its owner."""
    from milbench.api.registry import losses, tasks

    if kind != "network":
        registry: Any = losses() if kind == "loss" else tasks()
        return {name: entry.origin for name, entry in registry.entries.items() if not entry.is_file}
    from milbench.cli.list_ import working_tasks
    from milbench.networks.backbone import backbones
    from milbench.networks.registry import networks

    of_tasks = {name: f"the task {task}" for task, _, cls in working_tasks() for name in cls.networks}
    others = {name: entry.origin for name, entry in networks().entries.items() if not entry.is_file}
    return of_tasks | others | dict.fromkeys(backbones(), "torchvision")


def _check_module(file: Path) -> None:
    """Raise UsageError where a file of this name would hide a module, as random.py hides Python's random."""
    if keyword.iskeyword(file.stem) or importlib.util.find_spec(file.stem) is not None:
        raise UsageError(f"{file} would hide the Python module {file.stem!r}; choose another name")


def _template(file: str) -> str:
    return resources.files("milbench").joinpath("templates", file).read_text("utf-8")


def _renamed(text: str, old: str, new: str) -> str:
    for spelled in (str, _stem, _class_name):
        text = text.replace(spelled(old), spelled(new))
    return text


def _stem(name: str) -> str:
    return name.replace("-", "_")


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))
