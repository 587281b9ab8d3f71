"""The stages of a comparison: those of its search for settings, then the comparison itself.

What follows a stage depends on all of its cells. A launch therefore asks for the first stage, runs
it, and asks for the next one with the values that the cells have.
"""

from dataclasses import dataclass
from enum import Enum

from milbench.experiment.cell import Cell
from milbench.experiment.launch_settings import Launch
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan
from milbench.experiment.spec import Spec
from milbench.experiment.tuning import (
    THEN_COMPARISON,
    Values,
    after_first_stage,
    comparison_plan,
    finalists_plan,
    has_finalists,
    search_plan,
)


class Purpose(Enum):
    """What a stage is for."""

    DRAWS = "all draws of a search are trained"
    FINALISTS = "the best draws are trained with further seeds"
    COMPARISON = "losses are compared"


@dataclass(frozen=True)
class Stage:
    """The cells of a plan that are run together."""

    purpose: Purpose
    plan: Plan
    """The plan of the comparison so far. It also has the cells of earlier stages."""
    cells: list[Cell]
    """The cells of the plan that belong to this stage."""
    end: str = ""
    """The line that is printed when a stage of the search is done, "" for the comparison."""
    then: str = ""
    """The line in which a dry run says what follows, "" where nothing does."""

    @property
    def is_search(self) -> bool:
        """Whether another stage follows, which depends on the results of these cells."""
        return self.purpose is not Purpose.COMPARISON


class Stages:
    """The stages of one comparison."""

    def __init__(self, spec: Spec, launch: Launch) -> None:
        self.spec = spec
        self.launch = launch

    def first(self, device: str, precision: str) -> Stage:
        """Return the first stage. Raises UsageError for a wrong spec.

        `device` and `precision` are as in `make_plan`.
        """
        if self.spec.tune is None:
            plan = make_plan(self.spec, self.launch, device, precision)
            return Stage(Purpose.COMPARISON, plan, plan.cells)
        plan = search_plan(self.spec, self.launch, device, precision)
        if has_finalists(self.spec.tune):
            end = "the first stage of the search is done"
            then = after_first_stage(self.spec, plan)
        else:
            end = "the search is done"
            then = THEN_COMPARISON
        return Stage(Purpose.DRAWS, plan, plan.cells, end, then)

    def after(self, stage: Stage, values: Values, device: str) -> Stage:
        """Return what follows a stage of the search, given the values of the cells of that stage.

        Raises UsageError where no draw on a task has a value.
        """
        search = self.spec.tune
        if stage.purpose is Purpose.DRAWS and search and has_finalists(search):
            plan = finalists_plan(self.spec, stage.plan, values)
            done = {cell.id for cell in stage.plan.cells}
            cells = [cell for cell in plan.cells if cell.id not in done]
            return Stage(Purpose.FINALISTS, plan, cells, "the search is done", THEN_COMPARISON)
        plan = comparison_plan(self.spec, stage.plan, values, self.launch, device)
        return Stage(Purpose.COMPARISON, plan, plan.compared)
