"""Compute a comparison from Python, by the same cells, content hashes and store as the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from milbench._utils.interrupts import INTERRUPTED
from milbench.api import registry
from milbench.comparison.comparison import Comparison
from milbench.errors import UsageError, unknown
from milbench.launch.compute import compute
from milbench.launch.request import Rerun, RunRequest

Named = str | Iterable[str] | Mapping[str, Mapping[str, Any]]
"""Names, or names with parameters of each."""


def compare(
    losses: Named,
    tasks: Named,
    seeds: str | int | Iterable[int] | None = None,
    *,
    recipe: Mapping[str, Any] | None = None,
    name: str | None = None,
    root: Path | str = ".",
    data_dir: Path | str | None = None,
    device: str = "auto",
    jobs: int | None = None,
    supervision: Iterable[str] = (),
    rerun: Rerun = "missing",
    in_process: bool = False,
    progress: bool = True,
) -> Comparison:
    """Compute the cells of a comparison that are not done yet, and return it; `milbench run` does the same.

    Args:
        losses: names or paths of Python files; or a mapping from these to parameters, where a list makes an axis.
        tasks: likewise.
        seeds: such as range(3) or "0-9"; None: seed 0, or all folds of a task's cross-validation.
        recipe: changes to the recipes of the tasks, such as {"epochs": 5}.
        name: of the comparison; None: the names of the tasks.
        root: the folder with the store, runs/, and reports/.
        data_dir: the folder of data sets; None: the default one.
        device: auto, cpu, cuda or cuda:N.
        jobs: cells computed at a time; None: one a core, or one a GPU.
        supervision: kinds of supervision that are compared on purpose.
        rerun: compute missing cells, failed ones as well, or all anew.
        in_process: compute in this very process, one cell at a time.
        progress: show cells as they are computed; failures are shown in any case.

    Returns:
        The comparison. Cells that failed are in it, with their reasons.

    Raises:
        UsageError: something that was given is wrong; nothing was computed then.
        KeyboardInterrupt: it was interrupted. The same call continues.

    Examples:
        >>> import tempfile, milbench
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = milbench.compare(
        ...         ["exact", "noisy-or"], {"synthetic-bags": {"bags_per_epoch": 64}}, recipe={"epochs": 1},
        ...         root=folder, in_process=True, progress=False,
        ...     )
        >>> found
        <milbench.Comparison 'synthetic-bags': 2 of 2 cells done>
    """
    for registered in (registry.losses(), registry.tasks()):
        registered.read_edited()
    chosen_losses, of_losses = _named(losses, registry.losses())
    chosen_tasks, of_tasks = _named(tasks, registry.tasks())
    values: dict[str, Any] = {
        "losses": chosen_losses, "tasks": chosen_tasks, "loss": of_losses, "task": of_tasks,
        "recipe": recipe or {}, "supervision": list(supervision),
    }  # fmt: skip
    if rerun not in (choices := get_args(Rerun)):
        raise unknown("rerun", str(rerun), choices)
    if recipe is not None and not isinstance(recipe, Mapping):
        raise UsageError(f'recipe = {recipe!r}: expected a mapping such as {{"epochs": 5}}')
    values["recipe"] = dict(recipe or {})
    if isinstance(seeds, bool) or not (seeds is None or isinstance(seeds, str | int | Iterable)):
        raise UsageError(f'seeds = {seeds!r}: expected numbers, such as range(3), 3 or "0-9"')
    if seeds is not None:
        values["seeds"] = seeds if isinstance(seeds, str | int) else list(seeds)
    if name is not None:
        values["name"] = name
    given = ", ".join(f"{key}={value!r}" for key, value in values.items() if value)
    request = RunRequest(
        spec=None, values=values, data_dir=None if data_dir is None else Path(data_dir), device=device, jobs=jobs,
        rerun=rerun, in_process=in_process, output="text" if progress else "quiet",
        command=f"milbench.compare({given})",
    )  # fmt: skip
    if compute(request, Path(root)) == INTERRUPTED:
        raise KeyboardInterrupt
    return results(root, name or "+".join(Path(task).stem for task in chosen_tasks))


def results(root: Path | str = ".", name: str | None = None) -> Comparison:
    """Return a comparison that was computed, by the command line or by `compare`.

    Args:
        root: the folder with the store, runs/.
        name: of the comparison; None: the one launched last.

    Raises:
        UsageError: there is no store, or no such comparison in it.
    """
    from milbench.engine.folders import results as results_of

    return Comparison(results_of(Path(root), name), Path(root) / "reports")


def _named(given: Named, kinds: registry.Registry[Any]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return names, and the parameters of those that have some, by the names under which a spec has them."""
    if isinstance(given, str | Path):
        return [str(given)], {}
    if not isinstance(given, Iterable):
        raise UsageError(f"{kinds.kind} = {given!r}: expected a name, several, or a mapping from names to parameters")
    if not isinstance(given, Mapping):
        return [str(name) for name in given], {}
    for name, params in given.items():
        if not isinstance(params, Mapping | None):
            raise UsageError(f'{kinds.kind} {name!r}: {params!r} are no parameters, expected such as {{"KEY": VALUE}}')
    names = [str(name) for name in given]
    return names, {kinds.entry(str(name)).name: dict(params) for name, params in given.items() if params}
