"""The critical-difference diagram: how losses rank over tasks."""

from __future__ import annotations

from importlib.util import find_spec

import pandas as pd
from matplotlib.figure import Figure

from milbench._utils.palette import INK
from milbench.report.figures.figure_data import ranks_facts
from milbench.report.figures.report_figure import ReportFigure
from milbench.report.figures.style import WIDTH, literal, styled
from milbench.report.formatting import p_value
from milbench.report.statistics.ranks import FEWEST_LOSSES, FEWEST_TASKS, Ranks, rank_losses
from milbench.report.study import Study, Variant

ALL_TASKS = ""
"""The task of a picture that is of all tasks."""


def draw_ranks(study: Study) -> tuple[list[ReportFigure], list[str]]:
    """Return a diagram for every kind of supervision, and a sentence for each that has none; neither for one task."""
    pictures: list[ReportFigure] = []
    reasons: list[str] = []
    for kind in dict.fromkeys(variant.supervision for variant in study.variants) if len(study.tasks) > 1 else ():
        variants = [variant for variant in study.variants if variant.supervision == kind]
        if reason := _why_not(study, variants):
            reasons.append(f"No ranks over tasks ({kind} supervision): {reason}.")
        else:
            pictures.append(_picture(rank_losses(_values(study, variants)), kind))
    return pictures, reasons


def _why_not(study: Study, variants: list[Variant]) -> str:
    """Return why losses are not ranked over tasks, "" where they are."""
    blocks = len({study.data(task) for task in study.tasks})
    if blocks < FEWEST_TASKS:
        same = "" if blocks == len(study.tasks) else f" of {blocks} different data"
        return f"{len(study.tasks)} tasks{same}, Friedman's test needs {FEWEST_TASKS} of different data"
    if len(variants) < FEWEST_LOSSES:
        return f"fewer than {FEWEST_LOSSES} losses"
    for variant in variants:
        for task in study.tasks:
            if not len(study.sample(task, variant).by_seed):
                return f"{variant.label} has no result on {task}"
    if find_spec("scikit_posthocs") is None:
        return "scikit-posthocs is not installed, pip install milbench[ranks] adds it"
    return ""


def _values(study: Study, variants: list[Variant]) -> pd.DataFrame:
    """Return a line a block and a column a loss, such that smaller is better: the mean ranks on the block's tasks.

    Tasks on the same data, such as several numbers of digits on the same digits, are one block: they rank losses alike
    for reasons of their data, and are no independent evidence. The rank on a task is that of the mean over seeds.
    """
    means = {task: {variant.label: study.sample(task, variant).mean for variant in variants} for task in study.tasks}
    signs = pd.Series({task: 1 if study.metric(task).lower_is_better else -1 for task in study.tasks})
    ranks = pd.DataFrame.from_dict(means, orient="index").mul(signs, axis=0).rank(axis=1)
    return ranks.groupby([study.data(task) for task in ranks.index], sort=False).mean()


def _picture(ranks: Ranks, kind: str) -> ReportFigure:
    caption = (
        "Mean ranks by the primary metric, 1 is the best, with the means over seeds. A block is a task, or the mean "
        f"over the tasks on the same data; there are {ranks.blocks}. Friedman's test of equal ranks: p = "
        f"{p_value(ranks.p)}. Bars join losses that Nemenyi's test does not tell apart at the 5 % level, mean ranks "
        f"that differ by less than {ranks.critical:.2f}: unresolved."
    ).replace("= <", "<")
    with styled():
        figure = _diagram(ranks)
        title = f"Ranks over tasks, {kind} supervision"
        return ReportFigure(
            f"ranks-{kind}", f"ranks-{kind}", ALL_TASKS, title, caption, figure, ranks_facts(ranks.mean)
        )


def _diagram(ranks: Ranks) -> Figure:
    import scikit_posthocs

    figure = Figure(figsize=(WIDTH, 1.4 + 0.24 * len(ranks.mean)), layout="constrained")
    axes = figure.subplots()
    axes.grid(visible=False)
    names = {label: literal(str(label)) for label in ranks.mean.index}
    scikit_posthocs.critical_difference_diagram(
        ranks.mean.rename(index=names), ranks.pairs.rename(index=names, columns=names), ax=axes,
        crossbar_props={"color": INK}, elbow_props={"color": INK},
    )  # fmt: skip
    return figure
