"""To whom a file or module belongs: to Python, an installed package, milbench or the user."""

import re
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

SITE_FOLDERS = {"site-packages", "dist-packages"}
"""The names of folders into which packages are installed."""
SYSTEM = tuple(Path(folder) for folder in ("/proc", "/sys", "/dev", "/etc"))
"""Folders whose files describe the machine and not the user's work."""


@cache
def is_own_file(path: str) -> bool:
    """Return whether a file lies outside the folders of Python and of installed packages.

    The files of a package that is installed as editable lie outside too. They count as files of the
    user.
    """
    if path.startswith("<frozen") or is_site_file(path):
        return False
    resolved = Path(path).resolve()
    return not any(resolved.is_relative_to(folder) for folder in _library_folders())


def is_own_module(name: str, file: str) -> bool:
    """Return whether a module, by its name and file, is the user's own."""
    if is_milbench(name) or _top(name) in sys.stdlib_module_names:
        return False
    if is_own_file(file):
        return True
    # A file in site-packages that no distribution provides was put there by hand.
    return is_site_file(file) and not _is_distributed(_name_in_site(file))


def file_of(module: object) -> str | None:
    """Return the `__file__` of a module, None if it has none or raises an error."""
    try:
        file = getattr(module, "__file__", None)
    except Exception:  # noqa: BLE001
        # A lazy module imports another module when it is asked, and that may be missing.
        return None
    return file if isinstance(file, str) else None


def is_milbench(module: str) -> bool:
    """Return whether a module, by its name, is one of milbench itself."""
    return _top(module) == "milbench"


@cache
def is_milbench_file(path: str) -> bool:
    """Return whether a file lies in the folder of milbench."""
    return Path(path).resolve().is_relative_to(Path(__file__).resolve().parents[1])


def is_site_file(path: str) -> bool:
    """Return whether a file lies in a folder into which packages are installed."""
    return not SITE_FOLDERS.isdisjoint(Path(path).parent.parts)


def distributions_of(module: str) -> dict[str, str]:
    """Return name -> version of the installed distributions that provide a module."""
    top = _top(module)
    try:
        # Most distributions are named like their module. Reading the list of all takes long.
        found = [metadata.distribution(top)]
    except (metadata.PackageNotFoundError, ValueError):
        found = [metadata.distribution(name) for name in _providers().get(top, ())]
    return {distribution.name: distribution.version for distribution in found}


@cache
def _is_distributed(module: str) -> bool:
    """Return whether an installed distribution provides a module."""
    return bool(distributions_of(module))


def foreign_distributions(module: str) -> dict[str, str]:
    """Return name -> version of the distributions that provide a module, and of what they require.

    milbench and what it requires are left out: all cells need them, and the provenance of each cell
    has their versions.
    """
    providers = frozenset(normalised(name) for name in distributions_of(module))
    foreign = _with_requirements(providers) - _required_by_milbench()
    versions = {name: version_of(name) for name in sorted(foreign)}
    # A requirement may be for another system, and not installed.
    return {name: version for name, version in versions.items() if version}


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution, "" where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _required_by_milbench() -> frozenset[str]:
    """Return the names of milbench and of all distributions that it requires, without extras."""
    return _with_requirements(frozenset({"milbench"}))


def _with_requirements(names: frozenset[str]) -> frozenset[str]:
    """Return the names of distributions and of all distributions that they require.

    What only their extras require is left out.
    """
    found: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            if "extra ==" not in requirement:
                required = re.split(r"[^\w.-]", requirement)[0]
                waiting.append(normalised(required))
    return frozenset(found)


def _name_in_site(file: str) -> str:
    """Return the name below site-packages that a file belongs to, such as its package.

    The name of the module would not do: some packages import their compiled parts under names that
    lack the name of the package.
    """
    parts = Path(file).parts
    site_folders = [number for number, part in enumerate(parts) if part in SITE_FOLDERS]
    return parts[site_folders[-1] + 1].partition(".")[0]


@cache
def _library_folders() -> tuple[Path, ...]:
    """Return the folders of Python's own modules."""
    paths = sysconfig.get_paths()
    return tuple(Path(paths[name]).resolve() for name in ("stdlib", "platstdlib"))


@cache
def _providers() -> Mapping[str, list[str]]:
    """Return top-level module -> the names of the distributions that provide it."""
    return metadata.packages_distributions()


def _top(module: str) -> str:
    return module.partition(".")[0]


def normalised(name: str) -> str:
    """Return the name of a distribution in the one spelling by which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
