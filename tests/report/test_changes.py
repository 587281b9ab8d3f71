"""What changed between two comparisons: what is matched, what is judged, and how often that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

from milbench import UsageError
from milbench.api.outcomes import Outcomes, save_outcomes
from milbench.api.results import Results
from milbench.report.changes import Changes, Row, changes_between
from milbench.report.changes_page import changes_sentence, changes_table, write_changes
from milbench.report.statistics import differences
from tests._helpers.report_data import make_results
from tests._helpers.simulated_losses import Design, drawn

TASK, ITEMS = "extended-digits", 400
BEFORE = {"a": [40, 44, 41, 42], "b": [60, 62, 66, 61]}
AFTER = {"a": [44, 47, 43, 45], "b": [61, 60, 65, 63]}
"""Wrong ones of 400 test bags with each seed."""


def results(
    errors: dict[str, list[int]], task: str = TASK, metric: str = "instance_error", run: str = "", **fields: Any
) -> Results:
    """Return results of one epoch; `run` goes into the ids of the runs."""
    made = make_results(None, dict.fromkeys(errors, 0.1), {task: metric}, max(map(len, errors.values())), 1, **fields)
    cells = made.cells.assign(run_id=made.cells["run_id"] + run)
    wrong = [errors[loss][seed] for loss, seed in zip(cells["loss_label"], cells["seed"], strict=True)]
    rows = [(cell, 1, f"test/{metric}", count / ITEMS) for cell, count in zip(cells.index, wrong, strict=True)]
    history = pd.DataFrame(rows, columns=["cell", "epoch", "metric", "value"])
    return replace(made, cells=cells, history=history)


def with_cells(found: Results, prefix: str) -> Results:
    """Return results under other content hashes, as of other code."""
    names = {cell: prefix + cell[len(prefix) :] for cell in found.cells.index}
    renamed: dict[str, Any] = {
        field: {names[cell]: value for cell, value in getattr(found, field).items()}
        for field in ("params", "provenance", "outcomes")
    }
    history = found.history.assign(cell=found.history["cell"].map(names))
    costs = found.costs.rename(index=names)
    return replace(found, cells=found.cells.rename(index=names), history=history, costs=costs, **renamed)


def with_outcomes(found: Results, folder: Path, wrong: NDArray[Any], items: str = "the same bags") -> Results:
    """Return results with these outcomes (losses, seeds, bags) and the errors that follow from them."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, values = {}, []
    metric = f"{found.cells['primary'].iloc[0]}"
    for cell, of_cell in zip(found.cells.index, wrong.reshape(-1, wrong.shape[-1]), strict=True):
        paths[str(cell)] = folder / f"{cell}.npz"
        save_outcomes(paths[str(cell)], {metric: Outcomes(of_cell, np.ones(of_cell.size), items)})
        values.append((str(cell), 1, f"test/{metric}", float(of_cell.mean())))
    return replace(found, outcomes=paths, history=pd.DataFrame(values, columns=list(found.history.columns)))


def joined(*parts: Results) -> Results:
    """Return results of several tasks in one comparison."""
    cells = pd.concat([part.cells.set_index(str(n) + part.cells.index.str[1:]) for n, part in enumerate(parts)])
    history = pd.concat([p.history.assign(cell=str(n) + p.history["cell"].str[1:]) for n, p in enumerate(parts)])
    params = {f"{n}{cell[1:]}": value for n, p in enumerate(parts) for cell, value in p.params.items()}
    return replace(parts[0], cells=cells, history=history, params=params, provenance={}, costs=parts[0].costs.iloc[:0])


def only_row(found: Changes) -> Row:
    (row,) = found.rows
    return row


def student(one: list[int], other: list[int], level: float) -> tuple[float, float]:
    found = stats.ttest_rel(np.array(other) / ITEMS, np.array(one) / ITEMS).confidence_interval(level)
    return found.low, found.high


def test_one_row_on_the_same_bags_has_the_interval_of_students_paired_test() -> None:
    row = only_row(changes_between(results({"a": BEFORE["a"]}), results({"a": AFTER["a"]}, run="0")))
    assert row.difference is not None
    assert row.difference.difference == pytest.approx((4 + 3 + 2 + 3) / 4 / ITEMS)
    assert row.difference.interval == pytest.approx(student(BEFORE["a"], AFTER["a"], 0.95))
    assert (row.verdict, row.pairing, row.differs) == ("worse", "seed", ("computed again",))


