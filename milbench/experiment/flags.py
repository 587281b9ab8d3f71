"""A spec with the flags of a command in it, among them the settings `-p KEY=VALUE`."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from milbench.contracts.parameters import (
    constructor_parameters,
    network_parameters,
    parsed,
    type_of,
)
from milbench.contracts.registry import losses, tasks
from milbench.contracts.resolver import read_edited, resolve
from milbench.errors import UsageError, closest, unknown
from milbench.experiment.launch_settings import Launch
from milbench.experiment.spec import DEFAULT, Settings, Spec, as_list
from milbench.experiment.spec_files import (
    TABLES,
    Comparisons,
    Source,
    check_spec,
    merged,
    read_source,
    settings,
)

DEPTHS = {"recipe": 2, "loss": 2, "task": 2, "network": 2, "run": 1, "tune": 1}
"""How many names may stand behind that of a table: loss.NAME.KEY."""
SETTABLE = {
    "title": False,
    "selection": False,
    "supervision": True,
    "compare_by": True,
    "notes": True,
}
"""The keys outside all tables that `-p` sets, and whether each is a list."""
SYNONYMS = {
    "batch_size": "batch_bags",
    "learning_rate": "lr",
    "num_epochs": "epochs",
    "gpu": "device",
}
TRAINING_TABLES = ("recipe", "loss", "task", "network", "tune")
"""The tables whose settings change what is trained."""

# A value in quotes, one in brackets, or text up to the next comma.
_VALUES = re.compile(r"""\s*("[^"]*"|'[^']*'|\[[^\]]*\]|[^,]*?)\s*(?:,|$)""")


@dataclass(frozen=True)
class Flags:
    """What a command says of a comparison itself. None: nothing, so that the spec decides."""

    losses: list[str] | None = None
    tasks: list[str] | None = None
    networks: list[str] | None = None
    seeds: str | int | list[int] | None = None
    name: str | None = None
    loss: dict[str, Settings] | None = None
    """Name -> arguments; so for tasks and networks."""
    task: dict[str, Settings] | None = None
    network: dict[str, Settings] | None = None
    recipe: Settings | None = None
    supervision: list[str] | None = None
    settings: Sequence[str] = ()
    """Those of `-p`, each KEY=VALUE."""
    execution: Settings = field(default_factory=dict)
    """Fields of `Execution`."""

    @property
    def fields(self) -> Settings:
        """The fields of a spec that they replace."""
        said = {
            "losses": self.losses,
            "tasks": self.tasks,
            "networks": self.networks,
            "seeds": self.seeds,
            "name": self.name,
            "loss": self.loss,
            "task": self.task,
            "network": self.network,
            "recipe": self.recipe,
            "supervision": self.supervision,
        }
        return {key: value for key, value in said.items() if value is not None}

    @property
    def deciding_settings(self) -> list[str]:
        """The settings that a result may depend on: all but those of the table run."""
        return [setting for setting in self.settings if not setting.startswith("run.")]


def setting_key(name: str) -> str | None:
    """Return the key of a recipe, a run, a search or a task of this name, such as "recipe.lr" for "lr"; None: none."""
    name = SYNONYMS.get(name, name)
    keys = [key for key, _, _ in settings("recipe", "run", "tune")]
    for task in tasks().names():
        # A plug-in may not be importable.
        with suppress(UsageError):
            keys += [f"task.{parameter}" for parameter in constructor_parameters(tasks().get(task))]
    return next((key for key in keys if key.endswith(f".{name}")), None)


def requested(
    flags: Flags,
    reference: str | None = None,
    preset: str | None = None,
    store: Comparisons | None = None,
) -> tuple[Spec, Launch]:
    """Return the spec that a command asks for, and how it is launched.

    The reference is that of a spec: a file, a built-in name, or a comparison of the store. None: the flags say it all.
    Raises UsageError where one of them is wrong.
    """
    read_edited()
    source = _source(flags, reference, preset, store)
    origin = _origin(source, flags)
    is_changed = False
    values = dict(source.values)
    if reference:
        values["notes"] = _valid_notes(values, flags)
        changes = flags.fields.keys() - {"name"} or flags.deciding_settings
        is_changed = source.is_changed or bool(changes)
    else:
        values["name"] = "+".join(resolve(tasks(), task) for task in flags.tasks or ())
    values |= flags.fields
    execution = {key: value for key, value in flags.execution.items() if value is not None}
    values["run"] = values.get("run", {}) | execution
    # Which networks a loss has decides which parameters of networks there are.
    for setting in sorted(flags.settings, key=lambda text: not _is_of_networks(text)):
        parse_setting(values, setting)
    file = check_spec(values)
    return file.spec(), Launch(file.run, origin=origin, is_changed=is_changed)


