"""The tables of a report, independent of the format (HTML, Markdown, LaTeX) in which they are written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median

import pandas as pd

from milbench.api.metric_info import describe
from milbench.api.published import Rule
from milbench.api.results import COSTS
from milbench.api.supervision import SUPERVISIONS
from milbench.report.formatting import (
    NOTHING,
    counted,
    decimals,
    interval,
    measured,
    number,
    p_value,
    seconds,
    size,
    with_unit,
)
from milbench.report.statistics import FEWEST_SEEDS, RULES, Verdict, smallest_p
from milbench.report.study import Sample, Study, Variant

MARKS: dict[Verdict, str] = {"best": "", "tied": "≈", "worse": "", "better": "‡", "unclear": "?"}
_VERDICTS: dict[Verdict, str] = {
    "best": "best mean",
    "tied": "tied with the best",
    "worse": "worse",
    "better": "better on the common seeds",
    "unclear": "too few common seeds",
}


_LEGEND = (
    "Mean ± standard deviation over seeds [bootstrap 95 % interval of the mean] n = finished seeds, on test bags. "
    "Bold: best mean under the same supervision. ≈: tied, cannot be distinguished from the best. ?: fewer than "
    f"{FEWEST_SEEDS} common seeds, too few to compare. ‡: better than the best mean on the common seeds."
)
_FEW_SEEDS = (
    "With few seeds a bootstrap interval is too narrow: the nominal 95 % interval of normal values covers the mean "
    "about 75 % of the time with 3 seeds, 84 % with 5, 90 % with 10. Ties are therefore decided by Student's interval "
    "of the paired differences, below."
)
_TF32 = (
    "precision=tf32: in training, the GPU multiplies float32 numbers in the network of which it reads the first 11 "
    "significant bits (NVIDIA's TensorFloat-32); losses, optimisers and evaluation compute without it."
)

_VERDICT_NOTE = (
    "Verdict: worse (or better) where Student's 95 % interval, widened for the number of comparisons under the same "
    "supervision (Bonferroni), lies wholly on that side of zero, and otherwise tied; at least "
    f"{FEWEST_SEEDS} common seeds are needed. Wilcoxon's signed-rank p, corrected by Holm over the same comparisons, "
    "is given beside it. The best is chosen on these same seeds, so that its mean is slightly optimistic."
)

BUSY, UNSTEADY = 0.2, 1.5
"""From which share of the cores in other hands, and which median relative to the least, durations are marked."""
BUSY_MARK = "†"
_COST_NOTE = (
    "Medians over the finished seeds. Loss alone: forward and backward of one training batch, without the network. "
    "Least: of all calls (loss alone) or of the means of all epochs (training step). Spread: the width of the middle "
    "half of those of one seed."
)
_BUSY_NOTE = (
    f"{BUSY_MARK}: the machine was busy. For a seed or more, other processes (other cells among them) used more than "
    f"{BUSY:.0%} of its cores meanwhile, or the median is more than {UNSTEADY:g} times the least. Compare the least, "
    "or measure again with --jobs 1."
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
    """

    title: str
    columns: list[str]
    groups: list[tuple[str, list[list[Entry]]]]
    notes: list[str] = field(default_factory=list)

    @property
    def titled(self) -> bool:
        """Whether the names of the groups are shown: not where set supervision is the only one."""
        return len(self.groups) > 1 or any(name not in ("", SUPERVISIONS["set"]) for name, _ in self.groups)


def main_table(study: Study) -> Table:
    """Return the primary metric on test bags under the rule of the comparison: variants down, tasks across."""
    rankings = {(task, kind): study.ranking(task, kind) for task in study.tasks for kind in study.supervisions_of(task)}

    def entry(task: str, variant: Variant) -> Entry:
        if not len(study.group(task, variant)):
            return Entry("not planned")
        sample = study.sample(task, variant)
        verdict = rankings[task, variant.supervision].verdicts.get(variant, "worse")
        return value_entry(study, task, variant, sample, reasons=True, mark=MARKS[verdict], strong=verdict == "best")

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
    notes = [
        "Best on test chooses the epoch by the test bags. It is the paper's rule, and it is optimistic for every loss. "
        "Comparisons here go by the " + RULES[study.rule(task)].replace("chosen", "epoch chosen") + "."
    ]
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