def test_all_rows_are_one_family_and_the_same_runs_are_no_part_of_it() -> None:
    """Two tasks with a row each have Student's intervals of sqrt(95 %) coverage."""
    tasks = "one", "two"
    before = joined(*(results({"a": BEFORE[loss]}, task) for task, loss in zip(tasks, "ab", strict=True)))
    after = joined(*(results({"a": AFTER[loss]}, task, run="0") for task, loss in zip(tasks, "ab", strict=True)))
    found = changes_between(before, after).rows
    for row, loss in zip(found, "ab", strict=True):
        assert row.difference is not None
        assert row.difference.interval == pytest.approx(student(BEFORE[loss], AFTER[loss], 0.95**0.5))
    half = replace(after, cells=after.cells.assign(run_id=[*before.cells["run_id"][:4], *after.cells["run_id"][4:]]))
    same, changed = changes_between(before, half).rows
    assert (same.verdict, same.difference, same.differs) == ("the same runs", None, ())
    assert changed.difference is not None
    assert changed.difference.interval == pytest.approx(student(BEFORE["b"], AFTER["b"], 0.95))


def test_rows_of_one_task_have_wider_intervals_than_one_alone() -> None:
    alone = only_row(changes_between(results({"a": BEFORE["a"]}), results({"a": AFTER["a"]}, run="0"))).difference
    both = changes_between(results(BEFORE), results(AFTER, run="0")).rows[0].difference
    assert alone is not None
    assert both is not None
    assert both.difference == pytest.approx(alone.difference)
    assert both.interval[0] < alone.interval[0]


def test_other_data_are_compared_by_welch() -> None:
    after = results({"a": AFTER["a"]}, run="0")
    after = replace(after, cells=after.cells.assign(data_digest="sha256:other"))
    row = only_row(changes_between(results({"a": BEFORE["a"]}), after))
    sides = (np.array(found["a"]) / ITEMS for found in (AFTER, BEFORE))
    expected = stats.ttest_ind(*sides, equal_var=False).confidence_interval(0.95)
    assert row.difference is not None
    assert row.difference.interval == pytest.approx((expected.low, expected.high))
    assert (row.pairing, row.differs) == ("unpaired", ("data",))


def test_test_bags_pair_where_outcomes_are_known(tmp_path: Path) -> None:
    wrong = np.random.default_rng(0).random((1, 3, ITEMS)) < 0.2
    one, other = results({"a": [0] * 3}), results({"a": [0] * 3}, run="0")
    before = with_outcomes(one, tmp_path / "a", wrong)
    after = with_outcomes(other, tmp_path / "b", wrong ^ (np.arange(ITEMS) < 8))
    row = only_row(changes_between(before, after))
    assert row.difference is not None
    assert (row.pairing, row.difference.items) == ("seed and test bag", ITEMS)
    elsewhere = with_outcomes(other, tmp_path / "c", wrong ^ (np.arange(ITEMS) < 8), "other bags")
    unpaired = only_row(changes_between(before, elsewhere))
    assert unpaired.difference is not None
    assert (unpaired.pairing, unpaired.difference.items) == ("unpaired", ITEMS)
    widths = [high - low for low, high in (row.difference.interval, unpaired.difference.interval)]
    assert widths[0] < 0.7 * widths[1], "the draw of the bags is common to both where they are the same"


@pytest.mark.parametrize(("metric", "verdict"), [("instance_error", "worse"), ("auroc", "better")])
def test_more_is_worse_for_an_error_and_better_for_a_share_that_is_right(metric: str, verdict: str) -> None:
    found = changes_between(
        results({"a": BEFORE["a"]}, metric=metric), results({"a": [90, 96, 94, 91]}, metric=metric, run="0")
    )
    assert only_row(found).verdict == verdict
    assert bool(found.worse) == (verdict == "worse")


def test_a_margin_makes_small_differences_equivalent() -> None:
    before, after = results({"b": BEFORE["b"]}), results({"b": AFTER["b"]}, run="0")
    low, high = student(BEFORE["b"], AFTER["b"], 0.95)
    for margin, expected in ((1.01 * max(-low, high), True), (0.99 * max(-low, high), False), (None, False)):
        found = changes_between(before, after, margin=margin)
        assert only_row(found).is_equivalent == expected
        assert ("equivalent within" in changes_sentence(found)) == expected


