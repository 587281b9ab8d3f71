"""The spec: everything that a user can say of a comparison, in a TOML file or in Python."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, model_validator

from milbench.api.plan import COMPARISON_NAME, LONGEST_NAME, Selection
from milbench.api.published import Published
from milbench.api.questions import TABLE, Contrast, Mark
from milbench.api.recipe import Recipe
from milbench.api.registry import Registry, losses, tasks
from milbench.api.resolver import resolve
from milbench.api.supervision import Supervision
from milbench.api.validation import validated
from milbench.engine.folders import Root
from milbench.errors import UsageError, unknown

Params = dict[str, Any]
DEFAULT = "default"  # stands for the first network of each task
MOST_WORKERS = (
    1024  # processes, or threads of each: more are a slip, which would exhaust the machine
)
MOST_DRAWS = 4096  # more are a slip
MOST_SEEDS = 100_000  # more are a slip, and would not fit into memory


class Table(BaseModel):
    """A table of a spec, without unknown keys; the texts below its fields are their descriptions."""

    model_config = TABLE


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


class Execution(Table):
    """Where and how cells run, which changes no result."""

    device: str = "auto"
    """auto, cpu, cuda (every GPU) or cuda:N."""
    jobs: int | None = Field(default=None, ge=1, le=MOST_WORKERS)
    """Cells that run at a time; none: one per core, or one per GPU."""
    threads: int | None = Field(default=None, ge=1, le=MOST_WORKERS)
    """Threads of each cell; none: cores / jobs, and one where a step is small."""
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


class Range(Table):
    """The values of a setting between two ends."""

    low: float = Field(allow_inf_nan=False)
    """The least value."""
    high: float = Field(allow_inf_nan=False)
    """The largest value."""
    scale: Literal["linear", "log"] = "linear"
    """What is uniform: the value, or its logarithm."""

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low = {self.low:g} must be less than high = {self.high:g}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(
                f"low = {self.low:g} has no logarithm; scale = log needs a low above 0"
            )
        return self

    def quantile(self, share: float) -> float:
        """Return the value below which `share` of the values are, to four digits."""
        low, high = self.low, self.high
        return float(
            f"{low * (high / low) ** share if self.scale == 'log' else low + share * (high - low):.4g}"
        )


Dimension = Range | list[Any]
"""A range, of which values are drawn, or a list of values, which are all tried."""


def _check_values(name: str, values: Any) -> None:
    """Raise ValueError where a setting is searched in a list that is empty or has a value twice."""
    if not isinstance(values, list):
        return
    if not values:
        raise ValueError(f"{name} = [] has no values")
    texts = [repr(value) for value in values]
    repeated = [text for text in texts if texts.count(text) > 1]
    if repeated:
        raise ValueError(
            f"{name} lists {repeated[0]} twice; expected every value once, since all are tried"
        )


class Search(Table):
    """How settings are searched: the table [tune] of a spec."""

    draws: int = Field(default=16, ge=1, le=MOST_DRAWS)
    """Points that are drawn from the ranges; each is tried with every combination of the lists."""
    search_seed: int = Field(default=0, ge=0)
    """Seed of the points: another one gives other points."""
    seeds: str | int | list[int] = "1000"
    """Seeds with which draws are trained, the smallest first; none of them is a seed of the comparison."""
    finalists: int | None = Field(default=None, ge=1)
    """Draws of each loss on each task that are trained with all seeds, the others with the first one; none: all."""
    metric: Literal["set_error", "label_error", "own_label_error", "instance_error"] = "set_error"
    """Metric of validation bags that chooses; the instance error is that of bags of one instance."""
    recipe: dict[str, Dimension | dict[str, Dimension]] = Field(default_factory=dict)
    """Setting -> its values; those in a table named after a task are for that task."""
    loss: dict[str, dict[str, Dimension]] = Field(default_factory=dict)
    """Name -> parameter of that loss -> its values."""
    draw_recipe: Params = Field(default_factory=dict)
    """Changes to the recipe during the search, such as fewer epochs."""
    draw_task: dict[str, Params] = Field(default_factory=dict)
    """Task -> changes to its parameters during the search."""

    @model_validator(mode="after")
    def _check_spaces(self) -> Self:
        if not self.recipe and not any(self.loss.values()):
            raise ValueError("there is nothing to search: add [tune.recipe] or [tune.loss.NAME]")
        task_spaces = [values for values in self.recipe.values() if isinstance(values, dict)]
        spaces: list[Any] = [self.recipe, *task_spaces, *self.loss.values()]
        for space in spaces:
            for name, values in space.items():
                _check_values(name, values)
                if name == "precision" and isinstance(values, list) and "auto" in values:
                    raise ValueError(
                        "precision = auto is float32 or bfloat16, whichever is quicker; list these two"
                    )
        return self


def _check_name(name: str) -> str:
    if re.fullmatch(COMPARISON_NAME, name) and len(name) <= LONGEST_NAME:
        return name
    raise ValueError(
        f"expected at most {LONGEST_NAME} letters, digits and . _ + -, the first one a letter or a digit"
    )


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
    margin: dict[str, Annotated[FiniteFloat, Field(gt=0)]] = Field(default_factory=dict)
    """Metric -> the largest difference that counts as none."""
    compare_by: list[str] = Field(default_factory=list)
    """Metrics by which losses are compared, the first in place of each task's primary metric."""
    contrasts: list[Contrast] = Field(default_factory=list)
    """Differences that the comparison is made for."""
    preset: str = ""
    """The preset that was chosen."""
    about: str = ""
    """What that preset is, and how long it takes."""
    notes: list[str] = Field(default_factory=list)
    """Notes for the reader of the report, such as the limits of a preset."""
    differences: list[Difference] = Field(default_factory=list)
    """Differences between a publication and its code."""
    published: list[Published] = Field(default_factory=list)
    """Values from the literature, to stand beside the results."""
    marks: list[Mark] = Field(default_factory=list)
    """Tests that every loss takes, with the values that pass."""
    tune: Search | None = None
    """How settings are searched before losses are compared."""
    origin: str = ""
    """Set by the launch: a digest of the file and of -p; launches of one origin add up."""
    changed: bool = False
    """Set by the launch: whether flags have changed what the file says."""


