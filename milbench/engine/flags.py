"""A spec with the flags of a command in it, among them the settings `-p KEY=VALUE`."""

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, product
from pathlib import Path
from typing import Any

from milbench.api.parameters import constructor_parameters, network_parameters, parsed, type_of
from milbench.api.registry import losses, tasks
from milbench.api.resolver import read_edited, resolve
from milbench.engine.spec import (
    DEFAULT,
    TABLES,
    Params,
    Spec,
    as_list,
    make_spec,
    merged,
    read_spec,
    settings,
)
from milbench.errors import UsageError, closest, unknown

DEPTHS = {
    "recipe": 2,
    "loss": 2,
    "task": 2,
    "network": 2,
    "run": 1,
    "tune": 1,
}  # names behind it: loss.NAME.KEY
SETTABLE = {
    "title": False,
    "selection": False,
    "supervision": True,
    "compare_by": True,
    "notes": True,
}
"""The keys outside all sections that `-p` sets, and whether each is a list."""
SYNONYMS = {
    "batch_size": "batch_bags",
    "learning_rate": "lr",
    "num_epochs": "epochs",
    "gpu": "device",
}


def setting_key(name: str) -> str | None:
    """Return the key of a recipe, a run, a search or a task of this name, such as "recipe.lr" for "lr"; None: none."""
    name = SYNONYMS.get(name, name)
    keys = [key for key, *_ in settings("recipe", "run", "tune")]
    for task in tasks().names():
        with suppress(UsageError):  # of a plug-in that cannot be imported
            keys += [f"task.{parameter}" for parameter in constructor_parameters(tasks().get(task))]
    return next((key for key in keys if key.endswith(f".{name}")), None)


def requested_spec(
    reference: str | None,
    preset: str | None,
    flags: Params,
    settings: Sequence[str] = (),
    root: Path | None = None,
) -> Spec:
    """Return a spec (a file, a built-in name, a comparison in the store of a root, or None) with flags and `-p` in it.

    `flags` are fields of the spec that replace its own; those of the table `run` are added to its own.
    """
    read_edited()
    values = _read_values(reference, preset, flags, root)
    run = {key: value for key, value in flags.get("run", {}).items() if value is not None}
    changes = {key: value for key, value in flags.items() if key != "run" and value is not None}
    deciding = [setting for setting in settings if not setting.startswith("run.")]
    origin = _origin(values, changes, deciding)
    if reference:
        values["notes"] = _valid_notes(values, changes, deciding)
        values["changed"] = values.get("changed", False) or bool(
            changes.keys() - {"name"} or deciding
        )
    else:
        values["name"] = "+".join(resolve(tasks(), task) for task in changes["tasks"])
    values |= changes | {"run": values.get("run", {}) | run, "origin": origin}
    for setting in sorted(
        settings, key=lambda text: not re.match(r"loss\.[^.=]+\.networks=", text)
    ):
        parse_setting(values, setting)  # first which networks there are
    return make_spec(values)


def _read_values(
    reference: str | None, preset: str | None, flags: Params, root: Path | None
) -> Params:
    """Return the fields that a spec sets, none without a spec. Raises UsageError where flags lack what it would say."""
    if reference:
        return read_spec(reference, preset, root).model_dump(exclude_unset=True)
    if preset is not None:
        raise UsageError(f"--preset {preset} needs a spec to take it from")
    if missing := [
        flag for flag, key in (("--loss", "losses"), ("--task", "tasks")) if not flags.get(key)
    ]:
        expected = f"give a spec, or --loss and --task ({' and '.join(missing)} missing)"
        raise UsageError(f"{expected}; milbench list losses|tasks|specs shows what there is")
    return {}


def _origin(values: Params, changes: Params, settings: Sequence[str]) -> str:
    """Return a digest of a spec and of what flags change, but for axes to which launches add."""
    own = {key: value for key, value in values.items() if key != "run"}
    changes = {
        k: v
        for k, v in changes.items()
        if k not in ("name", "losses", "tasks", "networks", "seeds")
    }
    if "origin" in values and not changes and not settings:  # a comparison of the store goes on
        return str(values["origin"])
    return hashlib.sha256(json.dumps([own, changes, settings], default=str).encode()).hexdigest()[
        :16
    ]


def _valid_notes(values: Params, changes: Params, settings: Sequence[str]) -> list[str]:
    """Return the notes of a spec without those that flags may have made false, and what these flags changed.

    A note may state any setting of the training; where seeds alone are others, those that speak of none stay.
    """
    notes: list[str] = values.get("notes", [])
    training = [
        text
        for text in settings
        if text.partition(".")[0] in ("recipe", "loss", "task", "network", "tune")
    ]
    axes = {
        k: changes[k] for k in ("seeds", "networks") if k in changes and changes[k] != values.get(k)
    }
    if not training and not axes:
        return notes
    valid = (
        []
        if training or "networks" in axes
        else [n for n in notes if not re.search(r"\bseeds?\b", n)]
    )
    flags = [
        f"{key} {', '.join(map(str, as_list(value)))}" for key, value in axes.items()
    ] + training
    return [
        *valid,
        f"Changed by flags: {'; '.join(flags)}. Notes of the spec that this may make false are left out.",
    ]