def renamed(found: Results, labels: dict[str, str], **params: Any) -> Results:
    """Return results whose losses have other labels, and all of whose cells have these parameters as well."""
    return replace(
        found,
        cells=found.cells.assign(loss_label=found.cells["loss_label"].replace(labels)),
        params={cell: value | params for cell, value in found.params.items()},
    )


def test_what_is_in_one_of_them_alone_is_listed(tmp_path: Path) -> None:
    found = changes_between(results({"a": BEFORE["a"], "x": BEFORE["b"]}), results({"a": AFTER["a"], "y": AFTER["b"]}))
    assert [place.label for place in (*found.only_a, *found.only_b)] == [f"x on {TASK}", f"y on {TASK}"]
    assert f"only in A: x on {TASK}; only in B: y on {TASK}." in changes_sentence(found)
    assert dict(zip(found.frame["loss"], found.frame["verdict"], strict=True))["y"] == "only in B"
    page = write_changes(found, tmp_path)
    for text in (page.read_text("utf-8"), (tmp_path / "compare.md").read_text("utf-8")):
        assert "only in A" in text
        assert f"y on {TASK}" in text


def test_losses_are_matched_by_all_parameters_and_else_by_their_names() -> None:
    """A report names the parameter in which losses of one comparison differ: the same loss has two names then."""
    before = renamed(results({"a": BEFORE["a"]}), {}, **{"loss.norm": "batch"})
    both = results({"a": AFTER["a"], "b": AFTER["b"]})
    norms = {cell: "bag" if label == "a" else "batch" for cell, label in both.cells["loss_label"].items()}
    cells = both.cells.assign(
        loss="a", loss_label=both.cells["loss_label"].map({"a": "a norm=bag", "b": "a norm=batch"})
    )
    params = {c: value | {"loss": "a", "loss.norm": norms[c]} for c, value in both.params.items()}
    found = changes_between(before, replace(both, cells=cells, params=params))
    assert [row.b.variant.loss for row in found.rows] == ["a norm=batch"]
    assert [place.variant.loss for place in found.only_b] == ["a norm=bag"]
    table = changes_table(found)
    assert table.groups[0][1][0][0].detail == f"in A: a on {TASK}"

    tuned = changes_between(before, renamed(results({"a": AFTER["a"]}), {}, **{"loss.norm": "bag", "recipe.lr": 0.1}))
    assert only_row(tuned).differs == ("recipe.lr 0.0005 → 0.1", "loss.norm 'batch' → 'bag'")


def test_other_code_is_told_from_runs_that_were_repeated() -> None:
    after = results({"a": AFTER["a"]}, run="0")
    assert only_row(changes_between(results({"a": BEFORE["a"]}), with_cells(after, "ff"))).differs == (
        "code of the loss or the task",
    )
    origin = {str(cell): {"origin_run": str(run)} for cell, run in results({"a": BEFORE["a"]}).cells["run_id"].items()}
    imported = replace(results({"a": BEFORE["a"]}, run="0"), provenance=origin)
    before = results({"a": BEFORE["a"]})
    assert only_row(changes_between(before, imported)).verdict == "the same runs"


def test_versions_in_which_they_differ_are_notes() -> None:
    after = results({"a": AFTER["a"]})
    other = {cell: tags | {"library.torch": "3.0"} for cell, tags in after.provenance.items()}
    notes = changes_between(results({"a": BEFORE["a"]}), replace(after, provenance=other)).notes
    assert notes == ["The cells of A and B differ in library.torch: 2.8.0 → 3.0."]


def test_a_loss_that_no_longer_gives_a_result_is_among_the_worse() -> None:
    failed = {("a", TASK, seed): ("failed", "loss is nan") for seed in range(4)}
    after = results({"a": AFTER["a"]}, run="0", statuses=failed)
    found = changes_between(results({"a": BEFORE["a"]}), after)
    assert (found.worse, only_row(found).verdict) == (found.rows, "no result")
    assert "loss is nan" in changes_table(found).groups[0][1][0][2].warning
    assert not changes_between(after, results({"a": BEFORE["a"]})).worse, "it was lost before"


def test_a_loss_that_begins_to_fail_is_among_the_worse() -> None:
    """Three of four seeds are as good as before, and the fourth diverges."""
    failed = {("a", TASK, 3): ("failed", "loss is nan")}
    after = results({"a": BEFORE["a"]}, run="0", statuses=failed)
    found = changes_between(results({"a": BEFORE["a"]}), after)
    assert found.worse == found.rows
    assert only_row(found).failed_seeds == [3]
    assert "failed in B with seeds that A has: a on extended-digits (seed 3)" in changes_sentence(found)
    assert "seed 3 failed in B" in changes_table(found).groups[0][1][0][5].detail
    assert not changes_between(after, results({"a": BEFORE["a"]})).worse, "it had failed before"


