"""The spec: everything that a user can say of a comparison, whether in a TOML file, by flags or in Python."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from milbench.api.metric_info import METRICS
from milbench.api.parameters import constructor_parameters, network_parameters
from milbench.api.plan import COMPARISON_NAME, LONGEST_NAME, Mark, Selection
from milbench.api.published import Published
from milbench.api.recipe import Recipe
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
    """A table of a spec, without unknown keys; the texts below its fields are their descriptions."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Difference(Table):
    """A point in which a publication and its code differ."""

    topic: str
    """Point in which they differ."""
    paper: str
    """What the publication says."""
    code: str
    """What its code does."""
    here: str
    """The parameter that chooses between the two, and what this comparison uses."""


class NamedContrast(Table):
    """The difference of two variants that a comparison is made for: the first less the second."""

    name: str = Field(min_length=1)
    """What the difference shows."""
    first: str
    """A variant as reports name it: a loss, then the settings that set it apart, KEY=VALUE."""
    second: str
    """Likewise."""
    margin: dict[str, Margin] = Field(default_factory=dict)
    """Replaces the margin of the spec."""


class PassMark(Table):
    """A test: a task with certain parameters, and the values of its test metrics that pass.

    An axis of the task that `params` does not name keeps its values: the mark then holds for all of them.
    """

    name: str = Field(min_length=1)
    """Name of the test."""
    task: str
    """Task that the test is about."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters that differ from those of the task in the spec."""
    at_most: dict[str, Finite] = Field(default_factory=dict)
    """Metric -> the largest value that passes."""
    at_least: dict[str, Finite] = Field(default_factory=dict)
    """Metric -> the smallest value that passes."""
    why: str = ""
    """The reason for the bounds, and what the test asks."""

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
    """Task that the value was measured on."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the task that the value belongs to, such as `table`; empty: all."""
    method: str = Field(min_length=1)
    """Name of the method."""
    metric: str
    """Metric, without a split."""
    value: Finite
    """A share, not a percentage; an error, not an accuracy."""
    spread: Annotated[Finite, Field(ge=0)] | None = None
    """The number behind ± in the source, whatever it is."""
    source: str = Field(min_length=1)
    """With the place in it."""
    note: str = ""
    """How its measurement differs from that of the results here."""

    @model_validator(mode="after")
    def _is_a_share(self) -> Self:
        if self.metric in METRICS and METRICS[self.metric].percent and not 0 <= self.value <= 1:
            raise ValueError(f"{self.metric} is a share between 0 and 1, got {self.value:g}")
        return self

    def entry(self) -> Published:
        """Return the value as a plan holds it."""
        return Published("", **self.model_dump(exclude={"task", "params"}))


class Execution(Table):
    """Where and how cells run, which changes no result."""

    device: str = "auto"
    """auto, cpu, cuda (every GPU) or cuda:N."""
    jobs: int | None = Field(default=None, ge=1, le=MOST_WORKERS)
    """Cells that run at a time; none: one per core, or one per GPU."""
    threads: int | None = Field(default=None, ge=1, le=MOST_WORKERS)
    """Threads of each cell; none: cores / jobs."""
    data_dir: Path | None = None
    """Folder of the data sets; none: the default one."""
    cluster: str | None = None
    """Address of a dask scheduler, or local:N; none: processes of this machine."""
    shard: str | None = None
    """i/n: only every n-th cell, from the i-th on, for job arrays on a shared disk."""
    rerun: Literal["missing", "failed", "all"] = "missing"
    """Run missing cells, failed ones as well, or all cells anew."""
    timeout: float | None = Field(default=None, ge=1, le=10_000_000)
    """Seconds after which a cell fails; none: never."""
    in_process: bool = False
    """Run cells in the launching process, one at a time, for a debugger."""
    log_models: bool = False
    """Log every network as an MLflow model too."""


def _check_name(name: str) -> str:
    if not re.fullmatch(COMPARISON_NAME, name) or len(name) > LONGEST_NAME:
        raise ValueError(
            f"expected at most {LONGEST_NAME} letters, digits and . _ + -, the first one a letter or a digit"
        )
    return name


