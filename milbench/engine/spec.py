"""The spec: everything that a user can say of a comparison, whether in a TOML file, by flags or in Python."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from milbench.api.metric_info import METRICS
from milbench.api.parameters import constructor_parameters, network_parameters
from milbench.api.plan import COMPARISON_NAME, LONGEST_NAME, Mark, Selection
from milbench.api.published import Published
from milbench.api.registry import Registry, losses, tasks
from milbench.api.resolver import resolve
from milbench.api.supervision import Supervision
from milbench.api.validation import validated
from milbench.engine.search_space import Search
from milbench.errors import UsageError, closest, unknown

Params = dict[str, Any]
DEFAULT = "default"
"""Stands for the first network of each task."""
SETTABLE = ("supervision", "compare_by", "selection", "title", "notes")
"""The fields of a spec that `-p` sets by their names alone."""
MOST_WORKERS = 1024
"""How many processes, or threads of each, there may be: more are a slip, which would exhaust the machine."""
MOST_SEEDS = 100_000  # how many seeds there may be: more are a slip, and would not fit into memory

Finite = Annotated[float, Field(allow_inf_nan=False)]
Margin = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""The largest difference that counts as none, in the unit of a metric."""


class Table(BaseModel):
    """A table of a spec, without keys that are unknown."""

    model_config = ConfigDict(extra="forbid")


class Difference(Table):
    """A point in which a publication and its code differ."""

    topic: str
    paper: str
    code: str
    here: str  # the parameter that chooses between the two, and what this comparison uses


class NamedContrast(Table):
    """The difference of two variants that a comparison is made for: the first less the second."""

    name: str = Field(min_length=1)  # what the difference shows
    first: str  # as reports name a variant: a loss, and behind it the settings that set it apart, KEY=VALUE
    second: str
    margin: dict[str, Margin] = Field(default_factory=dict)  # in place of that of the spec


class PassMark(Table):
    """A test: a task with certain parameters, and the values of its test metrics that pass.

    An axis of the task that `params` does not name keeps its values: the mark then holds for all of them.
    """

    name: str = Field(min_length=1)
    task: str
    params: dict[str, Any] = Field(default_factory=dict)  # what differs from the task in the spec
    at_most: dict[str, Finite] = Field(default_factory=dict)  # metric -> the largest value that passes
    at_least: dict[str, Finite] = Field(default_factory=dict)
    why: str = ""  # the reason for the bounds, and what the test asks

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if not self.at_most and not self.at_least:
            raise ValueError("it has no bound: expected at_most or at_least = {METRIC = N}")
        return self

    def marks(self) -> list[Mark]:
        """Return a mark for every bound."""
        sides = ((self.at_most, True), (self.at_least, False))
        return [Mark(self.name, metric, bound, at_most) for side, at_most in sides for metric, bound in side.items()]


