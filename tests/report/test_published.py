"""The comparison with published numbers, by independent tests, and its place in a report."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from milbench.api.results import Results
from milbench.report.published import PublishedComparison, comparisons, differences_table, verdict_table
from milbench.report.render import render
from milbench.report.study import Study
from milbench.report.tables import Entry, Table
from tests._helpers.report_data import by_set_error, constant

TASK = "extended-digits"
SIX = (0.089, 0.054, 0.084, 0.071, 0.101, 0.081)
"""Six errors that a source may report as 8.0 ± 1.6 %."""


def ours(*errors: float, loss: str = "exact", published: Any = (), **changes: Any) -> Results:
    """Return results whose best error on test, seed by seed, is the one given; the last epoch is worse."""
    values = {(loss, seed): [(0.2, error), (0.1, error + 0.05)] for seed, error in enumerate(errors)}
    facts = [{"task": TASK, "loss": loss, "metric": "instance_error", "source": "A paper"} | p for p in published]
    return constant(values, published=facts, **changes)


def summary(values: tuple[float, ...], margin: float = 0.05) -> dict[str, Any]:
    return {"value": np.mean(values), "spread": np.std(values, ddof=1), "runs": len(values), "margin": margin}


FIVE = (0.07, 0.08, 0.10, 0.07, 0.09)
"""Five errors that are near to SIX."""


def only(results: Results) -> PublishedComparison:
    (found,) = comparisons(Study(results))
    return found


def lines(table: Table | None) -> list[list[Entry]]:
    assert table is not None
    return [line for _, group in table.groups for line in group]


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        (FIVE, "agrees"),
        (FIVE[:4], "unresolved"),
        ((0.02, 0.03, 0.025), "better"),
        ((0.15, 0.16, 0.17), "worse"),
        ((0.07, 0.16, 0.10, 0.07, 0.09), "unresolved"),
    ],
)
def test_the_verdict_is_that_of_welchs_interval_on_the_raw_runs(errors: tuple[float, ...], outcome: str) -> None:
    test = stats.ttest_ind(errors, SIX, equal_var=False)
    low, high = test.confidence_interval()
    assert (low <= 0 <= high) == (outcome in ("agrees", "unresolved"))
    for fact in (summary(SIX), {"value": 0.08, "spread": 0.9, "values": SIX, "margin": 0.05}):
        found = only(ours(*errors, published=[fact]))
        assert found.outcome == outcome
        assert found.interval == pytest.approx((low, high)), "of the listed runs, whatever the source prints of them"
        p = "< 0.001" if test.pvalue < 0.001 else f"= {test.pvalue:.3g}"
        assert f"Welch's p {p}" in found.reasons[0]
        difference = 100 * (np.mean(errors) - np.mean(SIX))
        shown = found.reasons[0].replace("−", "-").replace("+", "").replace("\u00a0", "").split("[")
        assert float(shown[0].split()[1]) == pytest.approx(difference, abs=0.6)
        assert [float(b) for b in shown[1].partition("]")[0].split(",")] == pytest.approx(
            [100 * low, 100 * high], abs=0.6
        )


def test_runs_whose_mean_is_not_the_printed_one_are_compared_and_named() -> None:
    fact = {"value": 0.09, "spread": 0.02, "values": SIX, "margin": 0.05}
    study = Study(ours(*FIVE, published=[fact]))
    ((_, there, _, verdict),) = lines(verdict_table(study))
    assert (there.text, there.detail) == ("9 ± 2", "mean of 6 runs, best on test; the listed runs: 8.0 ± 1.6")
    difference = 100 * (np.mean(FIVE) - np.mean(SIX))
    assert verdict.prose[0].startswith(f"difference +{difference:.1f} points")
    ((_, there, _, _),) = lines(verdict_table(Study(ours(*FIVE, published=[fact | {"value": 0.08, "spread": 0.016}]))))
    assert there.detail == "mean of 6 runs, best on test"


def test_the_margin_and_the_note_stand_below_the_table() -> None:
    facts = [summary(SIX) | {"note": "It is twice the spread."}, {"value": 0.08, "source": "Another"}]
    table = verdict_table(Study(ours(*FIVE, published=facts)))
    assert table is not None
    assert table.notes[:2] == ["[1] A paper. Margin of agreement: ± 5 points. It is twice the spread", "[2] Another"]


def test_where_higher_is_better_the_directions_turn() -> None:
    fact = {"value": 0.5, "metric": "auroc"}
    results = ours(0.80, 0.81, 0.82, published=[fact])
    history = results.history.assign(metric=results.history["metric"].str.replace("instance_error", "auroc"))
    high = replace(results, cells=results.cells.assign(primary="auroc"), history=history)
    assert only(high).outcome == "better"
    assert only(replace(high, published=[results.published[0] | {"value": 0.95}])).outcome == "worse"


@pytest.mark.parametrize(
    ("unknown", "runs"), [({"spread": None, "runs": 6}, 6), ({"spread": 0.016, "runs": None}, 1), ({}, 1)]
)
def test_without_the_published_spread_or_number_it_is_taken_to_be_that_of_ours(
    unknown: dict[str, Any], runs: int
) -> None:
    # Mean 8 %, standard deviation 1 %, three seeds: Student's half width is 4.303 sqrt(1 / 3 + 1 / runs) %.
    half = 0.01 * stats.t.ppf(0.975, 2) * math.sqrt(1 / 3 + 1 / runs)
    for value, outcome in (
        (0.08 - half + 0.001, "unresolved"),
        (0.08 - half - 0.001, "worse"),
        (0.08 + half - 0.001, "unresolved"),
        (0.08 + half + 0.001, "better"),
    ):
        found = only(ours(0.07, 0.08, 0.09, published=[unknown | {"value": value}]))
        assert found.outcome == outcome
        assert "Student's p" in found.reasons[0]
        assert found.interval == pytest.approx((0.08 - value - half, 0.08 - value + half))


def test_the_rule_of_the_source_chooses_the_epoch() -> None:
    rules = [{"value": 0.08, "rule": rule} for rule in ("test", "validation", "last")]
    found = comparisons(Study(ours(0.07, 0.08, 0.09, published=rules)))
    assert [c.value for c in found] == pytest.approx([0.08, 0.13, 0.13]), "validation errors fall, test errors rise"
    blind = ours(0.07, 0.08, 0.09, published=[rules[1]])
    blind = replace(blind, history=blind.history[blind.history["metric"].str.startswith("test/")])
    assert only(blind).outcome == "not comparable"
    assert only(blind).reasons == ("no validation set error here to choose the epoch by",)
    other = only(by_set_error(ours(0.07, 0.08, 0.09, published=[rules[1]])))
    assert "epochs are chosen by set error here, not by one-instance error" in other.reasons


def test_the_best_on_test_is_by_the_published_metric_not_by_that_of_the_ranking() -> None:
    results = ours(0.07, 0.08, 0.09, published=[{"value": 0.3, "metric": "set_error"}])
    rows = []  # the error of sets is the smallest in the second epoch, where that of instances is not
    for cell, seed in results.cells["seed"].items():
        rows += [(cell, epoch, "test/set_error", value + 0.01 * seed) for epoch, value in ((1, 0.4), (2, 0.3))]
    history = pd.concat([results.history, pd.DataFrame(rows, columns=results.history.columns)])
    found = only(replace(results, history=history))
    assert found.sample.by_seed.to_dict() == pytest.approx({0: 0.30, 1: 0.31, 2: 0.32})
    assert found.outcome == "unresolved"


def test_another_protocol_is_not_comparable_and_every_parameter_is_named() -> None:
    protocol = {"recipe.optimizer": "psgd", "recipe.head_init": "paper", "recipe.steps_per_epoch": None,
                "recipe.epochs": 2, "task.any_data": False}  # fmt: skip
    minor = {"recipe.lr": 0.02, "task.validation": 0}
    results = ours(*FIVE, published=[summary(SIX) | {"protocol": protocol, "minor": minor}])
    known = {"recipe.steps_per_epoch": 320, "task.any_data": True, "task.validation": 5000, "recipe.lr": 0.02}
    found = only(replace(results, params={cell: p | known for cell, p in results.params.items()}))
    assert found.outcome == "not comparable"
    different, minor_ones = found.reasons
    assert all(math.isnan(bound) for bound in found.interval)
    assert different == (
        "another protocol: optimizer adamw (published: psgd), head_init prior (published: paper), "
        "320 steps an epoch (published: all), any_data true (published: false)"
    )
    assert minor_ones == "minor differences: validation 5000 (published: 0)"
    assert found.value == pytest.approx(np.mean(FIVE)), "ours is shown all the same"
    same = known | protocol
    found = only(replace(results, params={cell: p | same for cell, p in results.params.items()}))
    assert found.outcome == "agrees"
    assert found.reasons[1:] == ("minor differences: validation 5000 (published: 0)",)
    first, *_ = results.params
    found = only(replace(results, params={c: p | same | ({"recipe.optimizer": "sgd"} if c == first else {})
                                          for c, p in results.params.items()}))  # fmt: skip
    assert found.reasons[0] == "another protocol: optimizer sgd and psgd (published: psgd)", "one cell is enough"


def test_other_data_are_not_comparable_and_are_named() -> None:
    results = ours(*FIVE, published=[summary(SIX) | {"data": "SVHN, "}])
    for names, outcome in (
        (("SVHN, 9 train",) * 5, "agrees"),
        (("SVHN, 9 train", "SVHN-format, 4") * 3, "not comparable"),
    ):
        results.cells["data_digest"] = list(names)[: len(results.cells)]
        found = only(results)
        assert found.outcome == outcome
    assert found.reasons == ("other data: SVHN, 9 train and SVHN-format, 4",)


def test_each_variant_of_the_loss_has_its_line_and_other_losses_have_none() -> None:
    batch, bag = (f"max-pooling normalization={name}" for name in ("batch", "bag"))
    values = {(loss, seed): [(0.1, 0.08 + 0.01 * seed)] for loss in (batch, bag, "exact") for seed in range(5)}
    fact = {"task": TASK, "loss": "max-pooling", "metric": "instance_error", "value": 0.1, "source": "A paper",
            "margin": 0.06, "protocol": {"loss.normalization": "batch"}}  # fmt: skip
    results = constant(values, published=[fact, fact | {"task": "another"}])
    kinds = results.cells["loss_label"].str.partition("=")[2]
    results = replace(results, params={c: p | ({"loss.normalization": kinds[c]} if kinds[c] else {})
                                       for c, p in results.params.items()})  # fmt: skip
    table = lines(verdict_table(Study(results)))
    assert [(line[0].text, line[3].text) for line in table] == [(batch, "agrees"), (bag, "not comparable")]
    assert table[1][3].prose == ("another protocol: normalization bag (published: batch)",)
    assert table[1][2].text == "10.0 ± 1.6"


def test_two_seeds_never_get_a_verdict_and_lost_ones_are_named() -> None:
    failed = {("exact", TASK, seed): ("failed", "ValueError: boom") for seed in (1, 2)}
    one = only(ours(0.07, 0.08, 0.09, published=[summary(SIX)], statuses=failed))
    assert (one.outcome, one.reasons) == ("unresolved", ("1 seed, and a verdict needs 3",))
    none = only(ours(0.07, published=[summary(SIX)], statuses={("exact", TASK, 0): ("missing", "")}))
    assert (none.outcome, none.reasons) == ("unresolved", ("no finished seed",))
    assert math.isnan(none.value)
    lost = {("exact", TASK, 1): failed["exact", TASK, 1]}
    two = Study(ours(0.9, 0.901, 0.902, published=[summary(SIX)], statuses=lost))
    ((loss, _, here, verdict),) = lines(verdict_table(two))
    assert (loss.text, here.warning) == ("exact", "2 of 3 seeds; seed 1 failed: ValueError: boom")
    assert (verdict.text, verdict.prose) == ("unresolved", ("2 seeds, and a verdict needs 3",)), "however far they are"
    three = only(ours(0.07, 0.08, 0.09, 0.07, published=[summary(SIX)], statuses=lost))
    assert "; from 3 of 4 seeds" in three.reasons[0]


def test_the_best_of_many_runs_is_compared_with_the_best_of_as_many() -> None:
    fact = {"value": 0.05, "statistic": "best", "runs": 3, "margin": 0.2}
    short = only(ours(0.05, 0.07, published=[fact]))
    assert (short.outcome, short.reasons) == ("unresolved", ("the best of 3 runs, here 2 seeds",))
    assert short.value == 0.05
    enough = only(ours(0.05, 0.07, 0.06, 0.01, 0.06, published=[fact]))
    assert enough.value == 0.05, "of the first three: a fourth would be one more chance"
    assert enough.outcome == "agrees"
    assert only(ours(0.050, 0.051, 0.052, published=[fact | {"value": 0.2}])).outcome == "better"
    assert only(ours(0.050, 0.051, 0.052, published=[fact | {"value": 0.001}])).outcome == "worse"
    unknown = only(ours(0.05, 0.07, 0.06, published=[fact | {"runs": None}]))
    assert (unknown.outcome, unknown.reasons) == ("not comparable", ("the best of an unknown number of runs",))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("verdict")
    difference = {"topic": "rate <i>", "paper": "0.01 | 0.001", "code": "0.02", "here": "`recipe.lr`"}
    fact = summary(SIX) | {"source": "A <b>paper</b> & more", "minor": {"recipe.head_init": "<u>paper</u>"}}
    errors = (*FIVE, 0.5)
    results = ours(*errors, published=[fact], statuses={("exact", TASK, 5): ("failed", "<em>boom</em>")})
    results = replace(results, title="Rebuilt <s>here</s>", preset="quick", notes=["Few steps <small>", "Two"],
                      differences=[difference], chance={TASK: 0.9})  # fmt: skip
    results = replace(results, cells=results.cells.assign(supervision="position"))
    render(results, out)
    return {name: (out / name).read_text("utf-8") for name in ("index.html", "report.md", "verdict.csv")}


@pytest.mark.parametrize("name", ["index.html", "report.md"])
def test_the_opening_stands_in_order_in_every_format(pages: dict[str, str], name: str) -> None:
    test = "Welch's p" if name == "report.md" else "Welch&#39;s p"
    order = ["Rebuilt", "Preset quick", "Few steps", "Every loss on every task", "The published numbers beside ours",
             test, "Where the paper and its author", "How far from guessing to the oracle",
             "What the metrics mean"]  # fmt: skip
    places = [pages[name].index(text) for text in order]
    assert places == sorted(places)
    for tag in ("<i>", "<b>paper", "<u>", "<em>", "<s>", "<small>"):
        assert tag not in pages[name]
        assert tag.replace("<", "&lt;").replace(">", "&gt;") in pages[name]


def test_a_bar_in_a_text_ends_no_column_of_markdown(pages: dict[str, str]) -> None:
    assert r"| rate &lt;i&gt; | 0.01 \| 0.001 | 0.02 | \`recipe.lr\` |" in pages["report.md"]


def test_the_verdicts_are_numbers_too(pages: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "verdict.csv").write_text(pages["verdict.csv"], "utf-8")
    (row,) = pd.read_csv(tmp_path / "verdict.csv").to_dict("records")
    assert (row["loss"], row["verdict"], row["seeds"], row["planned"]) == ("exact", "agrees", 5, 6)
    assert row["mean"] == pytest.approx(np.mean(FIVE))
    low, high = stats.ttest_ind(FIVE, SIX, equal_var=False).confidence_interval()
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high))
    assert row["margin"] == 0.05
    assert row["published_value"] == pytest.approx(np.mean(SIX))


@pytest.mark.usefixtures("blank_figures")
def test_without_published_numbers_and_notes_there_is_no_opening(tmp_path: Path) -> None:
    study = Study(ours(0.07, 0.08))
    assert verdict_table(study) is None
    assert differences_table(study) is None
    render(study.results, tmp_path)
    assert not (tmp_path / "verdict.csv").exists()
    text = (tmp_path / "index.html").read_text("utf-8")
    for absent in ("beside ours", "Preset", "Read this first", '<p class="subtitle"', "author&#39;s code differ"):
        assert absent not in text