TABLES: dict[str, Any] = {
    "": Spec, "recipe": Recipe, "run": Execution, "tune": Search, "contrasts": Contrast, "marks": Mark,
    "published": Published, "differences": Difference,
}  # fmt: skip
"""The tables of a spec by name, "" for the keys outside all of them."""


def settings(*tables: str) -> Iterator[tuple[str, str, str]]:
    """Yield the key, the default and the meaning of every setting in these tables of a spec; none: in all of them."""
    for table in tables or TABLES:
        for name, field in TABLES[table].__pydantic_fields__.items():
            default = field.get_default(call_default_factory=True)
            text = "none" if default is None else "" if isinstance(default, Table) else str(default)
            key = f"{table}.{name}" if table else name
            yield key, "(required)" if field.is_required() else text, field.description or ""


def read_spec(reference: str, preset: str | None = None, root: Path | None = None) -> Spec:
    """Read a TOML file or a built-in spec, with one of its presets: tables `[presets.NAME]`, by default the first.

    Where there is neither, read the spec of the comparison of this name in the store of a root. Raises UsageError where
    there is no such spec or preset, or something in it is wrong.
    """
    name, values = _read(reference, root)
    presets = values.pop("presets", {})
    if not isinstance(presets, dict) or not all(
        isinstance(changes, dict) for changes in presets.values()
    ):
        raise UsageError(f"spec {reference}: presets are tables, [presets.NAME]")
    if not presets and preset is not None:
        raise UsageError(f"spec {reference} has no presets; leave out --preset {preset}")
    if presets:
        preset = next(iter(presets)) if preset is None else preset
        if preset not in presets:
            raise unknown(f"preset of {reference}", preset, presets)
        values = {**merged(values, presets[preset]), "preset": preset}
    return make_spec({"name": name} | values, owner=f"spec {reference}")


def presets(reference: str) -> dict[str, str]:
    """Return the descriptions of the presets of a spec, by name, the default first."""
    return {
        name: changes.get("about", "")
        for name, changes in _read(reference)[1].get("presets", {}).items()
    }


def _read(reference: str, root: Path | None = None) -> tuple[str, Params]:
    """Return the name of a spec and its fields, those of its presets among them."""
    path, built_in, stored = Path(reference), built_in_specs(), Root(root).names() if root else []
    name = path.name.removesuffix(".toml")
    file = path if path.is_file() else built_in.get(name)
    if file is None and root and reference in stored:
        return reference, {
            key: value for key, value in Root(root).plan(reference).spec.items() if key != "run"
        }
    if file is None:
        raise unknown("spec (no such file, and no built-in one)", reference, [*built_in, *stored])
    try:
        return name, tomllib.loads(
            file.read_text("utf-8").removeprefix("\ufeff")
        )  # editors of Windows begin with it
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of 5,000 digits, tables in tables without end
        raise UsageError(f"{reference} is not TOML: {error}") from None