class Literature(Table):
    """A published value of a method that is no loss here."""

    task: str
    params: dict[str, Any] = Field(default_factory=dict)  # that the value belongs to, such as `table`; empty: to all
    method: str = Field(min_length=1)
    metric: str  # without a split
    value: Finite  # as a share, not in percent; an error, not an accuracy
    spread: Annotated[Finite, Field(ge=0)] | None = None  # what the source prints behind ±, whatever it is
    source: str = Field(min_length=1)  # with the place in it
    note: str = ""  # in which points it was not measured as the results here

    @model_validator(mode="after")
    def _is_a_share(self) -> Self:
        if self.metric in METRICS and METRICS[self.metric].percent and not 0 <= self.value <= 1:
            raise ValueError(f"{self.metric} is a share between 0 and 1, got {self.value:g}")
        return self

    def entry(self) -> Published:
        """Return the value as a plan holds it."""
        return Published("", **self.model_dump(exclude={"task", "params"}))


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
    networks: list[str] = Field(default=[DEFAULT], min_length=1)  # likewise; "default" is the first of each task
    seeds: str | int | list[int] | None = None  # such as "0-9" or "0,2,5"; None: seed 0, or all folds of a task
    loss: dict[str, Params] = Field(default_factory=dict)
    """Name -> arguments, where one given as a list is an axis; `networks` there replaces those of the spec."""
    task: dict[str, Params | list[Params]] = Field(default_factory=dict)
    """Name -> arguments, or a list of tables of them, a variant each, which may have a short `name`."""
    network: dict[str, Params] = Field(default_factory=dict)  # name -> arguments, as of losses
    recipe: Params = Field(default_factory=dict)  # changes for all tasks; in a table under the name of a task, for it
    run: Execution = Field(default_factory=Execution)
    supervision: list[Supervision] = Field(default_factory=list)  # the kinds that are compared on purpose
    selection: Selection = "last"  # the epoch by which losses are compared; no result depends on it
    margin: dict[str, Margin] = Field(default_factory=dict)  # metric -> the largest difference that counts as none
    compare_by: list[str] = Field(default_factory=list)
    """The metrics that losses are compared by, the first in place of each task's primary one; empty: that alone."""
    contrasts: list[NamedContrast] = Field(default_factory=list)  # differences that the comparison is made for
    preset: str = ""  # the one that was chosen
    about: str = ""  # what that preset is, and how long it takes
    notes: list[str] = Field(default_factory=list)  # for the reader of the report, such as the limits of a preset
    differences: list[Difference] = Field(default_factory=list)  # between a publication and its code
    published: list[Literature] = Field(default_factory=list)  # from the literature, to stand beside the results
    marks: list[PassMark] = Field(default_factory=list)  # tests that every loss takes, with the values that pass
    tune: Search | None = None  # how settings are searched before losses are compared
    origin: str = ""  # a digest of its file and of `-p`: launches of one origin add up, whatever they choose of it
    changed: bool = False  # whether flags have changed what its file says


def read_spec(given: str, preset: str | None = None) -> Spec:
    """Read a TOML file or a built-in spec, with one of its presets: tables `[presets.NAME]`, by default the first.

    Raises UsageError where there is no such spec or preset, or something in the spec is wrong.
    """
    name, values = _read(given)
    return make_spec({"name": name} | _with_preset(values, preset, given), owner=f"spec {given}")


def presets(given: str) -> dict[str, str]:
    """Return what the presets of a spec say about themselves, by name, the default first."""
    return {name: changes.get("about", "") for name, changes in _read(given)[1].get("presets", {}).items()}


def _read(given: str) -> tuple[str, Params]:
    path, built_in = Path(given), built_in_specs()
    name = path.name.removesuffix(".toml")
    file = path if path.is_file() else built_in.get(name)
    if file is None:
        raise unknown("spec (no such file, and no built-in one)", given, built_in)
    try:
        return name, tomllib.loads(file.read_text("utf-8").removeprefix("\ufeff"))  # editors of Windows begin with it
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, tables in tables without end
        raise UsageError(f"{given} is not TOML: {error}") from None


def _with_preset(values: Params, chosen: str | None, given: str) -> Params:
    found = values.pop("presets", {})
    if not isinstance(found, dict) or not all(isinstance(changes, dict) for changes in found.values()):
        raise UsageError(f"spec {given}: presets are tables, [presets.NAME]")
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
    if wrong := next((name for name in _tables(spec.recipe) if name in Recipe.model_fields), None):
        raise UsageError(
            f"{owner}: recipe.{wrong} is a table; a list of values is an axis, and ranges that are searched stand in "
            "[tune.recipe]"
        )
    registries: list[tuple[str, list[str], list[str], Registry[Any]]] = [
        ("loss", [*spec.loss], spec.losses, losses()),
        ("task", [*spec.task], spec.tasks, tasks()),
        ("recipe", _tables(spec.recipe), spec.tasks, tasks()),
        ("tune.loss", [*spec.tune.loss] if spec.tune else [], spec.losses, losses()),
        ("tune.recipe", _tables(spec.tune.recipe) if spec.tune else [], spec.tasks, tasks()),
    ]
    for kind, sections, chosen, registry in registries:
        # A section of a loss or task that exists but is not chosen is no mistake: a flag may have left it out.
        known = {resolve(registry, name) for name in chosen} | {*registry.names()}
        for section in sections:
            if section not in known:
                raise unknown(f"{kind} section of {owner}", section, known)
    return spec


