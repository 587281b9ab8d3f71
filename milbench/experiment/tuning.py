"""Plans of comparisons with a search for settings.

Users write a search as the table [tune] of a spec. An arm is a loss with a network on a task, and a
draw is one try of settings for an arm.

A search has one stage or two. Where `Search.finalists` is set, all draws are trained with the first
seed of the search, and the best draws of each arm with the other seeds too. Then the losses are
compared on fresh seeds, each with the settings of its best draw.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from milbench._utils.words import counted
from milbench.errors import UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.display_names import Label
from milbench.experiment.draws import draws_of, space_of
from milbench.experiment.expand_spec import changed_loss, changed_recipe
from milbench.experiment.launch_settings import Launch
from milbench.experiment.make_plan import WITHOUT_FLAGS, make_plan
from milbench.experiment.plan import Arm, Draw, Plan, SearchRecord
from milbench.experiment.spec import Search, Settings, Spec, parse_seeds
from milbench.experiment.spec_files import merged

THEN_COMPARISON = "then the comparison, with the settings that these cells choose"
"""What follows the last stage of a search."""

DECIMALS = 12
"""Mean errors that agree to this number of decimals are ties.

Rounding makes the last digits of a sum depend on the order of its values.
"""

Values = Mapping[str, float]
"""Cell id -> the metric of the search, an error, so that less is better.

