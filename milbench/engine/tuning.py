"""Tuned comparisons: as many draws for every loss on every task, then fresh seeds with the chosen setting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from milbench.api.parameters import check_params
from milbench.api.plan import Cell, Plan, SearchRecord
from milbench.api.registry import losses
from milbench.engine.planning import changed_recipe, make_plan
from milbench.engine.search_space import Search, draw, settings_of
from milbench.engine.spec import Spec, parse_seeds
from milbench.errors import UsageError

Params = dict[str, Any]


def search_plan(spec: Spec, device: str = "cpu", precision: str = "") -> Plan:
    """Return the plan of the draws of a search: every draw of every loss on every task with every seed of the search.

    Raises:
        UsageError: as in `make_plan`; a setting of [tune] is wrong, is also an axis, or belongs to no loss or task;
            a seed of the search is one of the comparison.
    """
    search = _checked(spec)
    base = make_plan(spec, device, precision)
    seeds = parse_seeds(search.seeds)
    cells: list[Cell] = []
    draws: dict[str, Params] = {}
    for (loss, task), compared in _arms(base).items():
        _check_seeds(seeds, compared, base)
        for number, (settings, drawn) in enumerate(_draws(search, compared[0])):
            for seed in seeds:
                cell = replace(drawn, seed=seed)
                if cell.id not in draws:  # two draws of few values may be the same
                    cells.append(cell)
                    draws[cell.id] = {
                        "loss": loss, "task": task, "draw": number, "settings": settings, "asked": search.draws
                    }  # fmt: skip
    return replace(base, cells=cells, search=SearchRecord(f"validation/{search.metric}", draws))


def tuned_plan(spec: Spec, draws: Plan, values: Mapping[str, float], device: str = "cpu") -> Plan:
    """Return the plan of the comparison, the draws among its cells: each loss with its best draw and fresh seeds.

    `draws` is what `search_plan` returned; `values` is the metric of the search by the id of a cell. A draw whose cell
    is absent, or has no finite value, is the worst. Raises UsageError where no draw on a task has the metric.
    """
    assert draws.search is not None  # noqa: S101 of `search_plan`
    for task in {cell.task for cell in draws.cells}:
        if not any(cell.id in values for cell in draws.cells if cell.task == task):
            raise UsageError(
                f"no draw on task {task} has a {draws.search.metric} to choose settings by: none is done, or the task "
                "does not evaluate validation bags"
            )
    base = make_plan(spec, device, draws.precision)
    tried: dict[tuple[str, str], dict[int, list[Cell]]] = {}
    for cell in draws.cells:
        of = draws.search.draws[cell.id]
        tried.setdefault((of["loss"], of["task"]), {}).setdefault(of["draw"], []).append(cell)
    cells, chosen = list(draws.cells), {}
    compared: dict[str, list[str]] = {}
    for (loss, task), planned in _arms(base).items():
        of_arm = tried[loss, task]
        best = min(of_arm, key=lambda number: _mean_of(of_arm[number], values))
        chosen[f"{loss}|{task}"] = best
        fresh = [replace(of_arm[best][0], seed=seed) for seed in dict.fromkeys(cell.seed for cell in planned)]
        cells += fresh
        compared |= {cell.id: [loss, task] for cell in fresh}
    return replace(base, cells=cells, search=replace(draws.search, chosen=chosen, compared=compared))


def _mean_of(cells: list[Cell], values: Mapping[str, float]) -> float:
    """Return the mean over the seeds of a draw, infinite where one has no finite value."""
    found = [values.get(cell.id, math.inf) for cell in cells]
    mean = sum(found) / len(found)
    return round(mean, 12) if math.isfinite(mean) else math.inf  # equal errors are ties whatever their order


def _arms(base: Plan) -> dict[tuple[str, str], list[Cell]]:
    """Return the cells of every loss on every task, by their labels."""
    arms: dict[tuple[str, str], list[Cell]] = {}
    for cell in base.cells:
        arms.setdefault(base.labels[cell.id][:2], []).append(cell)
    return arms


def _check_seeds(seeds: list[int], compared: list[Cell], base: Plan) -> None:
    if common := sorted({*seeds} & {cell.seed for cell in compared}):
        raise UsageError(
            f"tune.seeds: seed {common[0]} is also one of the comparison; expected other seeds, so that settings are "
            "not compared on what chose them"
        )
    if folds := base.tasks[compared[0].task_key].folds:
        count, repeats = folds
        if max(seeds) >= count * repeats:
            raise UsageError(
                f"tune.seeds: seed {max(seeds)} is no fold of {compared[0].task}: its {repeats} x {count} folds are "
                f"the seeds 0-{count * repeats - 1}; expected one that the comparison leaves out"
            )


def _draws(search: Search, first: Cell) -> Iterator[tuple[Params, Cell]]:
    """Yield the settings of every draw of an arm, and a cell with them."""
    own = search.loss.get(first.loss, {})
    recipe = search.recipe_of(first.task)
    most = max([0, *map(len, search.loss.values())])
    cls = losses().cls(first.loss_file or first.loss)
    for of_recipe, of_loss in draw([recipe, own], search.draws, len(recipe) + most):
        try:
            params = check_params(f"loss {first.loss}", cls, first.loss_params | settings_of(of_loss))
            changed = changed_recipe(first.recipe, settings_of(of_recipe))
        except UsageError as error:
            hint = "; a range of whole numbers has integer = true" if "valid integer" in str(error) else ""
            raise UsageError(f"[tune] {error}{hint}") from None
        settings = {f"recipe.{k}": v for k, v in of_recipe.items()} | {f"loss.{k}": v for k, v in of_loss.items()}
        yield settings, replace(first, recipe=changed, loss_params=params)


def _checked(spec: Spec) -> Search:
    """Return the search of a spec, if it has one and no axes beside it."""
    search = spec.tune
    assert search is not None  # noqa: S101 launches search where there is one
    tables = [spec.recipe, *(table for table in spec.recipe.values() if isinstance(table, dict))]
    for name, value in itertools.chain.from_iterable(table.items() for table in tables):
        if isinstance(value, list):
            raise UsageError(f"recipe.{name} is an axis; beside [tune] a setting has one value or is searched")
    for loss, space in search.loss.items():
        for name in _searched(space):
            if isinstance(spec.loss.get(loss, {}).get(name), list):
                raise UsageError(f"loss.{loss}.{name} is an axis and is searched; expected one of the two")
    return search


def _searched(space: Params) -> set[str]:
    """Return the parameters that a space searches: its own names, and those in tables among its values."""
    choices = (choice for values in space.values() if isinstance(values, list) for choice in values)
    return {*space}.union(*(choice for choice in choices if isinstance(choice, dict)))
