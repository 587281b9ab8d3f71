"""Compute a comparison from Python, by the same cells, content hashes and store as the command line."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from milbench.api import registry
from milbench.comparison.comparison import Comparison
from milbench.engine import folders
from milbench.engine.launch import launch
from milbench.engine.spec import requested_spec
from milbench.errors import INTERRUPTED, UsageError

One = str | Path | type | ModuleType
Named = One | Iterable[One] | Mapping[Any, Mapping[str, Any]]
"""Names, paths, classes or modules, or a mapping from these to parameters of each."""
Rerun = Literal["missing", "failed", "all"]


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
        losses: names, paths of Python files, classes (also those of a notebook) or modules; or a mapping from these to
            parameters, where a list makes an axis.
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
    if isinstance(seeds, bool) or not (seeds is None or isinstance(seeds, str | int | Iterable)):
        raise UsageError(f'seeds = {seeds!r}: expected numbers, such as range(3), 3 or "0-9"')
    given: dict[str, Any] = {
        "losses": chosen_losses, "tasks": chosen_tasks, "loss": of_losses or None, "task": of_tasks or None,
        "name": name, "recipe": recipe or None, "supervision": list(supervision) or None,
        "seeds": seeds if seeds is None or isinstance(seeds, str | int) else list(seeds),
    }  # fmt: skip
    said = ", ".join(f"{key}={value!r}" for key, value in given.items() if value)
    given["run"] = {
        "data_dir": data_dir, "device": device, "jobs": jobs, "rerun": rerun, "in_process": in_process
    }  # fmt: skip
    spec = requested_spec(None, None, given)
    if launch(spec, Path(root), f"milbench.compare({said})", quiet=not progress) == INTERRUPTED:
        raise KeyboardInterrupt
    return results(root, spec.name)


def results(root: Path | str = ".", name: str | None = None) -> Comparison:
    """Return a comparison that was computed, by the command line or by `compare`; by default the one launched last.

    The store is in the folder `root`. Raises UsageError where there is no such comparison.
    """
    return Comparison(folders.results(root, name), Path(root) / "reports")


def _named(given: Named, kinds: registry.Registry[Any]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    chosen: Any = [given] if isinstance(given, str | Path | ModuleType) or inspect.isclass(given) else given
    if not isinstance(chosen, Iterable):
        raise UsageError(f"{kinds.kind} = {given!r}: expected a name, several, or a mapping from names to parameters")
    if not isinstance(chosen, Mapping):
        return [_name(one, kinds) for one in chosen], {}
    for one, params in chosen.items():
        if not isinstance(params, Mapping | None):
            raise UsageError(f'{kinds.kind} {one!r}: {params!r} are no parameters, expected such as {{"KEY": VALUE}}')
    names = {_name(one, kinds): params for one, params in chosen.items()}
    return [*names], {kinds.entry(name).name: dict(params) for name, params in names.items() if params}


def _name(one: Any, kinds: registry.Registry[Any]) -> str:
    if isinstance(one, ModuleType):
        return one.__name__
    return kinds.add_class(one) if inspect.isclass(one) else str(one)
