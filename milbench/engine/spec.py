"""The spec: everything that a user can say of a comparison, whether in a TOML file, by flags or in Python."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from milbench.api.plan import COMPARISON_NAME, LONGEST_NAME, Selection
from milbench.api.registry import losses, tasks
from milbench.api.supervision import Supervision
from milbench.api.validation import validated
from milbench.engine.search_space import Search
from milbench.engine.tables import Difference, Literature, Margin, NamedContrast, PassMark, Table
from milbench.errors import UsageError, as_usage, unknown

Params = dict[str, Any]
CHANGED = " with changes"  # at the end of `Spec.source` where flags have changed what a spec says
CHOSEN = ("source", "part", "preset")  # the fields of a spec that a file cannot set: how it was read decides them
MOST_WORKERS = 1024
"""How many processes, or threads of each, there may be: more are a slip, which would exhaust the machine."""
MOST_SEEDS = 100_000  # how many seeds there may be: more are a slip, and would not fit into memory


class Execution(Table):
    """Where and how cells are computed, which changes no result."""

    device: str = "auto"  # auto, cpu, cuda (every GPU) or cuda:N
    jobs: int | None = Field(default=None, ge=1, le=MOST_WORKERS)  # cells at a time; None: one a core, or one a GPU
    threads: int | None = Field(default=None, ge=1, le=MOST_WORKERS)  # of each cell; None: cores / jobs
    data_dir: Path | None = None  # of the data sets; None: the default folder
    cluster: str | None = None  # the address of a dask scheduler, or "local:N"; None: processes of this machine
    shard: str | None = None  # "i/n": every n-th cell, from the i-th on, for job arrays on a shared disk
    rerun: Literal["missing", "failed", "all"] = "missing"  # missing cells, failed ones as well, or all anew
    timeout: float | None = Field(default=None, ge=1, le=10_000_000)  # seconds after which a cell fails; None: never
    in_process: bool = False  # in this very process, one cell at a time, for a debugger
    log_models: bool = False  # every network as an MLflow model too


def _file_name(name: str) -> str:
    if not re.fullmatch(COMPARISON_NAME, name) or len(name) > LONGEST_NAME:
        raise ValueError(
            f"expected at most {LONGEST_NAME} letters, digits and . _ + -, the first one a letter or a digit"
        )
    return name


class Spec(Table):
    """A comparison: every loss on every task with every seed, under one recipe or several."""

    name: Annotated[str, AfterValidator(_file_name)]
    title: str = ""  # of its report
    losses: list[str] = Field(min_length=1)  # names, modules or paths of files
    tasks: list[str] = Field(min_length=1)
    seeds: str | int | list[int] | None = None  # such as "0-9" or "0,2,5"; None: seed 0, or all folds of a task
    loss: dict[str, Params] = Field(default_factory=dict)  # name -> arguments; one given as a list is an axis
    task: dict[str, Params | list[Params]] = Field(default_factory=dict)
    """Name -> arguments, or a list of tables of them, a variant each, which may have a short `name`."""
    recipe: Params = Field(default_factory=dict)  # changes for all tasks; in a table under the name of a task, for it
    run: Execution = Field(default_factory=Execution)
    supervision: list[Supervision] = Field(default_factory=list)  # the kinds that are compared on purpose
    selection: Selection = "last"  # the epoch by which losses are compared; no result depends on it
    margin: dict[str, Margin] = Field(default_factory=dict)  # metric -> the largest difference that counts as none
    compare_by: list[str] = Field(default_factory=list)
    """The metrics that losses are compared by, the first in place of each task's primary one; empty: that alone."""
    contrasts: list[NamedContrast] = Field(default_factory=list)  # differences that the comparison is made for
    preset: str = ""  # the one that was chosen
    notes: list[str] = Field(default_factory=list)  # for the reader of the report, such as the limits of a preset
    differences: list[Difference] = Field(default_factory=list)  # between a publication and its code
    published: list[Literature] = Field(default_factory=list)  # from the literature, to stand beside the results
    source: str = "flags"  # "built-in NAME", a path, or "flags"
    marks: list[PassMark] = Field(default_factory=list)  # tests that every loss takes, with the values that pass
    tune: Search | None = None  # how settings are searched before losses are compared
    part: bool = False  # whether flags chose some of its losses or tasks, or others

    def variants_of(self, task: str) -> list[Params]:
        """Return the tables of parameters of a task, one for each variant that has a table of its own."""
        given = self.task.get(task, {})
        return given if isinstance(given, list) else [given]


def joins(new: Params, old: Params) -> bool:
    """Return whether a launch adds to what an earlier one of the same name has computed.

    It does where both come from flags, where flags chose losses or tasks of a spec that says the same otherwise, and
    where the same spec is launched again, as in shards. Given are the fields of both specs.
    """
    if new["source"] == "flags" or old["source"] == "flags":
        return bool(new["source"] == old["source"])
    same = ("losses", "tasks", "seeds")
    return _digest(new) == _digest(old) and (bool(new["part"]) or all(new[key] == old[key] for key in same))


def _digest(spec: Params) -> str:
    remarks = {"name", "title", "notes", "differences", "published", "contrasts", "marks", "preset"}
    own = remarks | {"losses", "tasks", "seeds", "source", "part", "run"}
    said = {key: value for key, value in spec.items() if key not in own}
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def read_spec(given: str, preset: str | None = None) -> Spec:
    """Read a TOML file or a built-in spec, with one of its presets: tables `[presets.NAME]`, by default the first.

    Raises UsageError where there is no such spec or preset, or something in the spec is wrong.
    """
    return make_spec(spec_values(given, preset), owner=f"spec {given}")