def _is_of_networks(setting: str) -> bool:
    """Return whether a setting says which networks a loss has: loss.NAME.networks=..."""
    return re.match(r"loss\.[^.=]+\.networks=", setting) is not None


def _source(
    flags: Flags, reference: str | None, preset: str | None, store: Comparisons | None
) -> Source:
    """Return what a spec says, nothing without one. Raises UsageError where flags lack what it would say."""
    if reference:
        return read_source(reference, preset, store)
    if preset is not None:
        raise UsageError(f"--preset {preset} needs a spec to take it from")
    missing = []
    if not flags.losses:
        missing.append("--loss")
    if not flags.tasks:
        missing.append("--task")
    if missing:
        expected = f"give a spec, or --loss and --task ({' and '.join(missing)} missing)"
        raise UsageError(f"{expected}; milbench list losses|tasks|specs shows what there is")
    return Source({})


def _origin(source: Source, flags: Flags) -> str:
    """Return a digest of a spec and of what flags change, but for axes to which launches add."""
    spec = {key: value for key, value in source.values.items() if key != "run"}
    axes = ("name", "losses", "tasks", "networks", "seeds")
    changes = {key: value for key, value in flags.fields.items() if key not in axes}
    if source.origin and not changes and not flags.deciding_settings:
        # A comparison of the store goes on.
        return source.origin
    content = json.dumps([spec, changes, flags.deciding_settings], default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _valid_notes(values: Settings, flags: Flags) -> list[str]:
    """Return the notes of a spec without those that flags may have made false, and what these flags changed.

    A note may state any setting of the training; where seeds alone are others, those that speak of none stay.
    """
    notes: list[str] = values.get("notes", [])
    training = [
        setting
        for setting in flags.deciding_settings
        if setting.partition(".")[0] in TRAINING_TABLES
    ]
    axes = {
        key: value
        for key, value in (("seeds", flags.seeds), ("networks", flags.networks))
        if value is not None and value != values.get(key)
    }
    if not training and not axes:
        return notes
    valid = []
    if not training and "networks" not in axes:
        valid = [note for note in notes if not re.search(r"\bseeds?\b", note)]
    said = [f"{key} {', '.join(map(str, as_list(value)))}" for key, value in axes.items()]
    changed = "; ".join(said + training)
    return [
        *valid,
        f"Changed by flags: {changed}. Notes of the spec that this may make false are left out.",
    ]


def parse_setting(values: Settings, setting: str) -> None:
    """Change the values of a spec by one setting of the command line (`-p`).

    It is recipe.KEY=VALUE for all tasks, recipe.TASK.KEY=VALUE for one, loss.KEY=VALUE for every chosen loss that has
    such a parameter, loss.NAME.KEY=VALUE for one (tasks and networks likewise), run.KEY=VALUE, tune.KEY=VALUE, or
    KEY=VALUE for another field of the spec. Commas between values make an axis. Raises UsageError for any other form,
    and where no chosen loss or task has such a parameter.
    """
    key, equals, text = setting.partition("=")
    table, *names = key.strip().split(".")
    texts = _split(text)
    if equals and not names and table in SETTABLE:
        value = _value(texts, str)
        values[table] = as_list(value) if SETTABLE[table] else value
        return
    has_key = 1 <= len(names) <= DEPTHS.get(table, 0) and all(names)
    if not equals or not has_key:
        raise _malformed(setting, table)
    if table in TABLES:
        _set_in_table(values, table, names, texts)
    else:
        _set_parameter(values, table, names, texts, setting)


def _split(text: str) -> list[str]:
    """Split the values of a setting at commas; quotes and brackets keep theirs."""
    if not text.strip(", \t"):
        # Text of commas and spaces alone is one value.
        return [text]
    # The last match is empty, at the end of the text.
    return _VALUES.findall(text)[:-1]


def _malformed(setting: str, table: str) -> UsageError:
    keys = [key for key, _, _ in settings("recipe", "run")]
    choices = [*SETTABLE, *keys, "recipe", "loss", "task", "network"]
    suggestion = setting_key(table)
    if suggestion is None and table not in DEPTHS:
        suggestion = closest(table, choices)
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    return UsageError(
        f"-p {setting}: expected recipe.KEY=VALUE, recipe.TASK.KEY=VALUE, loss.KEY=VALUE, loss.NAME.KEY=VALUE, "
        f"task.KEY=VALUE, network.KEY=VALUE or run.KEY=VALUE{hint}"
    )


def _set_in_table(values: Settings, table: str, names: list[str], texts: Sequence[str]) -> None:
    """Set a key of recipe, run or tune; one of the recipe for all tasks replaces what single tasks have."""
    *task, key = names
    known = TABLES[table].model_fields.get(key)
    change: Settings = {key: _value(texts, known.annotation if known else Any)}
    earlier: Settings = values.get(table, {})
    if task:
        change = {task[0]: change}
    elif table == "recipe":
        earlier = _without_in_tables(earlier, key)
    values[table] = merged(earlier, change)


def _without_in_tables(recipe: Settings, key: str) -> Settings:
    """Return a recipe without a key in the tables of single tasks."""
    changed = dict(recipe)
    for task, table in recipe.items():
        if isinstance(table, dict):
            changed[task] = {name: value for name, value in table.items() if name != key}
    return changed


def _set_parameter(
    values: Settings, kind: str, names: list[str], texts: Sequence[str], setting: str
) -> None:
    """Set a parameter of the losses, tasks or networks that a setting means, in all their variants."""
    *owner, parameter = names
    tables = values.setdefault(kind, {})
    for name, annotation in _owners(values, kind, owner, parameter, setting).items():
        earlier = tables.get(name, {})
        change = {parameter: _value(texts, annotation)}
        if isinstance(earlier, list):
            tables[name] = [variant | change for variant in earlier]
        else:
            tables[name] = earlier | change


def _value(texts: Sequence[str], annotation: Any) -> Any:
    """Return a value of a type, or a list of several, which is an axis."""
    values = [parsed(text, annotation) for text in texts]
    # A list in a spec is an axis, so that one value which is a list stands in another.
    if len(values) > 1 or isinstance(values[0], list):
        return values
    return values[0]


def _owners(
    values: Settings, kind: str, owner: list[str], parameter: str, setting: str
) -> Mapping[str, Any]:
    """Return the type of a parameter by the loss, task or network that a setting names, else by all that have it."""
    types = _parameter_types(values, kind)
    if owner:
        (name,) = owner
        if name not in types:
            raise unknown(f"{kind} of this run (-p {setting}):", name, types)
        return {name: types[name].get(parameter, Any)}
    matches = {name: own[parameter] for name, own in types.items() if parameter in own}
    if not matches:
        known = set().union(*types.values())
        raise unknown(f"parameter of {kind} {', '.join(types)}", parameter, known)
    return matches


def _parameter_types(values: Settings, kind: str) -> dict[str, dict[str, Any]]:
    """Return the parameters of every chosen loss, task or network with their types, by its name."""
    if kind == "loss":
        return _types_of_losses(values)
    if kind == "task":
        return _types_of_tasks(values)
    return _types_of_networks(values)


def _types_of_losses(values: Settings) -> dict[str, dict[str, Any]]:
    types = {}
    for reference in values["losses"]:
        name = resolve(losses(), reference)
        parameters = constructor_parameters(losses().get(name))
        types[name] = {key: type_of(parameter) for key, parameter in parameters.items()}
        types[name]["networks"] = str
    return types


def _types_of_tasks(values: Settings) -> dict[str, dict[str, Any]]:
    types = {}
    for reference in values["tasks"]:
        name = resolve(tasks(), reference)
        parameters = constructor_parameters(tasks().get(name))
        types[name] = {key: type_of(parameter) for key, parameter in parameters.items()}
    return types


def _types_of_networks(values: Settings) -> dict[str, dict[str, Any]]:
    """Return the types for every network that is asked for on a chosen task; one name may be known to several tasks."""
    from milbench.networks.known_networks import network_maker, network_name

    wanted = list(values.get("networks", [DEFAULT]))
    for table in values.get("loss", {}).values():
        wanted += as_list(table.get("networks", []))
    types: dict[str, dict[str, Any]] = {}
    for reference in values["tasks"]:
        task = tasks().get(resolve(tasks(), reference))
        for network in wanted:
            name = network_name(task, network)
            parameters = network_parameters(network_maker(task, name))
            own = types.setdefault(name, {})
            own.update({key: type_of(parameter) for key, parameter in parameters.items()})
    return types
