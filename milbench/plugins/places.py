"""Whose code a file or a module is: Python's, an installed package's, milbench's or the user's own."""

import re
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

SYSTEM = tuple(Path(place) for place in ("/proc", "/sys", "/dev", "/etc"))
"""Where files describe the machine and not the user's work."""


@cache
def is_own_file(path: str) -> bool:
    """Return whether a file lies outside the folders of Python and of installed packages.

    The files of a package that is installed as editable lie outside too: they are the user's own.
    """
    if path.startswith("<frozen") or is_site_file(path):
        return False
    place = Path(path).resolve()
    return not any(place.is_relative_to(folder) for folder in _library_folders())


def is_own_module(name: str, file: str) -> bool:
    """Return whether a module, by its name and file, is the user's own."""
    if is_milbench(name) or _top(name) in sys.stdlib_module_names:
        return False
    if is_own_file(file):
        return True
    # Somebody may have put a file into site-packages by hand.
    return is_site_file(file) and not distributions_of(name)


def is_milbench(module: str) -> bool:
    """Return whether a module, by its name, is one of milbench itself."""
    return _top(module) == "milbench"


def is_site_file(path: str) -> bool:
    """Return whether a file lies in a folder into which packages are installed."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(path).parts)


def distributions_of(module: str) -> dict[str, str]:
    """Return name -> version of the installed distributions that provide a module."""
    top = _top(module)
    try:
        # Most distributions are named like their module, and the list of all takes long to read.
        found = [metadata.distribution(top)]
    except (metadata.PackageNotFoundError, ValueError):
        found = [metadata.distribution(name) for name in _providers().get(top, ())]
    return {one.name: one.version for one in found}


@cache
def is_common_distribution(name: str) -> bool:
    """Return whether a distribution is milbench or one that milbench requires.

    Such ones belong to all cells and stand in the provenance of each.
    """
    return _normalised(name) in _requirements()


@cache
def _requirements() -> frozenset[str]:
    """Return the names of milbench and of all that it requires, with its extras.

    The extras are among them because milbench and pandas import them where they are installed, whatever a plug-in does.
    """
    found: set[str] = set()
    waiting = ["milbench"]
    while waiting:
        name = _normalised(waiting.pop())
        if name in found:
            continue
        found.add(name)
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            if "extra ==" in requirement and name != "milbench":
                continue
            waiting.append(re.split(r"[^\w.-]", requirement)[0])
    return frozenset(found)


@cache
def _library_folders() -> tuple[Path, ...]:
    """Return the folders of Python's own modules."""
    paths = sysconfig.get_paths()
    return tuple(Path(paths[name]).resolve() for name in ("stdlib", "platstdlib"))


@cache
def _providers() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _top(module: str) -> str:
    return module.partition(".")[0]


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
