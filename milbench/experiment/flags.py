"""Apply the flags of a command to a spec, among them the assignments `-p KEY=VALUE`."""

import hashlib
import inspect
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
from milbench.contracts.resolver import reload_edited_plugins, resolve
from milbench.errors import UsageError, closest, unknown
from milbench.experiment.launch_settings import Launch
from milbench.experiment.spec import DEFAULT, Settings, Spec, as_list
from milbench.experiment.spec_files import (
    TABLES,
    Source,
    Store,
    check_spec,
    describe_settings,
    merged,
    read_source,
)

DEPTHS = {"recipe": 2, "loss": 2, "task": 2, "network": 2, "run": 1, "tune": 1}
"""How many names may follow the name of a table: in loss.NAME.KEY there are two."""
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
"""A name that users may try -> the setting that they mean, which messages then suggest."""
TRAINING_TABLES = ("recipe", "loss", "task", "network", "tune")
"""The tables whose settings change what is trained."""

# A value in quotes, one in brackets, or text up to the next comma.
_VALUES = re.compile(r"""\s*("[^"]*"|'[^']*'|\[[^\]]*\]|[^,]*?)\s*(?:,|$)""")


@dataclass(frozen=True)
class Flags:
    """What a command says of a comparison itself.

    A field that is None leaves the decision to the spec.
    """

    losses: list[str] | None = None
    tasks: list[str] | None = None
    networks: list[str] | None = None
    seeds: str | int | list[int] | None = None
    name: str | None = None
    loss: dict[str, Settings] | None = None
    """Name -> arguments."""
    task: dict[str, Settings] | None = None
    """Name -> arguments."""
    network: dict[str, Settings] | None = None
    """Name -> arguments."""
    recipe: Settings | None = None
    supervision: list[str] | None = None
    assignments: Sequence[str] = ()
    """The values of all flags `-p`, each KEY=VALUE."""
    execution: Settings = field(default_factory=dict)
    """Fields of `Execution`."""

    @property
    def fields(self) -> Settings:
        """The fields of a spec that these flags replace."""
        given = {
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
        return {key: value for key, value in given.items() if value is not None}

    @property
    def deciding_assignments(self) -> list[str]:
        """The assignments that a result may depend on: all but those of the table run."""
        return [assignment for assignment in self.assignments if not assignment.startswith("run.")]

    @property
    def change_the_spec(self) -> bool:
        """Whether the flags change what a spec says. Another name is no change."""
        has_other_fields = bool(self.fields.keys() - {"name"})
        has_assignments = bool(self.deciding_assignments)
        return has_other_fields or has_assignments


def setting_key(name: str) -> str | None:
    """Return the full key of a setting, such as "recipe.lr" for "lr"; None if it is unknown."""
    name = SYNONYMS.get(name, name)
    keys = [key for key, _, _ in describe_settings("recipe", "run", "tune")]
    for task in tasks().names():
        # A plug-in may not be importable.
        with suppress(UsageError):
            parameters = constructor_parameters(tasks().get(task))
            keys += [f"task.{parameter}" for parameter in parameters]
    for key in keys:
        if key.endswith(f".{name}"):
            return key
    return None


def spec_and_launch(
    flags: Flags,
    reference: str | None = None,
    preset: str | None = None,
    store: Store | None = None,
) -> tuple[Spec, Launch]:
    """Return the spec that a command asks for, and how it is launched.

    `reference` names a spec: a file, a built-in spec, or a comparison of the store. Without it, the
    flags say everything. Raises UsageError where the spec or a flag is wrong.
    """
    reload_edited_plugins()
    source = _source(flags, reference, preset, store)
    origin = _origin(source, flags)
    is_changed = False
    values = dict(source.values)
    if reference:
        values["notes"] = _valid_notes(values, flags)
        is_changed = source.is_changed or flags.change_the_spec
    else:
        values["name"] = "+".join(resolve(tasks(), task) for task in flags.tasks or ())
    values |= flags.fields
    execution = {key: value for key, value in flags.execution.items() if value is not None}
    values["run"] = values.get("run", {}) | execution
    for assignment in _in_order(flags.assignments):
        apply_assignment(values, assignment)
    file = check_spec(values)
    return file.spec(), Launch(file.run, origin=origin, is_changed=is_changed)


def _in_order(assignments: Sequence[str]) -> list[str]:
    """Return assignments in the order in which they are applied.

    Those that choose networks come first, since only the parameters of chosen networks can be set.
    """
    choosing = [assignment for assignment in assignments if _chooses_networks(assignment)]
    others = [assignment for assignment in assignments if not _chooses_networks(assignment)]
    return choosing + others


def _chooses_networks(assignment: str) -> bool:
    """Return whether an assignment says which networks a loss has: loss.NAME.networks=..."""
    return re.match(r"loss\.[^.=]+\.networks=", assignment) is not None


def _source(flags: Flags, reference: str | None, preset: str | None, store: Store | None) -> Source:
    """Return what a spec says; nothing where there is no reference to a spec.

    Raises UsageError where there is no reference, and the flags name no loss or no task.
    """
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
    """Return a digest of a spec and of what flags change in it.

    Losses, tasks, networks and seeds that flags name are left out: later launches may add to them.
    """
    spec = {key: value for key, value in source.values.items() if key != "run"}
    left_out = ("name", "losses", "tasks", "networks", "seeds")
    changes = {key: value for key, value in flags.fields.items() if key not in left_out}
    if source.origin and not changes and not flags.deciding_assignments:
        # The spec belongs to a comparison in the store, which goes on unchanged.
        return source.origin
    # The order of keys in a file means nothing.
    content = json.dumps([spec, changes, flags.deciding_assignments], default=str, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _valid_notes(values: Settings, flags: Flags) -> list[str]:
    """Return the notes of a spec that flags leave true, and a note of what the flags changed.

    A note may mention any setting of the training. So where flags change such a setting or the
    networks, no note stays. Where they change only the seeds, the notes without the word seed stay.
    """
    notes: list[str] = values.get("notes", [])
    changes = []
    changes_networks = flags.networks is not None and flags.networks != values.get("networks")
    if flags.seeds is not None and flags.seeds != values.get("seeds"):
        changes.append(_described("seeds", flags.seeds))
    if changes_networks:
        changes.append(_described("networks", flags.networks))
    assignments = flags.deciding_assignments
    training = [assignment for assignment in assignments if _changes_training(assignment)]
    changes += training
    if not changes:
        return notes
    valid = []
    if not training and not changes_networks:
        valid = [note for note in notes if not re.search(r"\bseeds?\b", note)]
    note = (
        f"Changed by flags: {'; '.join(changes)}. "
        "Notes of the spec that this may make false are left out."
    )
    return [*valid, note]


def _changes_training(assignment: str) -> bool:
    """Return whether an assignment sets something in a table that decides what is trained."""
    table, _, _ = assignment.partition(".")
    return table in TRAINING_TABLES


def _described(flag: str, value: Any) -> str:
    """Return a flag with its values, such as "seeds 0, 1"."""
    values = ", ".join(str(item) for item in as_list(value))
    return f"{flag} {values}"


def apply_assignment(values: Settings, assignment: str) -> None:
    """Change the values of a spec by one assignment of the command line (`-p`).

    It has one of these forms:

    - recipe.KEY=VALUE for all tasks, recipe.TASK.KEY=VALUE for one task;
    - loss.KEY=VALUE for every chosen loss that has such a parameter, loss.NAME.KEY=VALUE for one
      loss; tasks and networks likewise;
    - run.KEY=VALUE or tune.KEY=VALUE;
    - KEY=VALUE for a key of `SETTABLE`.

    Commas between values make an axis. Raises UsageError for any other form, and where no chosen
    loss, task or network has such a parameter.
    """
    key, equals, text = assignment.partition("=")
    table, *names = key.strip().split(".")
    if equals and not names and table in SETTABLE:
        value = _value(_split(text), str)
        values[table] = as_list(value) if SETTABLE[table] else value
        return
    has_key = 1 <= len(names) <= DEPTHS.get(table, 0) and all(names)
    if not equals or not has_key:
        raise _malformed(assignment, table)
    *owners, name = names
    setting = _Setting(
        assignment=assignment,
        table=table,
        owner=owners[0] if owners else None,
        name=name,
        texts=_split(text),
    )
    if table in TABLES:
        _set_in_table(values, setting)
    else:
        _set_parameter(values, setting)


@dataclass(frozen=True)
class _Setting:
    """What an assignment sets: TABLE.NAME=VALUE, or TABLE.OWNER.NAME=VALUE."""

    assignment: str
    """As the user typed it."""
    table: str
    owner: str | None
    """The loss, task or network that is meant; None: all of them."""
    name: str
    texts: list[str]
    """The values, as the user typed them."""


def _split(text: str) -> list[str]:
    """Split a text into values at its commas, except those in quotes or brackets."""
    if not text.strip(", \t"):
        # A text of commas, spaces and tabs alone is one value, such as a separator.
        return [text]
    # The last match is empty, at the end of the text, and no value.
    return _VALUES.findall(text)[:-1]


def _malformed(assignment: str, table: str) -> UsageError:
    """Return the error about an assignment of no known form, with the key that was likely meant."""
    keys = [key for key, _, _ in describe_settings("recipe", "run")]
    choices = [*SETTABLE, *keys, "recipe", "loss", "task", "network"]
    suggestion = setting_key(table)
    if suggestion is None and table not in DEPTHS:
        suggestion = closest(table, choices)
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    return UsageError(
        f"-p {assignment}: expected recipe.KEY=VALUE, recipe.TASK.KEY=VALUE, loss.KEY=VALUE, "
        f"loss.NAME.KEY=VALUE, task.KEY=VALUE, network.KEY=VALUE or run.KEY=VALUE{hint}"
    )


def _set_in_table(values: Settings, setting: _Setting) -> None:
    """Set a key of recipe, run or tune."""
    known = TABLES[setting.table].model_fields.get(setting.name)
    annotation = known.annotation if known else Any
    change: Settings = {setting.name: _value(setting.texts, annotation)}
    earlier: Settings = values.get(setting.table, {})
    if setting.owner is not None:
        change = {setting.owner: change}
    elif setting.table == "recipe":
        # A value for all tasks replaces the values that the spec has for single tasks.
        earlier = _without_in_tables(earlier, setting.name)
    values[setting.table] = merged(earlier, change)


def _without_in_tables(recipe: Settings, key: str) -> Settings:
    """Return a recipe without a key in the tables of single tasks."""
    changed = dict(recipe)
    for task, table in recipe.items():
        if isinstance(table, dict):
            changed[task] = {name: value for name, value in table.items() if name != key}
    return changed


def _set_parameter(values: Settings, setting: _Setting) -> None:
    """Set a parameter of the losses, tasks or networks that an assignment means.

    Where a spec has several variants of a task, the parameter is set in all of them.
    """
    tables = values.setdefault(setting.table, {})
    for owner, annotation in _types_by_owner(values, setting).items():
        earlier = tables.get(owner, {})
        change = {setting.name: _value(setting.texts, annotation)}
        if isinstance(earlier, list):
            tables[owner] = [variant | change for variant in earlier]
        else:
            tables[owner] = earlier | change


def _value(texts: Sequence[str], annotation: Any) -> Any:
    """Return the value of a text, or the list of the values of several texts: an axis."""
    values = [parsed(text, annotation) for text in texts]
    # Every list in a spec is an axis. So a single value that is itself a list is put into a list.
    if len(values) > 1 or isinstance(values[0], list):
        return values
    return values[0]


def _types_by_owner(values: Settings, setting: _Setting) -> Mapping[str, Any]:
    """Return name -> type of the parameter, for each loss, task or network that is meant.

    An assignment means the loss, task or network that it names. If it names none, it means all that
    have the parameter.
    """
    kind = setting.table
    parameter = setting.name
    types = _parameter_types(values, kind)
    if setting.owner is not None:
        if setting.owner not in types:
            raise unknown(f"{kind} of this run (-p {setting.assignment}):", setting.owner, types)
        # A parameter that the owner lacks has no type here. Planning refuses it later, and lists
        # the parameters that the owner has.
        return {setting.owner: types[setting.owner].get(parameter, Any)}
    matches = {owner: own[parameter] for owner, own in types.items() if parameter in own}
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
        types[name] = _types_of(constructor_parameters(losses().get(name)))
        # The networks of a loss are set like a parameter of it.
        types[name]["networks"] = str
    return types


def _types_of_tasks(values: Settings) -> dict[str, dict[str, Any]]:
    types = {}
    for reference in values["tasks"]:
        name = resolve(tasks(), reference)
        types[name] = _types_of(constructor_parameters(tasks().get(name)))
    return types


def _types_of_networks(values: Settings) -> dict[str, dict[str, Any]]:
    """Return the parameters, with types, of every network that is asked for on a chosen task.

    Several tasks may have a network of the same name, whose parameters are then put together.
    """
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
            types.setdefault(name, {}).update(_types_of(parameters))
    return types


def _types_of(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Return the type of each parameter by its name."""
    return {name: type_of(parameter) for name, parameter in parameters.items()}
