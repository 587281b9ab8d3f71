"""The matrix of tests and losses as a figure: a field is a verdict, a sign and the distance from the mark."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from milbench._utils.palette import BAD_SOFT, GOOD_SOFT, INK, MUTED, PAPER, WARN_SOFT
from milbench.report.figures.figure_data import marks_facts
from milbench.report.figures.report_figure import ReportFigure
from milbench.report.figures.style import literal, styled, wrapped
from milbench.report.formatting import slug
from milbench.report.marks import SIGNS, MarkResult, MarkVerdict, StatedTest, by_metric, distance_text, judged, tests_of
from milbench.report.study import Study

_FILLS: dict[MarkVerdict, str] = {"pass": GOOD_SOFT, "fail": BAD_SOFT, "unresolved": WARN_SOFT, "no value": PAPER}
_FIELD, _HEADINGS = 0.62, 2.3
"""Inches: the width of a field, and of the names of the tests."""
_CAPTION = (
    "A field says whether a loss reaches the mark of a test (✓ pass, ✗ fail, ? unresolved, – no value) and, below the "
    "sign, how far its mean over seeds is from the mark; minus: on the passing side. The table below has the same with "
    "intervals."
)


def draw_matrices(study: Study) -> list[ReportFigure]:
    """Return a figure for each metric that has marks."""
    pictures = []
    for name, tests in by_metric(tests_of(study)).items():
        title = f"Which tests each loss passes, by the {tests[0].metric.label}"
        with styled():
            figure, counts = _figure(study, tests)
            caption, facts = f"{_CAPTION} {counts}", marks_facts(study, tests, counts)
            pictures.append(ReportFigure(f"marks-{slug(name)}", f"marks-{name}", "", title, caption, figure, facts))
    return pictures


def _figure(study: Study, tests: list[StatedTest]) -> tuple[Figure, str]:
    """Return the figure, and in words how many tests each loss passes."""
    variants = [v for v in study.variants if any(len(study.group(test.task, v)) for test in tests)]
    height, longest = 0.42 * len(tests), max(len(v.label) for v in variants)
    figure = Figure(figsize=(_HEADINGS + _FIELD * len(variants), height + 0.4 + 0.07 * min(longest, 24)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    passed = dict.fromkeys(variants, 0)
    for y, test in enumerate(tests):
        for x, variant in enumerate(variants):
            found = judged(study, test, variant)
            if found is not None:
                passed[variant] += found.verdict == "pass"
                _field(axes, x, y, found, test)
    axes.set_xlim(-0.5, len(variants) - 0.5)
    axes.set_ylim(len(tests) - 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(variants)), [literal(wrapped(v.label, 24)) for v in variants], rotation=90, color=INK)
    axes.set_yticks(range(len(tests)), [literal(wrapped(test.heading, 34)) for test in tests], color=INK)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
    counts = ", ".join(f"{variant.label} {count}" for variant, count in passed.items())
    return figure, f"Passed of {len(tests)}: {counts}."


def _field(axes: Axes, x: int, y: int, found: MarkResult, test: StatedTest) -> None:
    axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=_FILLS[found.verdict], edgecolor="none"))
    distance = distance_text(found, test.metric, with_interval=False)
    axes.text(x, y - 0.02, SIGNS[found.verdict], ha="center", va="bottom", fontsize=9.5, fontweight="bold", color=INK)
    axes.text(x, y + 0.04, distance, ha="center", va="top", fontsize=8, color=MUTED)
