"""Specs in TOML files: those that come with milbench, and those of users."""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from milbench.contracts.published import Published
from milbench.contracts.recipe import Recipe
from milbench.contracts.registry import Registry, losses, tasks
from milbench.contracts.resolver import resolve
from milbench.contracts.validation import validated
from milbench.errors import UsageError, unknown
from milbench.experiment.launch_settings import Execution
from milbench.experiment.plan import Plan
from milbench.experiment.questions import Contrast, Difference, Mark, Table
from milbench.experiment.spec import DEFAULT, Search, Settings, Spec, as_list


class SpecFile(Spec):
    """What a file says: a spec, and in the table [run] how its cells are to be run."""

    run: Execution = Field(default_factory=Execution)
    """Where and how cells run."""

    def spec(self) -> Spec:
        """Return the spec alone."""
        return Spec.model_validate(self.model_dump(exclude={"run"}, exclude_unset=True))


class Store(Protocol):
    """The part of a store that this module needs. `milbench.store.folders.Root` has it."""

    def names(self) -> list[str]:
        """Return the names of its comparisons."""

    def plan(self, name: str | None = None) -> Plan:
        """Return the plan of a comparison."""


@dataclass(frozen=True)
class Source:
    """What a command starts from: a spec, before flags change it."""

    values: Settings
    """The fields of a `SpecFile` that it sets."""
    origin: str = ""
    """`Plan.origin` of a comparison of the store, "" for a file."""
    is_changed: bool = False
    """Whether flags had changed the file from which a comparison of the store was planned."""


TABLES: dict[str, Any] = {
    "": SpecFile,
    "recipe": Recipe,
    "run": Execution,
    "tune": Search,
    "contrasts": Contrast,
    "marks": Mark,
    "published": Published,
    "differences": Difference,
}
"""The tables of a spec by name, "" for the keys outside all of them."""


def describe_settings(*tables: str) -> Iterator[tuple[str, str, str]]:
    """Yield the key, the default and the meaning of every setting in some tables of a spec.

    Without an argument, the settings of all tables are yielded.
    """
    for table in tables or TABLES:
        for name, field in TABLES[table].__pydantic_fields__.items():
            key = f"{table}.{name}" if table else name
            # The docstring of a field may be broken into lines.
            meaning = " ".join((field.description or "").split())
            yield key, _default_text(field), meaning


def _default_text(field: Any) -> str:
    """Return the default of a field as a text, "" for a table."""
    if field.is_required():
        return "(required)"
    default = field.get_default(call_default_factory=True)
    if default is None:
        return "none"
    if isinstance(default, Table):
        return ""
    return str(default)


def read_spec(reference: str, preset: str | None = None) -> Spec:
    """Read a spec from a TOML file, or a built-in spec, with one of its presets.

    A preset is a table `[presets.NAME]` of changes to the spec. By default it is the first one.
    Raises UsageError where there is no such spec or preset, or something in it is wrong.
    """
    return check_spec(read_source(reference, preset).values, owner=f"spec {reference}").spec()


def read_source(reference: str, preset: str | None = None, store: Store | None = None) -> Source:
    """Return what the spec of a reference says.

    The reference is a file, a built-in spec, or else the name of a comparison in the store. Raises
    UsageError where there is no such spec or preset, or something in it is wrong.
    """
    file = _find(reference)
    if file is not None:
        values = _values(reference, file, preset)
        checked = check_spec(values, f"spec {reference}")
        return Source(checked.model_dump(exclude_unset=True))
    stored = store.names() if store else []
    if store is None or reference not in stored:
        raise unknown(
            "spec (no such file, and no built-in one)", reference, [*built_in_specs(), *stored]
        )
    if preset is not None:
        raise UsageError(f"spec {reference} has no presets; leave out --preset {preset}")
    plan = store.plan(reference)
    values = plan.spec.model_dump()
    checked = check_spec(values, f"spec {reference}")
    return Source(checked.model_dump(exclude_unset=True), plan.origin, plan.is_changed)


def presets(reference: str) -> dict[str, str]:
    """Return the descriptions of the presets of a spec, by name, the default first."""
    file = _find(reference)
    if file is None:
        return {}
    tables = _parsed(reference, file).get("presets", {})
    return {name: changes.get("about", "") for name, changes in tables.items()}


def _find(reference: str) -> Path | Traversable | None:
    """Return the file of a spec: a path, or a built-in spec; None where there is neither."""
    path = Path(reference)
    if path.is_file():
        return path
    return built_in_specs().get(_name_of(reference))


def _name_of(reference: str) -> str:
    return Path(reference).name.removesuffix(".toml")