A cell that failed is absent, or its value is not finite.
"""


@dataclass(frozen=True)
class TrainedDraw:
    """A draw with the cells that train it, one for each of its seeds."""

    draw: Draw
    cells: list[Cell] = field(default_factory=list)

    def mean(self, values: Values) -> float:
        """Return the mean of a metric over the seeds, infinite where a seed has no finite value."""
        value_of_each_seed = [values.get(cell.id, math.inf) for cell in self.cells]
        mean = sum(value_of_each_seed) / len(value_of_each_seed)
        if not math.isfinite(mean):
            return math.inf
        return round(mean, DECIMALS)


def has_finalists(search: Search) -> bool:
    """Return whether a search has a second stage."""
    return search.finalists is not None and len(parse_seeds(search.seeds)) > 1


def search_plan(
    spec: Spec, launch: Launch = WITHOUT_FLAGS, device: str = "cpu", precision: str = ""
) -> Plan:
    """Return the plan of the first stage of a search.

    Every draw is trained with every seed, or with the first seed alone where there are finalists.
    Raises UsageError where `make_plan` does, and where [tune] is wrong: it may have an unknown
    setting, a setting that is also an axis (a list of values that the comparison tries), or a seed
    that the comparison uses too.
    """
    search = _search_of(spec)
    changed = _changed_spec(spec, search)
    _check_axes(changed, search)
    base = make_plan(changed, launch, device, precision)
    # These lines name tasks without test bags. Their networks are trained on all bags, so that no
    # bags are left for validation.
    untested = base.for_use
    if untested:
        raise UsageError(
            f"{untested[0]}; a search needs validation bags (draw_task = {{test = 0.2}} in [tune])"
        )
    if search.draw_task:
        _check_arms(make_plan(spec, launch, device, precision), base)
    seeds = parse_seeds(search.seeds)
    first_seeds = seeds[:1] if has_finalists(search) else seeds
    cells: list[Cell] = []
    draw_of_cell: dict[str, Draw] = {}
    for arm, cells_of_arm in _arms(base).items():
        _check_seeds(seeds, cells_of_arm, base)
        # The cells of an arm differ by their seeds alone.
        any_cell = cells_of_arm[0]
        space = space_of(search, any_cell.task.name, any_cell.loss.name)
        for draw in draws_of(search, space, arm):
            drawn_cell = _changed_cell(any_cell, draw.settings)
            for seed in first_seeds:
                cell = replace(drawn_cell, seed=seed)
                # Two draws of a narrow range may have equal settings when rounded: the cell belongs
                # to the first one.
                if cell.id not in draw_of_cell:
                    cells.append(cell)
                    draw_of_cell[cell.id] = draw
    record = SearchRecord(f"validation/{search.metric}", draw_of_cell)
    return replace(base, cells=cells, search=record)


def finalists_plan(spec: Spec, first_stage: Plan, values: Values) -> Plan:
    """Return the plan of both stages of a search.

    The second stage trains the best draws of each arm with the other seeds. `first_stage` is what
    `search_plan` returned, and `values` are the values of its cells. Of equally good draws, those
    with lower numbers are finalists. A draw that failed is no finalist. Raises UsageError where no
    draw on a task has the metric.
    """
    search = _search_of(spec)
    record = _record_of(first_stage)
    _check_metric(first_stage, record.metric, values)
    other_seeds = parse_seeds(search.seeds)[1:]
    cells = list(first_stage.cells)
    draw_of_cell = dict(record.draws)
    for trained in _trained_draws(first_stage).values():
        for finalist in _best(trained, values)[: search.finalists]:
            for seed in other_seeds:
                cell = replace(finalist.cells[0], seed=seed)
                cells.append(cell)
                draw_of_cell[cell.id] = finalist.draw
    return replace(first_stage, cells=cells, search=replace(record, draws=draw_of_cell))


def comparison_plan(
    spec: Spec,
    last_stage: Plan,
    values: Values,
    launch: Launch = WITHOUT_FLAGS,
    device: str = "cpu",
) -> Plan:
    """Return the plan of the comparison, which has the cells of the draws too.

    Each loss is trained on fresh seeds, with the settings of its best draw.

    `last_stage` is the plan of the last stage of the search, and `values` are the values of its
    cells. Where the search has finalists, the best finalist is chosen by the mean over all its
    seeds. Where every finalist failed with a further seed, the first seed alone decides, see
    `_winner`. Of equally good draws, the one with the lowest number is chosen. A draw that failed
    is the worst. Raises UsageError where no draw on a task has the metric.
    """
    record = _record_of(last_stage)
    _check_metric(last_stage, record.metric, values)
    base = make_plan(spec, launch, device, last_stage.precision)
    trained = _trained_draws(last_stage)
    cells = list(last_stage.cells)
    chosen: dict[str, int] = {}
    labels: dict[str, Label] = {}
    for arm, planned in _arms(base).items():
        winner = _winner(trained[arm], values)
        chosen[arm.key] = winner.number
        for cell in planned:
            with_chosen_settings = _changed_cell(cell, winner.settings)
            cells.append(with_chosen_settings)
            # The label does not name the chosen settings: a report shows them elsewhere.
            labels[with_chosen_settings.id] = base.labels[cell.id]
    # `Plan.labels` takes these labels from the record. Labels made from the new cells would name
    # the chosen settings.
    search = replace(record, chosen=chosen, compared=labels)
    return replace(base, cells=cells, tasks=last_stage.tasks | base.tasks, search=search)


def after_first_stage(spec: Spec, first_stage: Plan) -> str:
    """Return a line that says what follows the first of two stages."""
    search = _search_of(spec)
    most = search.finalists or 0
    finalists = 0
    for trained in _trained_draws(first_stage).values():
        # An arm may have fewer draws than there may be finalists.
        finalists += min(most, len(trained))
    other_seeds = len(parse_seeds(search.seeds)) - 1
    cells = counted(finalists * other_seeds, "cell")
    return (
        f"then the best {counted(most, 'draw')} of each loss on each task with "
        f"{counted(other_seeds, 'more seed')} ({cells}), {THEN_COMPARISON}"
    )


def _search_of(spec: Spec) -> Search:
    """Return the search of a spec that has one."""
    if spec.tune is None:
        # Callers give only specs with a search.
        raise ValueError("the spec has no search")
    return spec.tune


def _record_of(plan: Plan) -> SearchRecord:
    """Return the search of a plan that has one."""
    if plan.search is None:
        # Callers give only plans that `search_plan` or `finalists_plan` has made.
        raise ValueError("the plan has no search")
    return plan.search


def _changed_spec(spec: Spec, search: Search) -> Spec:
    """Return the spec of the draws: the spec of the comparison, changed for the search."""
    sections = dict(spec.task)
    for name, changes in search.draw_task.items():
        section = sections.get(name, {})
        if isinstance(section, list):
            # The spec has several sections [[task.NAME]], each of them a task.
            sections[name] = [one_section | changes for one_section in section]
        else:
            sections[name] = section | changes
    recipe = merged(spec.recipe, search.draw_recipe)
    return spec.model_copy(update={"recipe": recipe, "task": sections})


def _arms(plan: Plan) -> dict[Arm, list[Cell]]:
    """Return the cells of every loss and network on every task.

    An arm must keep its name when a later launch adds a network: otherwise the earlier draws would
    belong to no arm. A label changes then: it leaves out the only network of a task, and names it
    once there are two. So an arm names a network that was asked for by name, even if the label
    leaves it out.
    """
    arms: dict[Arm, list[Cell]] = {}
    for cell in plan.cells:
        label = plan.labels[cell.id]
        network = label.network
        # The default network needs no name: its label leaves it out even beside other networks,
        # unless one of them is the same network with other parameters.
        if not network and not cell.network.is_default:
            network = cell.network.name
        arms.setdefault(Arm(label.task, label.loss, network), []).append(cell)
    return arms


def _trained_draws(plan: Plan) -> dict[Arm, list[TrainedDraw]]:
    """Return the draws of every arm with their cells, in the order of their numbers."""
    record = _record_of(plan)
    by_arm: dict[Arm, dict[int, TrainedDraw]] = {}
    for cell in plan.cells:
        draw = record.draws[cell.id]
        by_number = by_arm.setdefault(draw.arm, {})
        by_number.setdefault(draw.number, TrainedDraw(draw)).cells.append(cell)
    trained: dict[Arm, list[TrainedDraw]] = {}
    for arm, by_number in by_arm.items():
        trained[arm] = [by_number[number] for number in sorted(by_number)]
    return trained


def _best(trained: list[TrainedDraw], values: Values) -> list[TrainedDraw]:
    """Return the draws that have a mean, the best first, and ties in the order of numbers."""
    with_mean = [candidate for candidate in trained if math.isfinite(candidate.mean(values))]
    # `trained` is in the order of numbers, and sorting keeps the order of ties.
    return sorted(with_mean, key=lambda candidate: candidate.mean(values))


def _winner(trained: list[TrainedDraw], values: Values) -> Draw:
    """Return the draw of an arm that is chosen: the best finalist, or the best of all draws.

    All draws may be chosen in a search with one stage. A loss takes part in the comparison even
    where its draws failed, so one draw is always chosen.
    """
    ranked = _best(_finalists(trained), values)
    if not ranked:
        # Every finalist failed with a further seed. The best of all draws by the first seed alone
        # is chosen, which may be such a finalist: the loss still takes part, and its cells in the
        # comparison show whether it fails again.
        ranked = _best_with_one_seed(trained, values)
    if not ranked:
        # Every draw failed with the first seed too. They are equally bad: the first one is chosen.
        ranked = trained
    return ranked[0].draw


def _best_with_one_seed(trained: list[TrainedDraw], values: Values) -> list[TrainedDraw]:
    """Return the draws that have a value with the first seed, the best ones first."""
    first_seed = [TrainedDraw(candidate.draw, candidate.cells[:1]) for candidate in trained]
    return _best(first_seed, values)


def _finalists(trained: list[TrainedDraw]) -> list[TrainedDraw]:
    """Return the draws of an arm that may be chosen: the finalists, or all if there are none."""
    # Only finalists have cells for the other seeds.
    most = max(len(candidate.cells) for candidate in trained)
    return [candidate for candidate in trained if len(candidate.cells) == most]


def _check_metric(stage: Plan, metric: str, values: Values) -> None:
    """Raise UsageError where no draw on a task has the metric of the search."""
    tasks = {cell.task.name for cell in stage.cells}
    tasks_with_value = {cell.task.name for cell in stage.cells if cell.id in values}
    for task in tasks:
        if task not in tasks_with_value:
            reason = "none is done, or the task does not evaluate validation bags"
            raise UsageError(
                f"no draw on task {task} has a {metric} to choose settings by: {reason}"
            )


def _check_arms(comparison: Plan, draws: Plan) -> None:
    """Raise UsageError where changes for the search rename a task, or make two tasks the same."""
    missing = _arms(comparison).keys() - _arms(draws).keys()
    if missing:
        task = min(arm.task for arm in missing)
        raise UsageError(
            f"tune.draw_task changes what tells tasks apart: {task} has no search of its own; "
            "expected changes of other parameters, or tasks with a name"
        )


def _check_seeds(seeds: list[int], cells_of_arm: list[Cell], base: Plan) -> None:
    """Raise UsageError where the comparison uses a seed of the search, or it is no fold."""
    common = set(seeds) & {cell.seed for cell in cells_of_arm}
    if common:
        raise UsageError(
            f"tune.seeds: seed {min(common)} is also one of the comparison; "
            "expected others, so that settings are not compared on the runs that chose them"
        )
    any_cell = cells_of_arm[0]
    folds = base.info(any_cell).folds
    # Without a number of repeats, any seed is a fold: bags are split anew as often as asked for.
    if folds and folds.repeats and max(seeds) >= folds.seeds:
        raise UsageError(
            f"tune.seeds: seed {max(seeds)} is no fold of {any_cell.task}: "
            f"its {folds.repeats} x {folds.count} folds are the seeds 0-{folds.seeds - 1}; "
            "expected one that the comparison leaves out"
        )


def _changed_cell(cell: Cell, settings: Settings) -> Cell:
    """Return a cell with the settings of a draw in its recipe and its loss.

    Raises UsageError where a setting is unknown or its value is wrong.
    """
    recipe_changes: Settings = {}
    loss_changes: Settings = {}
    for name, value in settings.items():
        table, _, key = name.partition(".")
        if table == "recipe":
            recipe_changes[key] = value
        else:
            loss_changes[key] = value
    try:
        loss = changed_loss(cell.loss, loss_changes)
        recipe = changed_recipe(cell.recipe, recipe_changes)
    except UsageError as error:
        # "valid integer" are pydantic's words where a whole number is expected. Ranges give floats.
        needs_whole_number = "valid integer" in str(error)
        hint = "; whole numbers are listed: [1, 2, 4]" if needs_whole_number else ""
        raise UsageError(f"[tune] {error}{hint}") from None
    return replace(cell, recipe=recipe, loss=loss)


def _check_axes(spec: Spec, search: Search) -> None:
    """Raise UsageError where a recipe, or a searched parameter of a loss, is an axis.

    An axis is a list of values, each of which the comparison would try.
    """
    task_recipes = [value for value in spec.recipe.values() if isinstance(value, dict)]
    for recipe in (spec.recipe, *task_recipes):
        for name, value in recipe.items():
            if isinstance(value, list):
                raise UsageError(
                    f"recipe.{name} is an axis; beside [tune] a setting has one value or is "
                    "searched, or has one value for the draws in [tune.draw_recipe]"
                )
    for loss, space in search.loss.items():
        section = spec.loss.get(loss, {})
        for name in space:
            if isinstance(section.get(name), list):
                raise UsageError(
                    f"loss.{loss}.{name} is an axis and is searched; expected one of the two"
                )