def _tables(settings: Mapping[str, object]) -> list[str]:
    return [name for name, value in settings.items() if isinstance(value, dict)]


def requested_spec(spec: str | None, preset: str | None, given: Params, settings: Sequence[str] = ()) -> Spec:
    """Return a spec (a file, a built-in name, or None) with flags and `-p` settings in it.

    `given` are fields of the spec that flags replace; those of the table `run` are added to its own.
    """
    values: Params = {}
    if spec:
        values = read_spec(spec, preset).model_dump(exclude_unset=True)
    elif preset is not None:
        raise UsageError(f"--preset {preset} needs a spec to take it from")
    elif missing := [flag for flag, key in (("--loss", "losses"), ("--task", "tasks")) if not given.get(key)]:
        raise UsageError(
            f"give a spec, or --loss and --task ({' and '.join(missing)} missing); "
            "milbench list losses|tasks|specs shows what there is"
        )
    else:
        values["name"] = "+".join(resolve(tasks(), task) for task in given["tasks"])
    run = {key: value for key, value in given.get("run", {}).items() if value is not None}
    changes = {key: value for key, value in given.items() if key != "run" and value is not None}
    deciding = [setting for setting in settings if not setting.startswith("run.")]
    said = [
        {key: value for key, value in values.items() if spec and key != "run"},
        {key: value for key, value in changes.items() if key not in ("name", "losses", "tasks", "networks", "seeds")},
        deciding,
    ]
    values |= changes | {"run": values.get("run", {}) | run}
    for setting in settings:
        parse_setting(values, setting)
    values["origin"] = hashlib.sha256(json.dumps(said, default=str).encode()).hexdigest()[:16]
    values["changed"] = bool(spec and (changes.keys() - {"name"} or deciding))
    return make_spec(values)


def parse_setting(values: Params, setting: str) -> None:
    """Change the values of a spec by one setting of the command line (`-p`).

    It is recipe.KEY=VALUE for all tasks, recipe.TASK.KEY=VALUE for one, loss.KEY=VALUE for every chosen loss that has
    such a parameter, loss.NAME.KEY=VALUE for one (tasks and networks likewise), run.KEY=VALUE for where and how cells
    are computed, tune.KEY=VALUE for a search, KEY=VALUE for another field of the spec. Commas between values make an
    axis.

    Raises:
        UsageError: the setting has another form, or no chosen loss or task has such a parameter.
    """
    key, equals, text = setting.partition("=")
    kind, *names = key.strip().split(".")
    parsed = [scalar(part.strip()) for part in text.split(",")]
    value = parsed if len(parsed) > 1 else parsed[0]
    if equals and not names and kind in SETTABLE:
        values[kind] = parsed if kind in ("supervision", "compare_by", "notes") else value
        return
    longest = {"recipe": 2, "loss": 2, "task": 2, "network": 2, "run": 1, "tune": 1}.get(kind, 0)
    if not equals or not 1 <= len(names) <= longest or not all(names):
        close = _closest_setting(kind)
        raise UsageError(
            f"-p {setting}: expected recipe.KEY=VALUE, recipe.TASK.KEY=VALUE, loss.KEY=VALUE, loss.NAME.KEY=VALUE, "
            f"task.KEY=VALUE, network.KEY=VALUE or run.KEY=VALUE{f'; did you mean {close}?' if close else ''}"
        )
    *names, parameter = names
    if kind in ("run", "tune"):
        values[kind] = {**values.get(kind, {}), parameter: value}
    elif kind == "recipe":
        values["recipe"] = _with_setting(values.get("recipe", {}), names, {parameter: value})
    else:
        sections = values.setdefault(kind, {})
        for name in _takers(values, kind, names, parameter, setting):
            of_name = sections.get(name, {})
            changed = [{**one, parameter: value} for one in (of_name if isinstance(of_name, list) else [of_name])]
            sections[name] = changed if isinstance(of_name, list) else changed[0]


