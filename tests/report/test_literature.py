"""Figures of a spec's `[[published]]` tables, from the spec to the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.errors import UsageError
from milbench.report.figures.published_lines import of_methods
from milbench.report.literature import literature_table
from milbench.report.render import render
from milbench.report.study import Study
from tests._helpers.report_data import ONE, constant

FIGURE = {"task": "synthetic-bags", "method": "A method", "metric": "set_error", "value": 0.1, "source": "A paper"}
ERRORS = {"exact": (0.05, 0.07, 0.06, 0.10), "noisy-or": (0.15, 0.11, 0.12, 0.13)}
TASK = next(iter(ONE))


def study(overlap: float) -> Study:
    values = {(loss, seed): [(0.5, e)] for loss, errors in ERRORS.items() for seed, e in enumerate(errors)}
    fact = {"task": TASK, "loss": "", "metric": "instance_error", "value": 0.1, "source": "A paper.", "spread": 0.02}
    other = {"method": "On other bags", "params": {"no_such": "value"}}
    results = constant(values, published=[fact | {"method": "A method"}, fact | other])
    results.overlaps.update(dict.fromkeys(map(str, results.cells.index), overlap))
    return Study(results)


def bounds(values: tuple[float, ...], overlap: float) -> Any:
    """Student's interval in %, with the variance of the mean as Nadeau and Bengio correct it, to the nearest half."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) * np.sqrt(1 / len(values) + overlap)
    return pytest.approx([100 * (np.mean(values) - half), 100 * (np.mean(values) + half)], abs=0.5)


def shown(text: str) -> list[float]:
    return [float(number) for number in text.strip("[]").split(",")]


def test_a_published_figure_stands_among_ours_with_both_intervals() -> None:
    table = literature_table(study(overlap=0.25))
    assert table is not None
    ((name, lines),) = table.groups
    assert name.startswith(TASK)
    assert [line[0].text for line in lines] == ["exact", "A method", "noisy-or"]  # 7, 10 and 12.75 %
    assert lines[1][1].text == "10 ± 2"
    assert lines[1][1].mark == "[1]"
    assert any(note == "[1] A paper." for note in table.notes)
    for line, errors in ((lines[0], ERRORS["exact"]), (lines[2], ERRORS["noisy-or"])):
        assert shown(line[2].text) == bounds(errors, 0.0)
        assert shown(line[3].text) == bounds(errors, 0.25)
        assert line[4].text == "4"


def test_figures_on_other_data_stand_nowhere() -> None:
    seen = study(overlap=0.0)
    for data, shown_ in (("", True), ("sha256:0", True), ("SVHN, ", False)):
        published = [entry | {"data": data} for entry in seen.results.published]
        other = Study(replace(seen.results, published=published))
        assert (literature_table(other) is not None) == shown_
        assert bool(of_methods(other, TASK)) == shown_


@pytest.mark.usefixtures("blank_figures")
def test_without_shared_data_there_is_no_corrected_interval(tmp_path: Path) -> None:
    seen = study(overlap=0.0)
    table = literature_table(seen)
    assert table is not None
    assert {line[3].text for _, lines in table.groups for line in lines} == {"—"}
    render(seen.results, tmp_path / "report", gallery="none")
    for page in ("index.html", "report.md"):
        assert "Beside the literature" in (tmp_path / "report" / page).read_text("utf-8")


def test_a_figure_belongs_to_the_task_with_its_parameters() -> None:
    values: dict[str, Any] = {"name": "t", "losses": ["exact"], "tasks": ["synthetic-bags"]}
    values |= {"task": {"synthetic-bags": {"max_size": [16, 32]}}}
    spec = make_spec({**values, "published": [FIGURE | {"params": {"max_size": 16}}]})
    plan = make_plan(spec, None)
    (entry,) = plan.tasks["synthetic-bags"].published
    assert entry["params"] == {"max_size": 16}
    sizes = [cell.params()["task.max_size"] for cell in plan.cells]
    assert sizes == [16, 32]
    assert [cell.id for cell in plan.cells] == [cell.id for cell in make_plan(make_spec(values), None).cells]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"task": "synthetic-bag"}, "did you mean 'synthetic-bags'"),
        ({"metric": "set_eror"}, "did you mean 'set_error'"),
        ({"params": {"max_sise": 8}}, "did you mean 'max_size'"),
        ({"value": 10.0}, "set_error is a share between 0 and 1, got 10"),
        ({"value": float("nan")}, "published"),
        ({"source": ""}, "source"),
    ],
)
def test_a_wrong_figure_is_refused(change: dict[str, Any], says: str) -> None:
    values = {"name": "t", "losses": ["exact"], "tasks": ["synthetic-bags"], "published": [FIGURE | change]}
    with pytest.raises(UsageError, match=says):
        make_plan(make_spec(values), None)
