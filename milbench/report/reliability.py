"""The bins of forecasts of each variant, pooled over its seeds."""

from __future__ import annotations

from collections.abc import Sequence

from milbench.api.reliability import Bin, load_reliability
from milbench.errors import UsageError
from milbench.report.study import Study, Variant


def pooled_bins(study: Study, task: str, variant: Variant) -> dict[str, list[Bin]]:
    """Return the bins behind each calibration error after the last epoch, over all finished seeds that kept them.

    A file that cannot be read is named among the problems of the study.

    Args:
        study: the results.
        task: the label of the task.
        variant: the variant.

    Returns:
        The bins by the name of the metric, such as "presence_ece", in ascending order; empty where no seed kept any.
    """
    parts: dict[str, list[Bin]] = {}
    group = study.group(task, variant)
    for cell in map(str, group.index[group["status"] == "done"]):
        if cell in study.results.reliability:
            try:
                curves = load_reliability(study.results.reliability[cell])
            except UsageError as error:
                if f"{error}." not in study.problems:
                    study.problems.append(f"{error}.")
                continue
            for name, bins in curves.items():
                parts.setdefault(name, []).extend(bins)
    return {name: pooled(bins) for name, bins in parts.items()}


def pooled(bins: Sequence[Bin]) -> list[Bin]:
    """Return bins of several networks as one a place: their counts added, their means weighted by counts.

    Examples:
        >>> pooled([Bin(2, 1, 0.5, 1.0), Bin(0, 4, 0.1, 0.0), Bin(2, 3, 0.7, 0.0)])[1]
        Bin(index=2, count=4, probability=0.65, frequency=0.25)
    """
    found = []
    for index in sorted({one.index for one in bins}):
        part = [one for one in bins if one.index == index]
        count = sum(one.count for one in part)
        probability, frequency = (
            min(1.0, sum(one.count * value for one, value in zip(part, values, strict=True)) / count)
            for values in ([one.probability for one in part], [one.frequency for one in part])
        )
        found.append(Bin(index, count, round(probability, 12), frequency))
    return found
