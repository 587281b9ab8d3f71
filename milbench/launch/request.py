"""What the user asks `milbench run` and its kin, or `milbench.compare`, for, and the spec that it makes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from milbench.errors import UsageError

if TYPE_CHECKING:
    from milbench.engine.spec import Spec

Rerun = Literal["missing", "failed", "all"]
"""Which cells are computed: missing ones, failed ones as well, or all anew."""


@dataclass(frozen=True)
class RunRequest:
    """What the user asked `milbench run`, `reproduce` or `tune`, or `milbench.compare`, for."""

    command: str
    """What the store keeps as the command."""
    spec: str | None
    preset: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    """Fields of the spec that flags replace."""
    settings: list[str] = field(default_factory=list)
    """Each a `-p` setting, such as recipe.epochs=3."""
    draws: int | None = None
    """Settings that a search tries for every loss; None: as many as the spec says."""
    data_dir: Path | None = None
    device: str = "auto"
    jobs: int | None = None
    jobs_per_device: int | None = None
    threads: int | None = None
    cluster: str | None = None
    rerun: Rerun = "missing"
    timeout: float | None = None
    in_process: bool = False
    log_models: bool = False
    fail_fast: bool = False
    dry_run: bool = False
    smoke: bool = False
    output: Literal["text", "quiet", "json"] = "text"
    is_companion: bool = False
    """Whether another spec asked for this one: its own companions are then left alone."""


def requested_spec(request: RunRequest) -> Spec:
    """Return the spec with the flags in it: where both give a value, the flag's is taken."""
    from milbench.engine.marks import with_tasks
    from milbench.engine.planning import check_contrasts
    from milbench.engine.spec import CHANGED, make_spec, parse_setting, read_spec

    if request.spec:
        written = read_spec(request.spec, request.preset)
        check_contrasts(written)
        values = {**written.model_dump(), "marks": with_tasks(written.marks, written.tasks), **request.values}
    elif request.preset is not None:
        raise UsageError(f"--preset {request.preset} needs a spec to take it from")
    else:
        missing = [flag for flag, key in (("--loss", "losses"), ("--task", "tasks")) if key not in request.values]
        if missing:
            raise UsageError(
                f"give a spec, or --loss and --task ({' and '.join(missing)} missing); "
                "milbench list losses|tasks|specs shows what there is"
            )
        values = {"name": "+".join(Path(task).stem for task in request.values["tasks"]), **request.values}
    for setting in request.settings:
        parse_setting(values, setting)
    if request.draws is not None and values.get("tune"):
        values["tune"] = {**values["tune"], "draws": request.draws}
    changed = request.settings or set(request.values) - {"name"}
    if request.spec and changed:
        values["source"] += CHANGED
        values["part"] = bool({"losses", "tasks"} & {*request.values})
    return make_spec(values)


def companions(spec: Spec, request: RunRequest) -> list[RunRequest]:
    """Return the requests by which losses from files take the companions of a spec as well.

    A loss of one's own is seen in all reports by one command then. Who chooses tasks or seeds asks for less than that.

    Raises:
        UsageError: there is no spec of that name, or it is wrong; found before the first cell is computed.
    """
    own = [loss for loss in request.values.get("losses", []) if loss.endswith(".py")]
    if not own or request.settings or set(request.values) != {"losses"} or request.is_companion:
        return []
    found = [
        replace(request, spec=name, preset=None, values={"losses": own}, is_companion=True) for name in spec.companions
    ]
    for other in found:
        requested_spec(other)
    return found