class Spec(Table):
    """A comparison: every loss on every task with every seed, under one recipe or several."""

    name: Annotated[str, AfterValidator(_check_name)]
    """Name of the comparison; a spec file, or else --task, provides one."""
    title: str = ""
    """Title of the report."""
    losses: list[str] = Field(min_length=1)
    """Names, modules or paths of files."""
    tasks: list[str] = Field(min_length=1)
    """Names, modules or paths of files."""
    networks: list[str] = Field(default=[DEFAULT], min_length=1)
    """Names, modules or paths of files; default: the first network of each task."""
    seeds: str | int | list[int] | None = None
    """Such as "0-9" or "0,2,5"; none: seed 0, or all folds of a task."""
    loss: dict[str, Params] = Field(default_factory=dict)
    """Name -> arguments, of which a list is an axis; `networks` among them replaces those of the spec."""
    task: dict[str, Params | list[Params]] = Field(default_factory=dict)
    """Name -> arguments, or a list of tables of arguments, one per variant, which may have a short `name`."""
    network: dict[str, Params] = Field(default_factory=dict)
    """Name -> arguments, of which a list is an axis."""
    recipe: Params = Field(default_factory=dict)
    """Changes to the recipes of all tasks; those in a table named after a task are for that task."""
    run: Execution = Field(default_factory=Execution)
    """Where and how cells run."""
    supervision: list[Supervision] = Field(default_factory=list)
    """Kinds of supervision that are compared on purpose."""
    selection: Selection = "last"
    """Epoch by which losses are compared; no result depends on it."""
    margin: dict[str, Margin] = Field(default_factory=dict)
    """Metric -> the largest difference that counts as none."""
    compare_by: list[str] = Field(default_factory=list)
    """Metrics by which losses are compared, the first in place of each task's primary metric."""
    contrasts: list[NamedContrast] = Field(default_factory=list)
    """Differences that the comparison is made for."""
    preset: str = ""
    """The preset that was chosen."""
    about: str = ""
    """What that preset is, and how long it takes."""
    notes: list[str] = Field(default_factory=list)
    """Notes for the reader of the report, such as the limits of a preset."""
    differences: list[Difference] = Field(default_factory=list)
    """Differences between a publication and its code."""
    published: list[Literature] = Field(default_factory=list)
    """Values from the literature, to stand beside the results."""
    marks: list[PassMark] = Field(default_factory=list)
    """Tests that every loss takes, with the values that pass."""
    tune: Search | None = None
    """How settings are searched before losses are compared."""
    origin: str = ""
    """Set by the launch: a digest of the file and of -p; launches of one origin add up."""
    changed: bool = False
    """Set by the launch: whether flags have changed what the file says."""


TABLES: dict[str, type[BaseModel]] = {
    "": Spec, "recipe": Recipe, "run": Execution, "tune": Search, "contrasts": NamedContrast, "marks": PassMark,
    "published": Literature, "differences": Difference,
}  # fmt: skip
"""The tables of a spec by name, "" for the keys outside all of them."""