def parse_setting(values: Params, setting: str) -> None:
    """Change the values of a spec by one setting of the command line (`-p`).

    It is recipe.KEY=VALUE for all tasks, recipe.TASK.KEY=VALUE for one, loss.KEY=VALUE for every chosen loss that has
    such a parameter, loss.NAME.KEY=VALUE for one (tasks and networks likewise), run.KEY=VALUE, tune.KEY=VALUE, or
    KEY=VALUE for another field of the spec. Commas between values make an axis. Raises UsageError for any other form,
    and where no chosen loss or task has such a parameter.
    """
    key, equals, text = setting.partition("=")
    section, *names = key.strip().split(".")
    # Quotes and brackets keep a comma, and text of commas and spaces alone is one value.
    texts = (
        re.findall(r"""\s*("[^"]*"|'[^']*'|\[[^\]]*\]|[^,]*?)\s*(?:,|$)""", text)[:-1]
        if text.strip(", \t")
        else [text]
    )
    if equals and not names and section in SETTABLE:
        value = _value(texts, str)
        values[section] = as_list(value) if SETTABLE[section] else value
    elif not equals or not 1 <= len(names) <= DEPTHS.get(section, 0) or not all(names):
        raise _malformed(setting, section)
    elif section in TABLES:
        _set_in_table(values, section, names, texts)
    else:
        *owners, parameter = names
        sections = values.setdefault(section, {})
        for owner, annotation in _owners(values, section, owners, parameter, setting).items():
            entry = sections.get(owner, {})
            variants = [
                {**variant, parameter: _value(texts, annotation)} for variant in as_list(entry)
            ]
            sections[owner] = variants if isinstance(entry, list) else variants[0]


def _malformed(setting: str, section: str) -> UsageError:
    keys = [
        *SETTABLE,
        *(key for key, *_ in settings("recipe", "run")),
        "recipe",
        "loss",
        "task",
        "network",
    ]
    suggestion = setting_key(section) or (None if section in DEPTHS else closest(section, keys))
    return UsageError(
        f"-p {setting}: expected recipe.KEY=VALUE, recipe.TASK.KEY=VALUE, loss.KEY=VALUE, loss.NAME.KEY=VALUE, "
        f"task.KEY=VALUE, network.KEY=VALUE or run.KEY=VALUE{f'; did you mean {suggestion}?' if suggestion else ''}"
    )


def _set_in_table(values: Params, table: str, names: list[str], texts: Sequence[str]) -> None:
    """Set a key of recipe, run or tune; one of the recipe for all tasks replaces what single tasks have."""
    *task, key = names
    field, earlier = TABLES[table].model_fields.get(key), values.get(table, {})
    change = {key: _value(texts, field.annotation if field else Any)}
    if table == "recipe" and not task:
        tables = {name: value for name, value in earlier.items() if isinstance(value, dict)}
        earlier = earlier | {
            name: {k: v for k, v in value.items() if k != key} for name, value in tables.items()
        }
    values[table] = merged(earlier, {task[0]: change} if task else change)


def _value(texts: Sequence[str], annotation: Any) -> Any:
    """Return a value of a type, or a list of several, which is an axis."""
    values = [parsed(text, annotation) for text in texts]
    # A list in a spec is an axis, so that one value which is a list stands in another.
    if len(values) > 1 or isinstance(values[0], list):
        return values
    return values[0]


def _owners(
    values: Params, section: str, owners: list[str], parameter: str, setting: str
) -> Params:
    """Return the type of a parameter by the loss, task or network that a setting names, else by all that have it."""
    types = _parameter_types(values, section)
    if owners:
        if owners[0] not in types:
            raise unknown(f"{section} of this run (-p {setting}):", owners[0], types)
        return {owners[0]: types[owners[0]].get(parameter, Any)}
    matches = {
        name: parameters[parameter] for name, parameters in types.items() if parameter in parameters
    }
    if not matches:
        raise unknown(
            f"parameter of {section} {', '.join(types)}", parameter, set().union(*types.values())
        )
    return matches


def _parameter_types(values: Params, section: str) -> dict[str, Params]:
    """Return the parameters of every chosen loss, task or network with their types, by its name."""
    if section == "loss":
        classes = {
            name: losses().get(name)
            for name in (resolve(losses(), loss) for loss in values["losses"])
        }
        parameters = {name: constructor_parameters(cls) for name, cls in classes.items()}
        return {
            name: {key: type_of(p) for key, p in ps.items()} | {"networks": str}
            for name, ps in parameters.items()
        }
    task_classes = [tasks().get(resolve(tasks(), task)) for task in values["tasks"]]
    if section == "task":
        return {
            cls.name: {k: type_of(p) for k, p in constructor_parameters(cls).items()}
            for cls in task_classes
        }
    from milbench.networks.registry import network_maker, network_name

    loss_networks = (
        as_list(table.get("networks", [])) for table in values.get("loss", {}).values()
    )
    requested = [*values.get("networks", [DEFAULT]), *chain.from_iterable(loss_networks)]
    types: dict[str, Params] = {}
    for cls, network in product(task_classes, requested):
        name = network_name(cls, network)
        own_types = {
            key: type_of(p) for key, p in network_parameters(network_maker(cls, name)).items()
        }
        types.setdefault(name, {}).update(own_types)
    return types