def test_a_loss_that_gets_nearly_all_sets_wrong_is_worse() -> None:
    """A report of B alone is led by the label error, which A and B are not compared by."""
    before = results({"a": [40, 44, 41]}, metric="set_error")
    after = results({"a": [400, 399, 398]}, metric="set_error", run="0")
    label_errors = after.history.assign(metric="test/label_error", value=0.5)
    found = only_row(changes_between(before, replace(after, history=pd.concat([after.history, label_errors]))))
    assert (found.name, found.verdict) == ("set_error", "worse")


def test_nothing_in_common_and_unknown_metrics_are_one_line() -> None:
    before = results({"a": BEFORE["a"]})
    with pytest.raises(
        UsageError, match=r"old and new have no loss on a task in common: old has a on .*; new has b on"
    ):
        changes_between(before, results({"b": AFTER["b"]}), ("old", "new"))
    with pytest.raises(
        UsageError, match="unknown metric of both comparisons 'instance_eror'; did you mean 'instance_e"
    ):
        changes_between(before, before, metric="instance_eror")


def test_the_files_hold_the_table_and_need_nothing_else(tmp_path: Path) -> None:
    before, after = results(BEFORE), results(AFTER, run="0")
    found = changes_between(replace(before, command="milbench run <1>"), after, ("main", "mine"))
    page = write_changes(found, tmp_path / "new" / "folder").read_text("utf-8")
    for outside in ("src=", "href=", "@import", "url("):
        assert outside not in page
    assert "milbench run &lt;1&gt;" in page
    table = (tmp_path / "new" / "folder" / "compare.md").read_text("utf-8")
    row = only_row(changes_between(results({"a": BEFORE["a"]}), results({"a": AFTER["a"]}, run="0")))
    assert row.difference is not None
    assert "| a | 10.4 ± 0.4" in table
    assert "+0.75" in table
    written = pd.read_csv(tmp_path / "new" / "folder" / "compare.csv")
    assert written["difference"].tolist() == pytest.approx([3 / ITEMS, 0.0])
    assert written["verdict"].tolist() == [row.verdict for row in found.rows]
    with pytest.raises(UsageError, match="cannot write into --out"):
        write_changes(found, tmp_path / "new" / "folder" / "compare.csv")


def test_durations_of_steps_are_shown_and_not_judged() -> None:
    before, after = results({"a": BEFORE["a"]}), results({"a": BEFORE["a"]}, run="0")
    found = changes_between(
        before, replace(after, costs=before.costs.assign(step_seconds=9 * before.costs.step_seconds))
    )
    assert changes_table(found).groups[0][1][0][-1].text == "9.00"
    assert not found.worse


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(differences, "DRAWS", 400)
    differences._normal_draws.cache_clear()
    yield
    differences._normal_draws.cache_clear()


REPETITIONS = 40


def worse_in(errors: tuple[float, float, float, float], folder: Path, limit: int = REPETITIONS) -> int:
    """Return in how many repetitions a row is worse: two losses before (the first two errors) and after."""
    rng, found = np.random.default_rng(3), 0
    before, after = results({"a": [0] * 3, "b": [0] * 3}), results({"a": [0] * 3, "b": [0] * 3}, run="0")
    for _ in range(limit):
        wrong = drawn(rng, Design(3, errors, (0.02,) * 4, nested=False)).wrong
        sides = with_outcomes(before, folder / "a", wrong[:2]), with_outcomes(after, folder / "b", wrong[2:])
        found += bool(changes_between(*sides).worse)
    return found


def test_equal_losses_are_hardly_ever_worse(tmp_path: Path, few_draws: None) -> None:
    """Half of the 5 % are on the side of the worse. More than 5 of 40 happen less than once in a thousand counts."""
    assert stats.binom.sf(5, REPETITIONS, 0.025) < 1e-3
    assert worse_in((0.15, 0.15, 0.15, 0.15), tmp_path) <= 5


def test_a_planted_regression_is_found(tmp_path: Path, few_draws: None) -> None:
    assert worse_in((0.05, 0.15, 0.30, 0.15), tmp_path, 10) == 10