def spec_values(given: str, preset: str | None = None) -> Params:
    """Return the values of the fields of a spec as it is written, see `read_spec`."""
    path = Path(given)
    with as_usage():
        is_file = path.is_file()
    if is_file:
        text, stem, source = _read_text(path), path.stem, str(path)
    else:
        built_in = built_in_specs()
        stem = path.name.removesuffix(".toml")
        if stem not in built_in:
            raise unknown("spec (no such file, and no built-in one)", given, built_in)
        text, source = built_in[stem].read_text("utf-8"), f"built-in {stem}"
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, tables in tables without end
        raise UsageError(f"{given} is not TOML: {error}") from None
    values = {"name": stem, **_with_preset(values, preset, given), "source": source}
    _name_tasks_of_marks(values, given)
    return values


def _name_tasks_of_marks(values: Params, given: str) -> None:
    """Write into every mark the only task of a spec where it names none: flags may choose other tasks."""
    marks, chosen = values.get("marks", []), values.get("tasks", [])
    for mark in marks if isinstance(marks, list) else []:
        if isinstance(mark, dict) and not mark.get("task"):
            if not isinstance(chosen, list) or len(chosen) != 1:
                raise UsageError(f"spec {given}: mark {mark.get('name')!r} names no task, and there are several")
            mark["task"] = chosen[0]


def _with_preset(values: Params, chosen: str | None, given: str) -> Params:
    found = values.pop("presets", {})
    if not isinstance(found, dict) or not all(isinstance(changes, dict) for changes in found.values()):
        raise UsageError(f"spec {given}: presets are tables, [presets.NAME]")
    for table in (values, *found.values()):
        if wrong := next((name for name in CHOSEN if name in table), None):
            raise unknown(f"parameter of spec {given}", wrong, {*Spec.model_fields, "presets"} - {*CHOSEN})
    if not found:
        if chosen is not None:
            raise UsageError(f"spec {given} has no presets; leave out --preset {chosen}")
        return values
    chosen = next(iter(found)) if chosen is None else chosen
    if chosen not in found:
        raise unknown(f"preset of {given}", chosen, found)
    return {**merged(values, found[chosen]), "preset": chosen}


def merged(values: Params, changes: Params) -> Params:
    """Return `values` with `changes`; tables in both are merged."""
    both = {
        k: merged(values[k], v) for k, v in changes.items() if isinstance(v, dict) and isinstance(values.get(k), dict)
    }
    return {**values, **changes, **both}


def built_in_specs() -> dict[str, Traversable]:
    """Return the specs that come with milbench, by name."""
    files = resources.files("milbench.specs").iterdir()
    return {f.name.removesuffix(".toml"): f for f in sorted(files, key=str) if f.name.endswith(".toml")}


def make_spec(values: Params, owner: str = "the run") -> Spec:
    """Return a spec of these values; `owner` is what they belong to, for messages.

    Raises UsageError where a value is unknown, missing or wrong, or a section belongs to no loss or task.
    """
    from milbench.api.recipe import Recipe

    spec: Spec = validated(owner, Spec, values)
    for kind, given in (("marks", spec.marks), ("contrasts", spec.contrasts)):
        names = [one.name for one in given]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"{owner}: two {kind} are named {twice!r}")
    tables = [key for key, value in spec.recipe.items() if isinstance(value, dict)]
    for kind, sections, chosen, registry in (
        ("loss", list(spec.loss), spec.losses, losses()),
        ("task", list(spec.task), spec.tasks, tasks()),
        ("recipe", tables, spec.tasks, tasks()),
    ):
        # A section of a loss or task that exists but is not chosen is no mistake: a flag may have left it out.
        known = {registry.entry(name).name for name in chosen} | {*registry.names()}
        for section in sections:
            if kind == "recipe" and section in Recipe.model_fields:
                raise UsageError(
                    f"{owner}: recipe.{section} is a table; a list of values is an axis, and ranges that are searched "
                    "stand in [tune.recipe]"
                )
            if section not in known:
                raise unknown(f"{kind} section of {owner}", section, known)
    return spec


def parse_seeds(given: str | int | list[int] | None) -> list[int]:
    """Turn "0-9", "0,2,5-7", 3 or [0, 1] into a sorted list of seeds, None into seed 0. Raises UsageError."""
    if given is None:
        return [0]
    parts = [str(s) for s in given] if isinstance(given, list) else str(given).split(",")
    ranges: list[range] = []
    if not parts:
        raise UsageError("seeds = [] names no seed")
    for part in parts:
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not match:
            raise UsageError(f"seeds {given!r}: {part!r} is neither a number nor a range such as 0-9")
        if len(part) > 40 or max(len(match[1]), len(match[2] or "")) > 18:
            raise UsageError(f"seeds: a seed has at most 18 digits, got {part[:30]}...")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"seeds {given!r}: the range {part!r} runs backwards; did you mean {last}-{first}?")
        ranges.append(range(first, last + 1))
    if (count := sum(map(len, ranges))) > MOST_SEEDS:
        raise UsageError(f"seeds {str(given)[:60]!r}: {count:,} seeds are too many, expected at most {MOST_SEEDS:,}")
    return sorted(set().union(*ranges))


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")  # editors of Windows begin files with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the spec {path}: {error}") from None
