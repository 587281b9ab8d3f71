"""`milbench new`: write the file of a new loss, task or network, and its test."""

import keyword
import re
import sys
from functools import partial
from importlib import resources
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from milbench._utils.files import write_atomically
from milbench._utils.process import path_of_session
from milbench.cli import options
from milbench.errors import UsageError, as_usage

Kind = Literal["loss", "task", "network"]
TRIALS = {
    "loss": "milbench run --loss {},exact --task extended-digits --dry-run",
    "task": "milbench run --loss exact,max-pooling --task {} --dry-run",
    "network": "milbench run --loss exact --task extended-digits --network default,{} --dry-run",
}
"""Kind -> the command that tries the new file. The name of the file replaces {}.

The network called `default` is the first network of the task, with which a new network is compared.
"""


def new(
    kind: Annotated[Kind, typer.Argument(help="What to write; the network is one for images.")],
    name: Annotated[str, typer.Argument(help="In lower case with hyphens, such as mean-pooling.")],
) -> int:
    """Write a loss, a task or a network of your own, and its test.

    NAME.py runs as it is, and test_NAME.py tests what such a class must do.

    Example: milbench new loss mean-pooling
    """
    from milbench.contracts.registry import check_name

    check_name(name)
    origin = _origins(kind).get(name)
    if origin:
        raise UsageError(f"there is a {kind} {name!r} already, from {origin}; choose another name")
    templates = resources.files("milbench").joinpath("templates")
    code = templates.joinpath(f"my_{kind}.py").read_text("utf-8")
    test_code = templates.joinpath(f"test_my_{kind}.py").read_text("utf-8")
    _check_class_name(name, kind, code)
    file = Path(f"{_stem(name)}.py")
    tests = Path(f"test_{_stem(name)}.py")
    # `as_usage` turns an OSError into a UsageError.
    with as_usage():
        _check_files(file, tests)
        _write(file, _renamed(code, kind, name))
        _write(tests, _renamed(test_code, kind, name))
    options.say(
        f"wrote {file} and its test: pytest {tests}", then=TRIALS[kind].format(file).split()
    )
    return 0


def _check_files(file: Path, tests: Path) -> None:
    """Raise UsageError if a file exists already, or would hide a module of Python."""
    for path in (file, tests):
        if path.exists():
            raise UsageError(
                f"{path} is there already and stays as it is; choose another name or remove it"
            )
    if _is_name_of_python(file.stem):
        raise UsageError(f"{file} would hide the Python module {file.stem!r}; choose another name")


def _check_class_name(name: str, kind: Kind, code: str) -> None:
    """Raise UsageError if the name of the class is a keyword, or is used in the template."""
    class_name = _class_name(name)
    # The class of the template itself gets this name, so its present name does not count.
    other_code = code.replace(_class_name(f"my-{kind}"), "")
    is_used = re.search(rf"\b{class_name}\b", other_code) is not None
    if keyword.iskeyword(class_name) or is_used:
        raise UsageError(
            f"{class_name}, the class of {name!r}, is a name that Python or the file uses; "
            "choose another"
        )


def _renamed(template: str, kind: Kind, name: str) -> str:
    """Return a template with another name in all spellings, such as my-loss, my_loss and MyLoss."""
    own_name = f"my-{kind}"
    text = template.replace(own_name, name)
    text = text.replace(_stem(own_name), _stem(name))
    return text.replace(_class_name(own_name), _class_name(name))


def _write(path: Path, text: str) -> None:
    write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))


def _origins(kind: Kind) -> dict[str, str]:
    """Return where each known loss, task or network comes from, by its name."""
    from milbench.contracts.registry import losses, tasks

    if kind == "loss":
        return _origins_in(losses())
    if kind == "task":
        return _origins_in(tasks())
    from milbench.cli.list_ import working_tasks
    from milbench.networks.backbone import backbones
    from milbench.networks.known_networks import networks

    origins: dict[str, str] = {}
    # Tasks that cannot be imported are left out.
    for task, _origin_of_task, cls in working_tasks():
        for name in cls.networks:
            origins[name] = f"the task {task}"
    return origins | _origins_in(networks()) | dict.fromkeys(backbones(), "torchvision")


def _origins_in(registry: Any) -> dict[str, str]:
    """Return name -> origin, for the entries of a registry.

    Files of the user are left out: another file may have the same name.
    """
    return {name: entry.origin for name, entry in registry.entries.items() if not entry.is_file}


def _is_name_of_python(stem: str) -> bool:
    """Return whether a file of this name would hide a module, or could not be imported.

    An example is random.py.
    """
    if keyword.iskeyword(stem) or stem in sys.stdlib_module_names:
        return True
    # Plug-ins that this process has loaded may have added folders to `sys.path`. These folders are
    # not searched, since the new file would hide none of their modules.
    path_without_plugins = path_of_session()
    return PathFinder.find_spec(stem, path_without_plugins) is not None


def _stem(name: str) -> str:
    """Return the name of the file, such as my_loss for my-loss."""
    return name.replace("-", "_")


def _class_name(name: str) -> str:
    """Return the name of the class, such as MyLoss for my-loss."""
    return "".join(part.capitalize() for part in name.split("-"))
