"""What flags and `-p` settings make of a spec."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from milbench.api.parameters import constructor_parameters
from milbench.api.registry import Registry, losses, tasks
from milbench.engine.spec import CHANGED, Execution, Params, Spec, make_spec, merged, spec_values
from milbench.errors import UsageError, closest, unknown

SETTABLE = ("supervision", "compare_by", "selection", "title", "notes")
"""The fields of a spec that `-p` sets by their names alone."""


def requested_spec(spec: str | None, preset: str | None, given: dict[str, Any], settings: Sequence[str] = ()) -> Spec:
    """Return a spec (a file, a built-in name, or None) with flags and `-p` settings in it.

    `given` are fields of the spec that flags replace; those of the table `run` are added to its own.
    """
    if spec:
        values = spec_values(spec, preset)
        make_spec(values, owner=f"spec {spec}")  # a mistake in the file is found as such
    elif preset is not None:
        raise UsageError(f"--preset {preset} needs a spec to take it from")
    else:
        if missing := [flag for flag, key in (("--loss", "losses"), ("--task", "tasks")) if not given.get(key)]:
            raise UsageError(
                f"give a spec, or --loss and --task ({' and '.join(missing)} missing); "
                "milbench list losses|tasks|specs shows what there is"
            )
        values = {"name": "+".join(tasks().entry(task).name for task in given["tasks"])}
    chosen = {key: value for key, value in given.items() if key != "run" and value is not None}
    values |= chosen
    run = {key: value for key, value in given.get("run", {}).items() if value is not None}
    values["run"] = values.get("run", {}) | run
    for setting in settings:
        parse_setting(values, setting)
    if spec and (set(chosen) - {"name"} or any(not setting.startswith("run.") for setting in settings)):
        values["source"] += CHANGED
        values["part"] = bool({"losses", "tasks"} & {*chosen})
    return make_spec(values)


def parse_setting(values: Params, setting: str) -> None:
    """Change the values of a spec by one setting of the command line (`-p`).

    It is recipe.KEY=VALUE for all tasks, recipe.TASK.KEY=VALUE for one, loss.KEY=VALUE for every chosen loss that has
    such a parameter, loss.NAME.KEY=VALUE for one (tasks likewise), run.KEY=VALUE for where and how cells are computed,
    KEY=VALUE for another field of the spec. Commas between values make an axis.

    Raises:
        UsageError: the setting has another form, or no chosen loss or task has such a parameter.
    """
    key, equals, text = setting.partition("=")
    place = key.strip().split(".")
    parsed = [_scalar(part.strip()) for part in text.split(",")]
    value = parsed if len(parsed) > 1 else parsed[0]
    kind, *names = place
    if equals and len(place) == 1 and kind in SETTABLE:
        values[kind] = parsed if kind in ("supervision", "compare_by", "notes") else value
        return
    longest = {"recipe": 3, "loss": 3, "task": 3, "run": 2}.get(kind, 0)
    if not equals or not 2 <= len(place) <= longest or not all(place):
        close = _closest_setting(kind)
        raise UsageError(
            f"-p {setting}: expected recipe.KEY=VALUE, recipe.TASK.KEY=VALUE, loss.KEY=VALUE, loss.NAME.KEY=VALUE, "
            f"task.KEY=VALUE, task.NAME.KEY=VALUE or run.KEY=VALUE{f'; did you mean {close}?' if close else ''}"
        )
    *names, parameter = names
    if kind == "run":
        values["run"] = {**values.get("run", {}), parameter: value}
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
    tables = ("recipe", "loss", "task")
    return whole or (None if key in (*tables, "run") else closest(key, [*SETTABLE, *full, *tables]))


def _with_setting(recipe: Params, task: list[str], change: Params) -> Params:
    """Return a spec's recipe with a change for one task, or for all, which replaces the changes of single tasks."""
    if task:
        return merged(recipe, {task[0]: change})
    of_tasks = {k: {n: x for n, x in v.items() if n not in change} for k, v in recipe.items() if isinstance(v, dict)}
    return {**recipe, **of_tasks, **change}


def _takers(values: Params, kind: str, names: list[str], parameter: str, setting: str) -> list[str]:
    """Return the chosen losses or tasks that a setting is for: the one it names, else all with such a parameter."""
    registry: Registry[Any] = losses() if kind == "loss" else tasks()
    chosen = [registry.entry(name).name for name in values["losses" if kind == "loss" else "tasks"]]
    if names:
        if names[0] not in chosen:
            raise unknown(f"{kind} of this run in -p {setting}", names[0], chosen)
        return names
    known = {name: {*constructor_parameters(registry.cls(name))} for name in chosen}
    takers = [name for name in chosen if parameter in known[name]]
    if not takers:
        raise unknown(f"parameter of {kind} {', '.join(chosen)}", parameter, set().union(*known.values()))
    return takers


def _scalar(text: str) -> Any:
    """Return the value of TOML text (numbers, true, false, quoted strings), any other text as a string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):  # TOMLDecodeError is a ValueError, and so is a number of 5,000 digits
        return text
