"""What changed between two comparisons in words: a table, a sentence, and files in HTML, Markdown and CSV."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path

from milbench.errors import UsageError
from milbench.report.changes import Changes, Row, step_seconds
from milbench.report.formatting import NOTHING, seconds, three_digits
from milbench.report.matching import Place
from milbench.report.pairs import in_figures
from milbench.report.study import seeds_named
from milbench.report.tables import Entry, Table, value_entry
from milbench.report.templating import environment
from milbench.report.troubled_seeds import LEFT_OUT, left_out
from milbench.report.verdicts import NOT_RANKED, margin_text, seeds_needed_words, verdict_words, why_no_interval

FILES = ("compare.csv", "compare.md", "index.html")
"""The files of `write_changes`, in the order in which they are written."""
HEADS = ["loss", "A", "B", "B − A", "95 % interval", "B beside A", "paired by", "what differs", "step, B / A"]
_ORDER = ("worse", "no result", "better", "equivalent", "unresolved", "not ranked", "the same runs")
_HOW = (
    "B − A is the difference of the means over the seeds that both have; where A and B are unpaired, over all seeds. "
    "Better or worse: its interval lies on one side of zero. Unresolved: B may be better or worse than A. All rows are "
    "one family, but those of the same runs: their intervals hold together with 95 % probability, over training seeds "
    "and draws of the test bags, taken as independent."
)
_PAIRED = (
    "Paired by seed and test bag: both were tested on the same bags. Paired by seed: their data are the same, but "
    "outcomes of test bags were not kept, or the metric is no mean over bags; the interval covers seeds alone. "
    "Unpaired: their bags differ, or fewer than three seeds are common; the interval is Welch's, and covers the draw "
    "of the test bags where outcomes were kept."
)
_STEPS = (
    "Step, B / A: the ratio of the median durations of a training step. It is not judged, since other processes, "
    "devices and libraries change it as well. Spread: the width of the middle half of the epochs of a seed."
)


def changes_table(changes: Changes) -> Table:
    """Return a line a loss, below its task and metric, and then what is in A or B alone."""
    groups: dict[str, list[list[Entry]]] = {}
    for row in changes.rows:
        groups.setdefault(f"{row.b.task}: {row.metric.heading}", []).append(_entries(row))
    for side, places in (("A", changes.only_a), ("B", changes.only_b)):
        if places:
            nothing = [Entry(NOTHING)] * (len(HEADS) - 1)
            groups[f"only in {side}"] = [[Entry(place.label), *nothing] for place in places]
    title = f"What changed from {changes.names[0]} to {changes.names[1]}"
    return Table(title, HEADS, list(groups.items()), _notes(changes))


def verdict_text(row: Row) -> str:
    """Return what B is beside A, such as "worse" or "equivalent within 1 point"."""
    if row.found is None or row.difference is None:
        return row.verdict
    return verdict_words(row.found, *row.keys, row.metric)


def changes_sentence(changes: Changes) -> str:
    """Return what changed in one sentence."""
    groups: dict[str, list[str]] = {}
    for row in changes.rows:
        groups.setdefault(verdict_text(row), []).append(_shown(row))
    ordered = sorted(groups, key=lambda verdict: next(k for k, word in enumerate(_ORDER) if verdict.startswith(word)))
    parts = [f"{verdict}: {', '.join(groups[verdict])}" for verdict in ordered]
    for side, places in (("A", changes.only_a), ("B", changes.only_b)):
        if places:
            parts.append(f"only in {side}: {', '.join(place.label for place in places)}")
    if failing := [f"{row.b.label} ({seeds_named(row.failed_seeds)})" for row in changes.rows if row.failed_seeds]:
        parts.append(f"failed in B with seeds that A has: {', '.join(failing)}")
    return f"{changes.names[1]} (B) beside {changes.names[0]} (A): {'; '.join(parts)}."


def _shown(row: Row) -> str:
    """Return the name of a row with the difference, as far as it has one."""
    if row.difference is None:
        return row.b.label
    mean, bounds = in_figures(row.difference, row.metric)
    unit = " points" if row.metric.percent else ""
    why = why_no_interval(row.difference)
    return f"{row.b.label} ({mean}{unit}; {why})" if why else f"{row.b.label} ({mean} {bounds}{unit})"


def _entries(row: Row) -> list[Entry]:
    mean, bounds, why, needed = NOTHING, NOTHING, "", ""
    if row.difference is not None:
        mean, bounds = in_figures(row.difference, row.metric)
        why = why_no_interval(row.difference)
        needed = seeds_needed_words(row.difference) if verdict_text(row) == "unresolved" else ""
    lost = row.is_lost or row.failed_seeds
    tone = "bad" if lost else {"better": "good", "worse": "bad"}.get(row.verdict, "")
    details = [why or (f"{needed} to resolve it" if needed else "")]
    if row.failed_seeds and not row.is_lost:
        details.append(f"{seeds_named(row.failed_seeds)} failed in B")
    return [
        Entry(row.b.variant.label, _other_name(row)),
        _value(row.a, row.name),
        _value(row.b, row.name),
        Entry(mean),
        Entry(bounds),
        Entry(verdict_text(row), "; ".join(filter(None, details)), strong=bool(tone), tone=tone),
        Entry(row.pairing if row.differs else NOTHING),
        Entry("; ".join(row.differs) or "nothing"),
        _steps(row),
    ]


def _other_name(row: Row) -> str:
    """Return how a loss is called in A, where that is another name."""
    return "" if row.a.label == row.b.label else f"in A: {row.a.label}"


def _value(place: Place, name: str) -> Entry:
    entry = value_entry(place.study, place.task, place.variant, place.sample(name), name, reasons=True)
    return replace(entry, anchor="")  # this page has no table of runs


def _steps(row: Row) -> Entry:
    (a, spread_a), (b, spread_b) = step_seconds(row.a), step_seconds(row.b)
    if not (math.isfinite(a) and math.isfinite(b)) or a <= 0:
        return Entry(NOTHING)
    shown = [
        f"{seconds(value)}{f' (spread {seconds(spread)})' if math.isfinite(spread) else ''}"
        for value, spread in ((a, spread_a), (b, spread_b))
    ]
    return Entry(three_digits(b / a), " → ".join(shown))


def _notes(changes: Changes) -> list[str]:
    notes = [_HOW, _PAIRED]
    rows = [row for row in changes.rows if row.found]
    margins = dict.fromkeys(text for row in rows if row.found and (text := margin_text(row.found, row.metric)))
    if margins:
        notes.append(f"Equivalent within {' or '.join(margins)}: the interval lies within that margin.")
    if any(verdict_text(row) == NOT_RANKED for row in rows):
        notes.append(f"{NOT_RANKED.capitalize()}.")
    overlaps = {
        f"{place.task}: 1/n + {overlap:.3g}": None
        for row in rows
        for place in (row.a, row.b)
        if (overlap := place.study.overlap(place.task))
    }
    if overlaps:
        notes.append(f"Corrected for the data that splits share (Nadeau and Bengio, 2003): {'; '.join(overlaps)}.")
    if any(left_out(place.study, place.task, [place.variant], row.name) for row in rows for place in (row.a, row.b)):
        notes.append(LEFT_OUT)
    return [*notes, _STEPS, *changes.notes]


def write_changes(changes: Changes, out: Path) -> Path:
    """Write index.html (one self-contained page), compare.md and compare.csv, and return the page.

    Args:
        changes: what changed.
        out: the folder, created where it does not exist. Each file is complete before it takes its place.

    Raises:
        UsageError: `out` cannot be written.
    """
    context = {"changes": changes, "table": changes_table(changes), "sentence": changes_sentence(changes)}
    html, text = environment(autoescape=True), environment(autoescape=False)
    content = {
        "compare.csv": changes.frame.to_csv(index=False),
        "compare.md": text.get_template("changes.md.j2").render(context),
        "index.html": html.get_template("changes.html.j2").render(context),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=out) as draft:
            for name in FILES:
                (Path(draft) / name).write_text(content[name], "utf-8")
            for name in FILES:
                (Path(draft) / name).replace(out / name)
    except OSError as error:
        raise UsageError(f"cannot write into --out {out}: {error.strerror or error}") from None
    return out / "index.html"
