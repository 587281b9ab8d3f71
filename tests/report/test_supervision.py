"""What more supervision is worth in bags, read off made-up learning curves."""

from __future__ import annotations

import pandas as pd

from milbench.api.plan import Cell, Plan, TaskInfo
from milbench.api.results import Results
from milbench.report.study import Study
from milbench.report.supervision import series_of, worth_table


def halving_errors() -> Results:
    """Return errors that halve with twice the bags; 100 bags of the stronger loss are worth 200 of the weaker one."""
    cells, rows = [], []
    for bags in (400, 100, 200):
        for loss, kind, at_100 in (("weak", "set", 0.4), ("strong", "position", 0.2)):
            for seed in range(3):
                cell = Cell(loss, {}, "1", kind, "sounds", {"bags": bags}, "1", "", {}, seed)
                cells.append(cell)
                rows.append({
                    "task": f"sounds bags={bags}", "loss": loss, "recipe": "", "supervision": kind, "seed": seed,
                    "status": "done", "reason": "", "epoch": 1, "metric": "test/set_error", "cell": cell.id,
                    "value": at_100 * 100 / bags * (1 + 0.01 * seed), "run": "", "machine": "", "code": "",
                    "draw": None,
                })  # fmt: skip
    spec = {"name": "worth", "title": "", "compare_by": [], "selection": "last"}
    tasks = {cell.task_key: TaskInfo("set_error", amount="bags") for cell in cells}
    return Results(Plan(spec, cells, tasks), pd.DataFrame(rows).astype({"epoch": "Int64", "draw": "Int64"}))


def test_bags_of_more_supervision_are_read_off_the_curve_of_less() -> None:
    study = Study(halving_errors())
    (series,) = series_of(study)
    assert list(series.tasks) == [100, 200, 400]
    table = worth_table(study, series)
    assert table is not None
    column = table.frame["as many bags for weak"]
    assert column["strong, 100 bags"].startswith("200 [")
    assert column["strong, 100 bags"].endswith("× 2")
    assert column["strong, 400 bags"] == "> [>, >]", "more than were measured"
