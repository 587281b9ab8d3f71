"""Tuned comparisons: the same number of draws for each loss on each task, then fresh seeds with the chosen settings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from milbench.api.parameters import changed_params
from milbench.api.plan import Cell, Label, Plan, SearchRecord
from milbench.api.registry import losses
from milbench.engine.planning import changed_recipe, make_plan
from milbench.engine.spec import (
    Dimension,
    Params,
    Range,
    Search,
    Spec,
    for_task,
    merged,
    parse_seeds,
)
from milbench.errors import UsageError

SCRAMBLE = 20190909
"""Seeds the scrambling of the Sobol sequence: the same draws in every search over spaces of as many dimensions."""
Arm = tuple[str, str, str]
"""The labels of task, loss and network, for which settings are searched."""


def search_plan(spec: Spec, device: str = "cpu", precision: str = "") -> Plan:
    """Return the plan of a search: each draw of each loss on each task with each seed of the search.

    Raises UsageError as `make_plan` does, and where a setting of [tune] is wrong, is also an axis, or belongs to no
    loss or task, or a seed of the search is one of the comparison.
    """
    search = spec.tune
    assert search is not None  # noqa: S101 the caller checks it
    task_sections = dict(spec.task)
    for name, params in search.draw_task.items():
        section = spec.task.get(name, {})
        task_sections[name] = (
            [v | params for v in section] if isinstance(section, list) else section | params
        )
    spec = spec.model_copy(
        update={"recipe": merged(spec.recipe, search.draw_recipe), "task": task_sections}
    )
    _check_axes(spec, search)
    base = make_plan(spec, device, precision)
    if base.for_use:
        raise UsageError(
            f"{base.for_use[0]}; a search needs validation bags (draw_task = {{test = 0.2}} in [tune])"
        )
    seeds = parse_seeds(search.seeds)
    cells: list[Cell] = []
    draws: dict[str, Params] = {}
    for arm, compared in _arms(base).items():
        _check_seeds(seeds, compared, base)
        for number, (settings, sample) in enumerate(_draws(search, compared[0])):
            for seed in seeds:
                cell = replace(sample, seed=seed)
                if cell.id not in draws:  # two draws from few values may be equal
                    cells.append(cell)
                    draws[cell.id] = {"arm": arm, "draw": number, "settings": settings}
    return replace(base, cells=cells, search=SearchRecord(f"validation/{search.metric}", draws))


def tuned_plan(spec: Spec, draws: Plan, values: Mapping[str, float], device: str = "cpu") -> Plan:
    """Return the plan of the comparison, the draws among its cells: each loss with its best settings and fresh seeds.

    `draws` is what `search_plan` returned; `values` is the metric of the search by the id of a cell. A draw whose cell
    is absent, or has no finite value, is the worst. Raises UsageError where no draw on a task has the metric.
    """
    assert draws.search is not None  # noqa: S101 of `search_plan`
    for task in {cell.task for cell in draws.cells}:
        if not any(cell.id in values for cell in draws.cells if cell.task == task):
            reason = "none is done, or the task does not evaluate validation bags"
            raise UsageError(
                f"no draw on task {task} has a {draws.search.metric} to choose settings by: {reason}"
            )
    base = make_plan(spec, device, draws.precision)
    cells_by_draw: dict[Arm, dict[int, list[Cell]]] = {}
    for cell in draws.cells:
        draw = draws.search.draws[cell.id]
        cells_by_draw.setdefault(tuple(draw["arm"]), {}).setdefault(draw["draw"], []).append(cell)
    cells, chosen_draws = list(draws.cells), {}
    compared: dict[str, Label] = {}
    for arm, planned in _arms(base).items():
        draws_of_arm = cells_by_draw[arm]
        best = min(draws_of_arm, key=lambda number: _mean(draws_of_arm[number], values))
        chosen_draws["|".join(arm)] = best
        settings = draws.search.draws[draws_of_arm[best][0].id]["settings"]
        for cell in planned:
            tuned_cell = _changed_cell(cell, settings)
            cells.append(tuned_cell)
            compared[tuned_cell.id] = base.labels[cell.id]
    search = replace(draws.search, chosen=chosen_draws, compared=compared)
    return replace(base, cells=cells, tasks=draws.tasks | base.tasks, search=search)


def _mean(cells: list[Cell], values: Mapping[str, float]) -> float:
    """Return the mean over the seeds of a draw, infinite if one of them has no finite value."""
    values_of_seeds = [values.get(cell.id, math.inf) for cell in cells]
    mean = sum(values_of_seeds) / len(values_of_seeds)
    return (
        round(mean, 12) if math.isfinite(mean) else math.inf
    )  # equal errors are ties whatever their order


def _arms(base: Plan) -> dict[Arm, list[Cell]]:
    """Return the cells of every loss and network on every task, by labels that have a network asked for by name."""
    arms: dict[Arm, list[Cell]] = {}
    for cell in base.cells:
        task, loss, network, _ = base.labels[cell.id]
        arms.setdefault(
            (task, loss, network or cell.network * (not cell.network_is_default)), []
        ).append(cell)
    return arms


def _check_seeds(seeds: list[int], compared: list[Cell], base: Plan) -> None:
    if common := sorted({*seeds} & {cell.seed for cell in compared}):
        aim = "settings are not compared on the runs that chose them"
        raise UsageError(
            f"tune.seeds: seed {common[0]} is also one of the comparison; expected others, so that {aim}"
        )
    count, repeats = base.tasks[compared[0].task_key].folds or (0, 0)
    if repeats and max(seeds) >= count * repeats:
        raise UsageError(
            f"tune.seeds: seed {max(seeds)} is no fold of {compared[0].task}: its {repeats} x {count} folds are the "
            f"seeds 0-{count * repeats - 1}; expected one that the comparison leaves out"
        )


def draw(
    spaces: Sequence[Mapping[str, Dimension]], count: int, coordinates: int = 0
) -> list[list[Params]]:
    """Return `count` draws from each of several spaces, such as those of the recipe and of a loss.

    The draws are points of one scrambled Sobol sequence (`scipy.stats.qmc`): they fill the space more evenly than
    independent ones, and more draws begin with the same ones. Coordinates belong to dimensions by their order; where
    points of all losses have as many `coordinates`, losses share the draws of the spaces that they have in common.
    """
    from scipy.stats import qmc

    sequence = qmc.Sobol(max(coordinates, sum(map(len, spaces)), 1), scramble=True, rng=SCRAMBLE)
    points = sequence.random_base2(
        max(0, math.ceil(math.log2(count)))
    )  # its balance holds for powers of two

    def value(dimension: Dimension, share: float) -> Any:
        if isinstance(dimension, Range):
            return dimension.quantile(share)
        return dimension[min(int(share * len(dimension)), len(dimension) - 1)]

    return [
        [
            {name: value(dimension, next(shares)) for name, dimension in space.items()}
            for space in spaces
        ]
        for shares in map(iter, points[:count].tolist())
    ]


def _draws(search: Search, cell: Cell) -> Iterator[tuple[Params, Cell]]:
    """Yield the settings of every draw of the arm that a cell is of, and the cell with them."""
    loss_space = search.loss.get(cell.loss, {})
    recipe_space = for_task(search.recipe, cell.task)
    coordinates = len(recipe_space) + max([0, *map(len, search.loss.values())])
    for recipe, loss in draw([recipe_space, loss_space], search.draws, coordinates):
        settings = {f"recipe.{k}": v for k, v in recipe.items()} | {
            f"loss.{k}": v for k, v in loss.items()
        }
        yield settings, _changed_cell(cell, settings)


def _changed_cell(cell: Cell, settings: Params) -> Cell:
    """Return a cell with settings of a draw in its recipe and in the parameters of its loss. Raises UsageError."""
    recipe_changes, loss_changes = (
        {k.removeprefix(kind): v for k, v in settings.items() if k.startswith(kind)}
        for kind in ("recipe.", "loss.")
    )
    try:
        params = changed_params(
            f"loss {cell.loss}", losses().get(cell.loss), cell.loss_params, loss_changes
        )
        return replace(cell, recipe=changed_recipe(cell.recipe, recipe_changes), loss_params=params)
    except UsageError as error:
        hint = "; whole numbers are listed: [1, 2, 4]" if "valid integer" in str(error) else ""
        raise UsageError(f"[tune] {error}{hint}") from None


def _check_axes(spec: Spec, search: Search) -> None:
    """Raise UsageError where a setting is an axis of the draws."""
    for table in (
        spec.recipe,
        *(value for value in spec.recipe.values() if isinstance(value, dict)),
    ):
        if axis := next((key for key, value in table.items() if isinstance(value, list)), ""):
            choices = (
                "has one value or is searched, or has one value for the draws in [tune.draw_recipe]"
            )
            raise UsageError(f"recipe.{axis} is an axis; beside [tune] a setting {choices}")
    for loss, space in search.loss.items():
        for name in space:
            if isinstance(spec.loss.get(loss, {}).get(name), list):
                raise UsageError(
                    f"loss.{loss}.{name} is an axis and is searched; expected one of the two"
                )
