"""What two comparisons have in common: the same loss on the same task, and what differs between the two."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from milbench.api.outcomes import Outcomes
from milbench.api.results import Results
from milbench.report.provenance import ENVIRONMENT_TAGS
from milbench.report.study import Sample, Study, Variant


@dataclass(frozen=True, eq=False)
class Place:
    """A loss on a task in one of two comparisons.

    Args:
        study: the comparison.
        task: the label of the task there.
        variant: the loss with its parameters and recipe there.
    """

    study: Study
    task: str
    variant: Variant

    @property
    def label(self) -> str:
        """The name of the loss, on its task."""
        return f"{self.variant.label} on {self.task}"

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The planned cells, indexed by seed, with their content hashes in the column `cell`."""
        group = self.study.group(self.task, self.variant)
        return group.rename_axis("cell").reset_index().set_index("seed")

    @cached_property
    def params(self) -> dict[str, str]:
        """All parameters but the seed, as text."""
        found = self.study.results.params.get(str(self.cells["cell"].iloc[0]), {})
        return {name: repr(value) for name, value in found.items() if name != "seed"}

    @property
    def data(self) -> set[str]:
        """The digests of the data."""
        return set(self.cells["data_digest"].astype(str))

    def sample(self, metric: str) -> Sample:
        """Return the values of a metric by seed."""
        return self.study.sample(self.task, self.variant, metric)

    def outcomes(self, metric: str) -> dict[int, Outcomes]:
        """Return the outcomes of the test bags by seed, as far as they were kept."""
        return self.study.outcomes(self.task, self.variant, metric)

    def run(self, seed: int) -> str:
        """Return the id of the run of a seed in the store where it was made."""
        cell, run = str(self.cells["cell"][seed]), str(self.cells["run_id"][seed])
        return self.study.results.provenance.get(cell, {}).get("origin_run") or run


def match(a: Study, b: Study) -> tuple[list[tuple[Place, Place]], list[Place], list[Place]]:
    """Match the losses on tasks of two comparisons: those with all parameters alike, then those of the same names.

    The names are those of reports, with the parameters in which the losses, tasks or recipes of a comparison differ. A
    loss whose settings were changed, or searched again, is thus the same loss.

    Returns:
        What is in both, in the order of A, what is in A alone, and what is in B alone.
    """
    of_a, of_b = _places(a), _places(b)
    by_params = _pairs(of_a, of_b, lambda place: tuple(sorted(place.params.items())))
    left_a = [place for place in of_a if place not in by_params]
    left_b = [place for place in of_b if place not in by_params.values()]
    by_name = _pairs(left_a, left_b, lambda place: (place.task, place.variant.loss, place.variant.recipe))
    matched = by_params | by_name
    return (
        [(place, matched[place]) for place in of_a if place in matched],
        [place for place in left_a if place not in by_name],
        [place for place in left_b if place not in by_name.values()],
    )


def _places(study: Study) -> list[Place]:
    return [Place(study, task, variant) for task in study.tasks for variant in study.variants_of(task)]


def _pairs(of_a: list[Place], of_b: list[Place], key: Callable[[Place], Hashable]) -> dict[Place, Place]:
    """Return the places of A with those of B that have the same key, each once."""
    waiting: dict[Hashable, list[Place]] = {}
    for place in reversed(of_b):
        waiting.setdefault(key(place), []).append(place)
    return {place: found.pop() for place in of_a if (found := waiting.get(key(place)))}


def what_differs(a: Place, b: Place, metric: str) -> tuple[str, ...]:
    """Return what differs between A and B; nothing where their common seeds have the results of the same runs.

    Args:
        a: the results of one side.
        b: those of the other.
        metric: by which seeds are found that both have.
    """
    names = {**a.params, **b.params}
    params = {name: (a.params.get(name, "absent"), b.params.get(name, "absent")) for name in names}
    found = [f"{name} {one} → {other}" for name, (one, other) in params.items() if one != other]
    if a.data != b.data:
        found.append("data")
    if found:
        return tuple(found)
    seeds = common_seeds(a, b, metric)
    if not seeds:
        return ("seeds",)
    if any(str(a.cells["cell"][seed]) != str(b.cells["cell"][seed]) for seed in seeds):
        return ("code of the loss or the task",)
    return () if all(a.run(seed) == b.run(seed) for seed in seeds) else ("computed again",)


def common_seeds(a: Place, b: Place, metric: str) -> list[int]:
    """Return the seeds with which both have a value.

    Args:
        a: the results of one side.
        b: those of the other.
        metric: which both must have.
    """
    return [int(seed) for seed in a.sample(metric).by_seed.index if seed in b.sample(metric).by_seed.index]


def environment_changes(a: Results, b: Results) -> Iterator[str]:
    """Yield in a sentence each in which versions and machines the cells of A and B differ."""
    one, other = _tags(a), _tags(b)
    for name in sorted({*one, *other}):
        before, after = (" and ".join(sorted(found.get(name, ()))) or "unknown" for found in (one, other))
        if before != after:
            yield f"The cells of A and B differ in {name}: {before} → {after}."


def _tags(results: Results) -> dict[str, set[str]]:
    """Return every value of the tags that should be equal in all cells."""
    values: dict[str, set[str]] = {}
    for tags in results.provenance.values():
        for name, value in tags.items():
            if re.fullmatch(ENVIRONMENT_TAGS, name):
                values.setdefault(name, set()).add(value or "unknown")
    return values