def _closest_setting(key: str) -> str | None:
    from milbench.api.recipe import Recipe

    full = [
        f"{table}.{name}" for table, model in (("recipe", Recipe), ("run", Execution)) for name in model.model_fields
    ]
    whole = next((name for name in full if name.endswith(f".{key}")), None)
    tables = ("recipe", "loss", "task", "network")
    return whole or (None if key in (*tables, "run") else closest(key, [*SETTABLE, *full, *tables]))


def _with_setting(recipe: Params, task: list[str], change: Params) -> Params:
    """Return a spec's recipe with a change for one task, or for all, which replaces the changes of single tasks."""
    if task:
        return merged(recipe, {task[0]: change})
    of_tasks = {k: {n: x for n, x in v.items() if n not in change} for k, v in recipe.items() if isinstance(v, dict)}
    return {**recipe, **of_tasks, **change}


def _takers(values: Params, kind: str, names: list[str], parameter: str, setting: str) -> list[str]:
    """Return the chosen losses, tasks or networks that a setting is for: the one it names, else all that have it."""
    known = _known_parameters(values, kind)
    if names:
        if names[0] not in known:
            raise unknown(f"{kind} of this run in -p {setting}", names[0], known)
        return names
    takers = [name for name in known if parameter in known[name]]
    if not takers:
        raise unknown(f"parameter of {kind} {', '.join(known)}", parameter, set().union(*known.values()))
    return takers


def _known_parameters(values: Params, kind: str) -> dict[str, set[str]]:
    """Return the parameters of every chosen loss, task or network, by its name."""
    if kind == "loss":
        chosen = [resolve(losses(), given) for given in values["losses"]]
        return {name: {*constructor_parameters(losses().get(name)), "networks"} for name in chosen}
    found = [resolve(tasks(), given) for given in values["tasks"]]
    if kind == "task":
        return {name: {*constructor_parameters(tasks().get(name))} for name in found}
    from milbench.networks.registry import network_maker, network_name

    of_losses = [as_list(table.get("networks", [])) for table in values.get("loss", {}).values()]
    given = [*values.get("networks", [DEFAULT]), *itertools.chain.from_iterable(of_losses)]
    known: dict[str, set[str]] = {}
    for cls, one in itertools.product(map(tasks().get, found), given):
        name = network_name(cls, one)
        known.setdefault(name, set()).update(network_parameters(network_maker(cls, name)))
    return known


def as_list(value: Any) -> list[Any]:
    """Return a value that need not be in a list as one."""
    return value if isinstance(value, list) else [value]


def scalar(text: str) -> Any:
    """Return the value of TOML text (numbers, true, false, quoted strings), any other text as a string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):  # TOMLDecodeError is a ValueError, and so is a number of 5,000 digits
        return text


def parse_seeds(given: str | int | list[int] | None) -> list[int]:
    """Turn "0-9", "0,2,5-7", 3 or [0, 1] into a sorted list of seeds, None into seed 0. Raises UsageError."""
    if given is None:
        return [0]
    parts = [str(s) for s in given] if isinstance(given, list) else str(given).split(",")
    ranges: list[range] = []
    if not parts:
        raise UsageError("seeds = [] names no seed")
    for part in parts:
        match = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", part)
        if not match:
            raise UsageError(f"seeds: {part[:40]!r} is neither a number of at most 18 digits nor a range such as 0-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"seeds: the range {part!r} runs backwards; did you mean {last}-{first}?")
        ranges.append(range(first, last + 1))
    if (count := sum(map(len, ranges))) > MOST_SEEDS:
        raise UsageError(f"seeds: {count:,} seeds are too many, expected at most {MOST_SEEDS:,}")
    return sorted(set().union(*ranges))