def built_in_specs() -> dict[str, Traversable]:
    """Return the specs that come with milbench, by name."""
    specs = {}
    for file in sorted(resources.files("milbench.specs").iterdir(), key=str):
        if file.name.endswith(".toml"):
            specs[file.name.removesuffix(".toml")] = file
    return specs


def _values(reference: str, file: Path | Traversable, preset: str | None) -> Settings:
    """Return the fields that a file sets with one of its presets, and its name."""
    values = _parsed(reference, file)
    tables = values.pop("presets", {})
    are_tables = isinstance(tables, dict) and all(
        isinstance(table, dict) for table in tables.values()
    )
    if not are_tables:
        raise UsageError(f"spec {reference}: presets are tables, [presets.NAME]")
    if not tables and preset is not None:
        raise UsageError(f"spec {reference} has no presets; leave out --preset {preset}")
    if tables:
        chosen = next(iter(tables)) if preset is None else preset
        if chosen not in tables:
            raise unknown(f"preset of {reference}", chosen, tables)
        values = {**merged(values, tables[chosen]), "preset": chosen}
    return {"name": _name_of(reference)} | values


def _parsed(reference: str, file: Path | Traversable) -> Settings:
    try:
        # Some editors on Windows begin a file with this character.
        text = file.read_text("utf-8").removeprefix("\ufeff")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # The text is not UTF-8 or not TOML, has a number of 5,000 digits (a ValueError too), or
        # tables within tables too deep for the parser.
        raise UsageError(f"{reference} is not TOML: {error}") from None


def merged(values: Settings, changes: Settings) -> Settings:
    """Return `values` with `changes`; tables in both are merged."""
    result = values | changes
    for key, change in changes.items():
        value = values.get(key)
        if isinstance(change, dict) and isinstance(value, dict):
            result[key] = merged(value, change)
    return result


def check_spec(values: Settings, owner: str = "the run") -> SpecFile:
    """Return a spec of these values.

    Raises UsageError, which names the `owner`, where a value is unknown, missing or wrong.
    """
    spec: SpecFile = validated(owner, SpecFile, values)
    _check_networks_of_losses(spec, owner)
    _check_names_differ("marks", [mark.name for mark in spec.marks], owner)
    _check_names_differ("contrasts", [contrast.name for contrast in spec.contrasts], owner)
    for table in _tables_in(spec.recipe):
        if table in Recipe.model_fields:
            raise UsageError(
                f"{owner}: recipe.{table} is a table; "
                "a list of values is an axis, [tune.recipe] a search"
            )
    _check_sections("loss", spec.loss, spec.losses, losses(), owner)
    _check_sections("task", spec.task, spec.tasks, tasks(), owner)
    _check_sections("recipe", _tables_in(spec.recipe), spec.tasks, tasks(), owner)
    if spec.tune:
        search = spec.tune
        _check_sections("tune.loss", search.loss, spec.losses, losses(), owner)
        _check_sections("tune.draw_task", search.draw_task, spec.tasks, tasks(), owner)
        draw_recipes = _tables_in(search.draw_recipe)
        _check_sections("tune.draw_recipe", draw_recipes, spec.tasks, tasks(), owner)
        _check_sections("tune.recipe", _tables_in(search.recipe), spec.tasks, tasks(), owner)
    return spec


def _tables_in(values: Settings) -> list[str]:
    """Return the names of the tables in a table, such as recipes of single tasks."""
    return [name for name, value in values.items() if isinstance(value, dict)]


def _check_networks_of_losses(spec: Spec, owner: str) -> None:
    for loss, params in spec.loss.items():
        names = as_list(params.get("networks", [DEFAULT]))
        if not names or not all(isinstance(name, str) for name in names):
            raise UsageError(
                f"{owner}: loss.{loss}.networks = {names!r}: expected names of networks"
            )


def _check_names_differ(kind: str, names: Sequence[str], owner: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{owner}: two {kind} are named {name!r}")


def _check_sections(
    section: str,
    names: Iterable[str],
    references: Iterable[str],
    registry: Registry[Any],
    owner: str,
) -> None:
    """Raise UsageError where a section is named after no loss or task.

    The loss or task of a section need not be among the chosen ones: a flag may have left it out.
    """
    chosen = {resolve(registry, reference) for reference in references}
    available = chosen | set(registry.names())
    for name in names:
        if name not in available:
            raise unknown(f"{section} section of {owner}", name, available)


def make_spec(values: Settings) -> Spec:
    """Return a spec of these values. A table [run] is checked and left out.

    Raises UsageError where a value is unknown, missing or wrong.
    """
    return check_spec(values).spec()