def merged(values: Params, changes: Params) -> Params:
    """Return `values` with `changes`; tables in both are merged."""
    tables = [
        k for k, v in changes.items() if isinstance(v, dict) and isinstance(values.get(k), dict)
    ]
    return values | changes | {key: merged(values[key], changes[key]) for key in tables}


def built_in_specs() -> dict[str, Traversable]:
    """Return the specs that come with milbench, by name."""
    files = resources.files("milbench.specs").iterdir()
    return {
        f.name.removesuffix(".toml"): f for f in sorted(files, key=str) if f.name.endswith(".toml")
    }


def make_spec(values: Params, owner: str = "the run") -> Spec:
    """Return a spec of these values. Raises UsageError, naming the `owner`, where one is unknown, missing or wrong."""
    spec: Spec = validated(owner, Spec, values)
    for loss, params in spec.loss.items():
        names = as_list(params.get("networks", [DEFAULT]))
        if not names or not all(isinstance(name, str) for name in names):
            raise UsageError(
                f"{owner}: loss.{loss}.networks = {names!r}: expected names of networks"
            )
    for kind, entries in (("marks", spec.marks), ("contrasts", spec.contrasts)):
        names = [entry.name for entry in entries]
        if duplicate := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"{owner}: two {kind} are named {duplicate!r}")
    task_recipes = [name for name, value in spec.recipe.items() if isinstance(value, dict)]
    if table := next((name for name in task_recipes if name in Recipe.model_fields), None):
        raise UsageError(
            f"{owner}: recipe.{table} is a table; a list of values is an axis, [tune.recipe] a search"
        )
    search = spec.tune or Search.model_construct()
    sections: dict[str, tuple[Iterable[str], list[str], Registry[Any]]] = {
        "loss": (spec.loss, spec.losses, losses()),
        "task": (spec.task, spec.tasks, tasks()),
        "recipe": (task_recipes, spec.tasks, tasks()),
        "tune.loss": (search.loss, spec.losses, losses()),
        "tune.draw_task": (search.draw_task, spec.tasks, tasks()),
        "tune.draw_recipe": (
            [k for k, v in search.draw_recipe.items() if isinstance(v, dict)],
            spec.tasks,
            tasks(),
        ),
        "tune.recipe": (
            [k for k, v in search.recipe.items() if isinstance(v, dict)],
            spec.tasks,
            tasks(),
        ),
    }
    for section, (keys, references, registry) in sections.items():
        # A section of a loss or task that exists but is not chosen is no mistake: a flag may have left it out.
        available = {resolve(registry, reference) for reference in references} | {*registry.names()}
        for name in keys:
            if name not in available:
                raise unknown(f"{section} section of {owner}", name, available)
    return spec


def for_task(recipe: Mapping[str, Any], task: str) -> Params:
    """Return the entries of a recipe, or of its spaces, for all tasks, and those of the table named after one."""
    return {**{k: v for k, v in recipe.items() if not isinstance(v, dict)}, **recipe.get(task, {})}


def as_list(value: Any) -> list[Any]:
    """Return a list, of one value where it is none."""
    return value if isinstance(value, list) else [value]


def parse_seeds(seeds: str | int | list[int] | None) -> list[int]:
    """Turn "0-9", "0,2,5-7", 3 or [0, 1] into a sorted list of seeds, None into seed 0. Raises UsageError."""
    if seeds is None:
        return [0]
    if seeds == []:
        raise UsageError("seeds = [] names no seed")
    ranges: list[range] = []
    for part in map(str, seeds if isinstance(seeds, list) else str(seeds).split(",")):
        match = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", part)
        if not match:
            raise UsageError(
                f"seeds: {part[:40]!r} is neither a number of at most 18 digits nor a range such as 0-9"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(
                f"seeds: the range {part!r} runs backwards; did you mean {last}-{first}?"
            )
        ranges.append(range(first, last + 1))
    if (count := sum(map(len, ranges))) > MOST_SEEDS:
        raise UsageError(f"seeds: {count:,} seeds are too many, expected at most {MOST_SEEDS:,}")
    return sorted(set().union(*ranges))