def paired_table(study: Study, task: str) -> Table | None:
    """Compare every variant with the best of its supervision, seed by seed; None where there is nothing to compare."""
    metric = study.metric(task)
    lines: dict[Variant, list[Entry]] = {}
    seeds: set[int] = set()
    for supervision in study.supervisions_of(task):
        ranking = study.ranking(task, supervision)
        best = ranking.best.label if ranking.best else ""
        for variant, paired in ranking.paired.items():
            spread = study.sample(task, variant).spread
            digits = decimals(paired.difference, spread, metric)
            bounds = [
                interval(pair, paired.difference, spread, metric, True) for pair in (paired.bootstrap, paired.student)
            ]
            difference = number(paired.difference, digits, metric, signed=True)
            verdict = ranking.verdicts[variant]
            lines[variant] = [
                Entry(f"{variant.label} − {best}"),
                *(Entry(text) for text in (str(paired.seeds), difference, *bounds, p_value(paired.p))),
                Entry(p_value(paired.p_holm)),
                Entry(_VERDICTS[verdict], mark=MARKS[verdict]),
            ]
            seeds.add(paired.seeds)
    if not lines:
        return None
    unit = " (points)" if metric.percent else ""
    columns = ["difference", "common seeds", f"mean{unit}", "bootstrap 95 %", "Student 95 %, widened"]
    columns += ["Wilcoxon p", "after Holm", "verdict"]
    return Table(
        "Each loss against the best, paired by seed", columns, by_supervision(lines), _paired_notes(sorted(seeds))
    )


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
            unsteady = (costs[name] > UNSTEADY * costs[f"{name}_min"]).any()
            mark = BUSY_MARK if unsteady or (costs["busy"] > BUSY).any() else ""
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


def findings(study: Study) -> list[tuple[str, str]]:
    """Return the result for each task and kind of supervision in one sentence.

    Returns:
        Pairs of a heading, the task with the kind of supervision where there are several, and the sentence: the best
        variant, those that cannot be distinguished from it, and those that are worse.
    """
    sentences = []
    for task in study.tasks:
        for supervision in study.supervisions_of(task):
            where = task if len(study.supervisions_of(task)) == 1 else f"{task}, {supervision} supervision"
            sentences.append((where, _finding(study, task, supervision)))
    return sentences


def _finding(study: Study, task: str, supervision: str) -> str:
    ranking = study.ranking(task, supervision)
    if ranking.best is None:
        return "no cell is done, so there is nothing to compare."
    sample = study.sample(task, ranking.best)
    metric = study.metric(task)
    best = "lowest" if metric.lower_is_better else "highest"
    value = with_unit(measured(sample.mean, sample.spread, metric), metric)
    parts = [f"{best} {metric.label}: {ranking.best.label} ({value}, {counted(len(sample.by_seed), 'seed')})"]
    words: dict[Verdict, str] = {
        "tied": "cannot be distinguished from it",
        "unclear": "too few common seeds to compare with it",
        "worse": "worse",
        "better": "better on the common seeds",
    }
    for verdict, word in words.items():
        names = [variant.label for variant in ranking.paired if ranking.verdicts[variant] == verdict]
        if names:
            parts.append(f"{word}: {', '.join(names)}")
    lost = [variant.label for variant in study.variants_of(task, supervision) if variant not in ranking.verdicts]
    if lost:
        parts.append(f"no result: {', '.join(lost)}")
    return "; ".join(parts) + "."


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
    study: Study, task: str, variant: Variant, sample: Sample, name: str = "", reasons: bool = False, mark: str = "",
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
        mark: a sign behind the text.
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
    if count > 1:
        detail = f"{interval(sample.bootstrap, sample.mean, sample.spread, metric)} {detail}"
    return Entry(measured(sample.mean, sample.spread, metric), detail, warning, mark, strong, anchor)


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
    return [
        (
            SUPERVISIONS.get(kind, f"{kind} supervision"),
            [line for variant, line in lines.items() if variant.supervision == kind],
        )
        for kind in kinds
    ]


def _main_notes(study: Study) -> list[str]:
    notes = [_LEGEND, _FEW_SEEDS]
    for task in study.tasks:
        if study.validated(task):
            best = f"the best validation {study.metric(task).label}"
            chosen = f"at the epoch with {best} (the first of equals; the last epoch where all are equal)"
        else:
            chosen = "at the last epoch, since not every finished cell has a validation metric to choose by"
        notes.append(f"{task}: {chosen}. {study.candidates(task)}".strip())
    if any(
        len(study.sample(task, variant).by_seed) == 1 for task in study.tasks for variant in study.variants_of(task)
    ):
        notes.append("One seed (n=1): no interval and no test; a bold number is merely the best one observed.")
    if any(study.results.params.get(str(cell), {}).get("recipe.precision") == "tf32" for cell in study.cells.index):
        notes.append(_TF32)
    return notes


def _paired_notes(seeds: list[int]) -> list[str]:
    notes = []
    for count in seeds:
        if count < 2:
            notes.append(f"{('No', 'One')[count]} common seed: no interval and no test.")
        else:
            least = p_value(smallest_p(count))
            notes.append(f"{count} seeds cannot reach below p = {least} (two-sided exact Wilcoxon), however large the "
                         "difference.")  # fmt: skip
    return [*notes, _VERDICT_NOTE]
