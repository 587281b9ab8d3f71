"""The tables of a report, independent of the format (HTML, Markdown, LaTeX) in which they are written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

import pandas as pd

from milbench.api.metric_info import describe
from milbench.api.published import Rule
from milbench.api.results import COSTS
from milbench.api.supervision import SUPERVISIONS
from milbench.report.at_chance import all_at_chance, chance_note
from milbench.report.formatting import (
    NOTHING,
    counted,
    interval,
    measured,
    number,
    seconds,
    size,
    with_unit,
)
from milbench.report.seed_groups import RULE, groups_of
from milbench.report.statistics import FEWEST_SEEDS, RULES, share_interval
from milbench.report.study import Sample, Study, Variant
from milbench.report.verdicts import STANDINGS, best_of_most_seeds, standing
from milbench.report.wrong_sets import beside_the_mean, why_replaced

_LEGEND = (
    "Mean ± standard deviation over seeds [Student's 95 % interval of the mean over training seeds; none for fewer "
    "than three] n = finished seeds, on test bags. Where all seeds share them, it holds for training on these bags. "
    "Bold: best mean under the same supervision. The last words of a field say how a loss stands to it: worse (than "
    "some other loss, hence not the best), unresolved (it may be the best), equivalent (within the margin given in "
    "advance). The differences stand below, task by task."
)
_RULES_NOTE = (
    "Last epoch: needs no labels. Chosen on validation: the smallest validation set error, the latest of equals; it "
    "needs label sets alone. Best on test: chosen with the test bags and the truth that their metric takes; it is the "
    "rule of the paper's program, optimistic for every loss, and losses are never compared by it."
)
_TF32 = (
    "precision=tf32: in training, the GPU multiplies float32 numbers in the network of which it reads the first 11 "
    "significant bits (NVIDIA's TensorFloat-32); losses, optimisers and evaluation compute without it."
)

BUSY, UNSTEADY, WIDE = 0.2, 1.5, 0.5
"""From which share of the cores in other hands, and which median and spread relative to the least, durations are
marked."""
BUSY_MARK = "†"
_COST_NOTE = (
    "Medians over the finished seeds. Loss alone: forward and backward of one training batch, without the network. "
    "Least: of all calls (loss alone) or of the means of all epochs (training step). Spread: the width of the middle "
    "half of those of one seed."
)
_BUSY_NOTE = (
    f"{BUSY_MARK}: the machine was busy. For a seed or more, other processes (other cells among them) used more than "
    f"{BUSY:.0%} of its cores meanwhile, the median is more than {UNSTEADY:g} times the least, or the spread more than "
    f"{WIDE:g} times the least. Compare the least, or measure again with --jobs 1."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a table.

    Args:
        text: the number or the heading.
        detail: what qualifies it, such as an interval.
        warning: what is missing from it, and why.
        mark: a sign behind the text, explained in the notes of the table.
        strong: whether the text is set in bold.
        anchor: the place in the page to which the text links, "" for none.
        tone: the colour of the text: "good", "bad", "quiet" or "" for none.
        prose: sentences that stand below the line of the table.
    """

    text: str
    detail: str = ""
    warning: str = ""
    mark: str = ""
    strong: bool = False
    anchor: str = ""
    tone: str = ""
    prose: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table of lines in named groups, the kinds of supervision.

    Args:
        title: the heading above the table.
        columns: the headings of the columns.
        groups: name and lines of each group; a line has an entry a column, the first of which is its heading.
        notes: sentences below the table.
        style: "matrix" for a table wider than a screen, whose first column stays in sight; "" for others.
    """

    title: str
    columns: list[str]
    groups: list[tuple[str, list[list[Entry]]]]
    notes: list[str] = field(default_factory=list)
    style: Literal["", "matrix"] = ""

    @property
    def titled(self) -> bool:
        """Whether the names of the groups are shown: not where set supervision is the only one."""
        return len(self.groups) > 1 or any(name not in ("", SUPERVISIONS["set"]) for name, _ in self.groups)


def main_table(study: Study) -> Table:
    """Return the primary metric on test bags under the rule of the comparison: variants down, tasks across."""

    def entry(task: str, variant: Variant) -> Entry:
        if not len(study.group(task, variant)):
            return Entry("not planned")
        sample = study.sample(task, variant)
        where, name = standing(study.comparison(task, variant.supervision), variant), study.primary(task)
        hidden = beside_the_mean(study, task, variant, name)
        guessing = all_at_chance(study, task, variant.supervision)
        strong = where == "best" and not hidden and not guessing
        found = value_entry(study, task, variant, sample, reasons=True, strong=strong)
        if len(sample.by_seed) and len(study.comparison(task, variant.supervision).keys) > 1:
            among = best_of_most_seeds(study, task, name, study.comparison(task, variant.supervision))
            stands = "not told from guessing" if guessing else STANDINGS[where]
            stands += f" {among}" if where == "best" and among and not guessing else ""
            found = replace(found, detail=f"{found.detail}, {stands}")
        groups = groups_of(study, task, variant, name)
        told = [found.warning, hidden, f"two groups: {groups}" if groups else ""]
        return replace(found, warning="; ".join(filter(None, told)))

    columns = ["loss", *(f"{task}: {study.metric(task).heading}" for task in study.tasks)]
    lines = {
        variant: [Entry(variant.label), *(entry(task, variant) for task in study.tasks)] for variant in study.variants
    }
    return Table("Every loss on every task", columns, by_supervision(lines), _main_notes(study))


def rules_table(study: Study, task: str) -> Table:
    """Return the primary metric of one task under each rule that chooses the epoch, side by side."""
    metric = study.metric(task)
    rules: list[Rule] = [rule for rule in RULES if rule != "validation" or study.validated(task)]
    lines = {
        variant: [
            Entry(variant.label),
            *(value_entry(study, task, variant, study.sample(task, variant, rule=rule)) for rule in rules),
        ]
        for variant in study.variants_of(task)
    }
    notes = [_RULES_NOTE, f"Losses are compared by: {RULES[study.rule(task)]}."]
    if candidates := study.candidates(task):
        notes.append(candidates)
    title = f"The choice of the epoch: {metric.heading}"
    return Table(title, ["loss", *(RULES[rule] for rule in rules)], by_supervision(lines), notes)


def metrics_table(study: Study, task: str) -> Table | None:
    """Return all other test metrics of one task under the rule of the comparison; None where there are none."""
    names = study.metrics(task)
    if not names:
        return None
    lines = {
        variant: [
            Entry(variant.label),
            *(value_entry(study, task, variant, study.sample(task, variant, name), name) for name in names),
        ]
        for variant in study.variants_of(task)
    }
    columns = ["loss", *(describe(name).heading for name in names)]
    title = f"All other metrics, {RULES[study.rule(task)]}"
    return Table(title, columns, by_supervision(lines))


def cost_table(study: Study, task: str) -> Table | None:
    """Return the time and memory of each variant, medians over the finished seeds; None where none was measured."""
    kinds = {"loss_seconds": "loss alone, a batch", "step_seconds": "training step", "loss_peak_bytes": "memory of the "
             "loss", "peak_bytes": "peak memory, all", "train_seconds": "training, whole"}  # fmt: skip
    kinds = {name: label for name, label in kinds.items() if name in study.results.costs.columns}
    variants = study.variants_of(task)
    notes = [_COST_NOTE]
    columns = ["loss", *kinds.values()]
    lines = {variant: [Entry(variant.label), *_costs(study, task, variant, list(kinds))] for variant in variants}
    if any(entry.mark == BUSY_MARK for line in lines.values() for entry in line):
        notes.append(_BUSY_NOTE)
    shares = study.history(task, "train/clipped").groupby("cell")["value"].mean()
    clipped = {variant: _clipped(study, task, variant, shares) for variant in variants}
    if any(entry.text != NOTHING for entry in clipped.values()):
        columns.append("steps shortened")
        lines = {variant: [*line, clipped[variant]] for variant, line in lines.items()}
        notes.append(f"Steps shortened, over all epochs: {describe('clipped').definition}")
    if all(entry.text == NOTHING for line in lines.values() for entry in line[1:]):
        return None
    return Table("Cost", columns, by_supervision(lines), notes)


def _costs(study: Study, task: str, variant: Variant, kinds: list[str]) -> list[Entry]:
    group = study.group(task, variant)
    costs = study.results.costs.reindex(group.index[group["status"] == "done"]).reindex(columns=list(COSTS))
    medians, least = costs.median(), costs.min()
    share = medians["loss_seconds"] / medians["step_seconds"]
    entries = []
    for name in kinds:
        text = (size if name.endswith("bytes") else seconds)(float(medians[name]))
        details, mark = [], ""
        if f"{name}_min" in COSTS and medians[f"{name}_spread"] > 0:
            details.append(f"least {seconds(least[f'{name}_min'])}, spread {seconds(medians[f'{name}_spread'])}")
            late = costs[name] > UNSTEADY * costs[f"{name}_min"]
            wide = costs[f"{name}_spread"] > WIDE * costs[f"{name}_min"]
            mark = BUSY_MARK if (late | wide | (costs["busy"] > BUSY)).any() else ""
        if name == "loss_seconds" and math.isfinite(share):
            details.append(f"{share:.0%} of a step")
        entries.append(Entry(text, ", ".join(details), mark=mark))
    return entries


def _clipped(study: Study, task: str, variant: Variant, shares: pd.Series[float]) -> Entry:
    """Return the median share of shortened steps of the finished seeds; `shares` has that of each cell."""
    group = study.group(task, variant)
    done = shares.reindex(group.index[group["status"] == "done"])
    known = [share for share in done if math.isfinite(share)]
    metric = describe("clipped")
    return Entry(with_unit(number(median(known), 1, metric), metric) if known else NOTHING)


def group_anchor(study: Study, task: str, variant: Variant) -> str:
    """Return the id of the part of the page where the runs of a variant are listed.

    Args:
        study: the results.
        task: the label of the task.
        variant: the variant whose runs are listed.

    Returns:
        An id such as "runs-0-2": the index of the task and that of the variant, both from 0.
    """
    return f"runs-{study.tasks.index(task)}-{study.variants.index(variant)}"


def value_entry(
    study: Study, task: str, variant: Variant, sample: Sample, name: str = "", reasons: bool = False,
    strong: bool = False,
) -> Entry:  # fmt: skip
    """Return the mean of a sample with its spread, interval and number of seeds.

    Args:
        study: the results.
        task: the label of the task.
        variant: the variant that the sample is of; the text links to its runs.
        sample: the values by seed.
        name: the metric, without the split; the task's primary metric where it is "".
        reasons: whether the warning gives the reasons for missing seeds, not only their number.
        strong: whether the text is set in bold.

    Returns:
        The entry of a table, with a link to the runs; a dash where the sample is empty.
    """
    metric = describe(name or study.primary(task))
    anchor = group_anchor(study, task, variant)
    count = len(sample.by_seed)
    warning = lacking(sample, reasons)
    if not count:
        return Entry(NOTHING, "", warning, anchor=anchor)
    detail = f"n={count}"
    if count >= FEWEST_SEEDS:
        detail = f"{interval(sample.student, sample.mean, sample.spread, metric)} {detail}"
    elif count == 1:
        detail = f"{_over_items(study, task, variant, sample, name or study.primary(task))}{detail}"
    return Entry(measured(sample.mean, sample.spread, metric), detail, warning, "", strong, anchor)


def _over_items(study: Study, task: str, variant: Variant, sample: Sample, name: str) -> str:
    """Return the interval over test items of a sample of one seed; "" where its metric does not count items."""
    (value,) = sample.by_seed
    outcomes = study.outcomes(task, variant, name).get(int(sample.by_seed.index[0]))
    if outcomes is None or not math.isclose(outcomes.value, value, rel_tol=1e-5, abs_tol=1e-9):  # of another epoch
        return ""
    bounds = share_interval(outcomes)
    return "" if math.isnan(bounds[0]) else f"{interval(bounds, value, math.nan, describe(name))} over items, "


def lacking(sample: Sample, reasons: bool = True) -> str:
    """Return how many seeds have a value, and with `reasons` why the others have none; "" where none is missing."""
    count = len(sample.by_seed)
    if count == sample.planned:
        return ""
    # The main table gives the reasons; elsewhere the count is enough.
    return "; ".join([f"{count} of {counted(sample.planned, 'seed')}", *(sample.problems if reasons else ())])


def by_supervision(lines: dict[Variant, list[Entry]]) -> list[tuple[str, list[list[Entry]]]]:
    """Group lines by the supervision of their variant."""
    kinds = dict.fromkeys(variant.supervision for variant in lines)
    return [(kind_named(k), [line for variant, line in lines.items() if variant.supervision == k]) for k in kinds]


def kind_named(supervision: str) -> str:
    """Return the name of a kind of supervision, as the heading of a group of lines."""
    return SUPERVISIONS.get(supervision, f"{supervision} supervision")


def _main_notes(study: Study) -> list[str]:
    notes = [_LEGEND]
    for task in study.tasks:
        notes += filter(None, (why_replaced(study, task), chance_note(study, task)))
    if any(groups_of(study, t, v, study.primary(t)) for t in study.tasks for v in study.variants_of(t)):
        notes.append(RULE)
    if corrected := [f"{task}: 1/n + {study.overlap(task):.3g}" for task in study.tasks if study.overlap(task)]:
        notes.append(
            "Intervals of means are corrected where seeds split the same data (Nadeau and Bengio, 2003), with more "
            f"than 1/n: {'; '.join(corrected)}. They are wider than Student's, and not cut off at 0 or 100 %."
        )
    for task in study.tasks:
        if study.rule(task) == "validation":
            chosen = "at the epoch with the smallest validation set error, the latest of equals"
        elif study.results.selection == "validation":
            chosen = "at the last epoch, since not every finished cell has a validation set error to choose by"
        else:
            chosen = "at the last epoch"
        few = study.candidates(task) if study.rule(task) != "last" else ""
        notes.append(f"{task}: {chosen}. {few}".strip())
    if any(
        len(study.sample(task, variant).by_seed) == 1 for task in study.tasks for variant in study.variants_of(task)
    ):
        notes.append(
            "One seed (n=1): no interval over seeds and no verdict; a bold number is merely the best one observed. An "
            "interval over items is Wilson's 95 % interval of a share of test bags or images, for this one network."
        )
    if any(study.results.params.get(str(cell), {}).get("recipe.precision") == "tf32" for cell in study.cells.index):
        notes.append(_TF32)
    if alike := _parameters_in_no_name(study):
        notes.append(f"Parameters that all cells of a loss have in common, and that its name leaves out: {alike}.")
    return notes


def _parameters_in_no_name(study: Study) -> str:
    by_loss: dict[str, dict[str, set[str]]] = {}
    for cell, loss in study.cells["loss"].items():
        for name, value in study.results.params.get(str(cell), {}).items():
            if name.startswith("loss."):
                text = "none" if value is None else str(value)
                by_loss.setdefault(str(loss), {}).setdefault(name.removeprefix("loss."), set()).add(text)
    alike = {
        loss: ", ".join(f"{name}={next(iter(values))}" for name, values in found.items() if len(values) == 1)
        for loss, found in by_loss.items()
    }
    return "; ".join(f"{loss} {text}" for loss, text in alike.items() if text)
