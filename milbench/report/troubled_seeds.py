"""What a mean over seeds hides: seeds that gave no result, and seeds with which a loss has learnt next to nothing."""

from __future__ import annotations

from milbench.api.metric_info import describe
from milbench.report.formatting import counted, number, with_unit
from milbench.report.study import Study, Variant
from milbench.report.tables import lacking

LEFT_OUT = (
    "Seeds without a result are left out of all differences of their loss, also where its training diverged: what is "
    "said of such a loss holds for the seeds with which it trains, and flatters it."
)


def left_out(study: Study, task: str, variants: list[Variant], name: str) -> list[str]:
    """Return the losses that lack the results of some seeds in a metric, each with their number and the reasons.

    Args:
        study: the cells of a comparison and their results.
        task: the label of the task.
        variants: the losses to look at.
        name: of the metric.
    """
    samples = {variant.label: study.sample(task, variant, name) for variant in variants}
    return [f"{label} ({lacking(found)})" for label, found in samples.items() if found.problems and len(found.by_seed)]


def stuck(study: Study, task: str, variants: list[Variant], best: Variant, name: str) -> str:
    """Return in words which losses have seeds that ended nearer to guessing than to the best mean; "" for none.

    A loss that fails to leave its plateau with some seeds has two groups of values, which a mean with a standard
    deviation does not show.

    Args:
        study: the results.
        task: the label of the task.
        variants: the losses that are looked at.
        best: the one with the best mean.
        name: the metric; guessing is known for the primary one alone.
    """
    chance = study.chance(task) if name == study.primary(task) else None
    metric, ideal = describe(name), study.sample(task, best, name).mean
    if chance is None or (chance > ideal) != metric.lower_is_better:
        return ""  # guessing is no worse than the best loss: there is nothing to be stuck at
    counts = []
    for variant in variants:
        values = study.sample(task, variant, name).by_seed
        near = int(((values - chance).abs() < (values - ideal).abs()).sum())
        if near:
            counts.append(f"{variant.label} ({near} of {counted(len(values), 'seed')})")
    guess = with_unit(number(chance, 1 if metric.percent else 3, metric), metric)
    return f"nearer to guessing ({guess}) than to the best mean: {', '.join(counts)}" if counts else ""
