"""What a report says where nearly all label sets are wrong, and set errors tell nothing apart."""

from __future__ import annotations

from milbench.api.metric_info import describe
from milbench.report.formatting import measured, with_unit
from milbench.report.study import LABELS, SETS, Study, Variant


def wrong_sets(study: Study, task: str, variants: list[Variant], name: str) -> str:
    """Return in words which losses have nearly all label sets wrong, as far as it matters to a metric; "" for none.

    Args:
        study: the results.
        task: the label of the task.
        variants: the losses that are looked at.
        name: the metric: the set error, or the label error that leads in its place.
    """
    wrong = [variant for variant in variants if variant in study.nearly_all_wrong(task)]
    if name == study.primary(task) and study.is_replaced(task):
        return f"set errors rank nothing here: with every loss nearly all label sets are wrong, {at_least(study, task)}"
    if name != SETS or not wrong:
        return ""
    instead = next((label for label in LABELS if label in study.metrics(task)), None)
    of = [f"{v.label} ({of_labels(study, task, v, instead)})" if instead else v.label for v in wrong]
    among = "; set errors do not rank these" if len(wrong) > 1 else ""
    return f"nearly all label sets are wrong, {at_least(study, task)}, with {', '.join(of)}{among}"


def at_least(study: Study, task: str) -> str:
    """Return from which set error on nearly all label sets count as wrong."""
    return f"{100 * study.nearly_all(task):g} % or more"


def of_labels(study: Study, task: str, variant: Variant, name: str) -> str:
    """Return the label error of a variant with its name, by the metric of this name.

    Args:
        study: the cells of a comparison and their results.
        task: the label of the task.
        variant: the loss.
        name: of the metric.
    """
    sample, metric = study.sample(task, variant, name), describe(name)
    return f"{metric.label} {with_unit(measured(sample.mean, sample.spread, metric), metric)}"


def beside_the_mean(study: Study, task: str, variant: Variant, name: str) -> str:
    """Return what stands beside the mean set error of a variant with nearly all label sets wrong, else "".

    Args:
        study: the cells of a comparison and their results.
        task: the label of the task.
        variant: the loss.
        name: of the metric that the mean is of.
    """
    if name != SETS or variant not in study.nearly_all_wrong(task):
        return ""
    instead = next((label for label in LABELS if label in study.metrics(task)), None)
    of = f"; {of_labels(study, task, variant, instead)}" if instead else ""
    return f"nearly all label sets are wrong{of}"


def why_replaced(study: Study, task: str) -> str:
    """Return in sentences why the label error leads on a task in place of the set error; "" where it does not."""
    if not study.is_replaced(task):
        return ""
    name = study.primary(task)
    text = (
        f"{task}: with every loss nearly all label sets are wrong (a set error of {at_least(study, task)}), so that "
        f"set errors rank nothing; {describe(name).label} leads in their place."
    )
    if name == LABELS[-1]:
        text += " Its threshold is that of the set error, which is arbitrary there: read it with caution."
    return text