def settings(*tables: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the default and the meaning of every key of these tables of a spec; none: of all of them."""
    for table in tables or TABLES:
        for name, field in TABLES[table].model_fields.items():
            default = field.get_default(call_default_factory=True)
            text = "none" if default is None else "" if isinstance(default, Table) else str(default)
            key = f"{table}.{name}" if table else name
            yield key, "(required)" if field.is_required() else text, field.description or ""


def setting_of(name: str) -> str | None:
    """Return the key of a recipe, a run or a search of this name, such as "recipe.lr" for "lr"; None: there is none."""
    return next((key for key, *_ in settings("recipe", "run", "tune") if key.endswith(f".{name}")), None)


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


def _with_preset(values: Params, preset: str | None, given: str) -> Params:
    presets = values.pop("presets", {})
    if not isinstance(presets, dict) or not all(isinstance(changes, dict) for changes in presets.values()):
        raise UsageError(f"spec {given}: presets are tables, [presets.NAME]")
    if not presets:
        if preset is not None:
            raise UsageError(f"spec {given} has no presets; leave out --preset {preset}")
        return values
    preset = next(iter(presets)) if preset is None else preset
    if preset not in presets:
        raise unknown(f"preset of {given}", preset, presets)
    return {**merged(values, presets[preset]), "preset": preset}


def merged(values: Params, changes: Params) -> Params:
    """Return `values` with `changes`; tables in both are merged."""
    nested = {
        k: merged(values[k], v) for k, v in changes.items() if isinstance(v, dict) and isinstance(values.get(k), dict)
    }
    return {**values, **changes, **nested}


def built_in_specs() -> dict[str, Traversable]:
    """Return the specs that come with milbench, by name."""
    files = resources.files("milbench.specs").iterdir()
    return {f.name.removesuffix(".toml"): f for f in sorted(files, key=str) if f.name.endswith(".toml")}


def make_spec(values: Params, owner: str = "the run") -> Spec:
    """Return a spec of these values; `owner` is what they belong to, for messages.

    Raises UsageError where a value is unknown, missing or wrong, or a section belongs to no loss or task.
    """
    spec: Spec = validated(owner, Spec, values)
    for loss, params in spec.loss.items():
        names = as_list(params.get("networks", [DEFAULT]))
        if not names or not all(isinstance(name, str) for name in names):
            raise UsageError(f"{owner}: loss.{loss}.networks = {names!r}: expected names of networks")
    for kind, entries in (("marks", spec.marks), ("contrasts", spec.contrasts)):
        names = [entry.name for entry in entries]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"{owner}: two {kind} are named {twice!r}")
    if table := next((name for name in _tables(spec.recipe) if name in Recipe.model_fields), None):
        raise UsageError(
            f"{owner}: recipe.{table} is a table; a list of values is an axis, and ranges that are searched stand in "
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
        available = {resolve(registry, name) for name in chosen} | {*registry.names()}
        for section in sections:
            if section not in available:
                raise unknown(f"{kind} section of {owner}", section, available)
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
    identity_fields = [
        {key: value for key, value in values.items() if spec and key != "run"},
        {key: value for key, value in changes.items() if key not in ("name", "losses", "tasks", "networks", "seeds")},
        deciding,
    ]
    values |= changes | {"run": values.get("run", {}) | run}
    for setting in sorted(settings, key=lambda text: not re.match(r"loss\.[^.=]+\.networks=", text)):
        parse_setting(values, setting)  # first which networks there are
    values["origin"] = hashlib.sha256(json.dumps(identity_fields, default=str).encode()).hexdigest()[:16]
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
        for name in _entries_with(values, kind, names, parameter, setting):
            section = sections.get(name, {})
            variants = [
                {**variant, parameter: value} for variant in (section if isinstance(section, list) else [section])
            ]
            sections[name] = variants if isinstance(section, list) else variants[0]


def _closest_setting(key: str) -> str | None:
    keys = [name for name, *_ in settings("recipe", "run")]
    tables = ("recipe", "loss", "task", "network")
    return setting_of(key) or (None if key in (*tables, "run") else closest(key, [*SETTABLE, *keys, *tables]))


def _with_setting(recipe: Params, task: list[str], change: Params) -> Params:
    """Return a spec's recipe with a change for one task, or for all, which replaces the changes of single tasks."""
    if task:
        return merged(recipe, {task[0]: change})
    of_tasks = {k: {n: x for n, x in v.items() if n not in change} for k, v in recipe.items() if isinstance(v, dict)}
    return {**recipe, **of_tasks, **change}


def _entries_with(values: Params, kind: str, names: list[str], parameter: str, setting: str) -> list[str]:
    """Return the chosen losses, tasks or networks that a setting is for: the one it names, else all that have it."""
    parameters = _parameters_of(values, kind)
    if names:
        if names[0] not in parameters:
            raise unknown(f"{kind} of this run in -p {setting}", names[0], parameters)
        return names
    takers = [name for name in parameters if parameter in parameters[name]]
    if not takers:
        raise unknown(f"parameter of {kind} {', '.join(parameters)}", parameter, set().union(*parameters.values()))
    return takers


def _parameters_of(values: Params, kind: str) -> dict[str, set[str]]:
    """Return the parameters of every chosen loss, task or network, by its name."""
    if kind == "loss":
        loss_names = [resolve(losses(), requested) for requested in values["losses"]]
        return {name: {*constructor_parameters(losses().get(name)), "networks"} for name in loss_names}
    task_names = [resolve(tasks(), requested) for requested in values["tasks"]]
    if kind == "task":
        return {name: {*constructor_parameters(tasks().get(name))} for name in task_names}
    from milbench.networks.registry import network_maker, network_name

    loss_networks = [as_list(table.get("networks", [])) for table in values.get("loss", {}).values()]
    requested = [*values.get("networks", [DEFAULT]), *itertools.chain.from_iterable(loss_networks)]
    parameters: dict[str, set[str]] = {}
    for cls, network in itertools.product(map(tasks().get, task_names), requested):
        name = network_name(cls, network)
        parameters.setdefault(name, set()).update(network_parameters(network_maker(cls, name)))
    return parameters


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
