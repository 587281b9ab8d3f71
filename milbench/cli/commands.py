"""What each command does, behind the command line's parsing."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from milbench.errors import UsageError, as_usage
from milbench.store.workspace import Workspace

# Where nobody watches, a line is as long as what it says: logs and pipes are read by programs too.
console = Console() if sys.stdout.isatty() else Console(width=200)


@dataclass(frozen=True)
class RunRequest:
    """What the user asked `milbench run` for."""

    spec: str | None
    preset: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    settings: list[str] = field(default_factory=list)
    data_dir: Path | None = None
    device: str = "auto"
    jobs: int | None = None
    threads: int | None = None
    cluster: str | None = None
    rerun: Literal["missing", "failed", "all"] = "missing"
    fail_fast: bool = False
    dry_run: bool = False


def run(wanted: RunRequest, root_path: Path, command: str) -> int:
    """Plan, show the plan, compute what is missing."""
    import os

    from milbench._utils.devices import resolve
    from milbench.cli.progress import Display, plan_table
    from milbench.engine import smoke_test
    from milbench.engine.runner import Interrupted, Launch, Options, check_cluster, default_jobs, execute
    from milbench.engine.spec import make_plan
    from milbench.store.mlflow_store import Store

    spec = _spec(wanted)
    device = str(resolve(wanted.device))
    plan = make_plan(spec, wanted.data_dir)
    root = Workspace(root_path)
    with as_usage():
        fresh = not root.database.exists() and not os.environ.get("MLFLOW_TRACKING_URI")
    if wanted.dry_run and fresh:
        launch = Launch(plan, {}, wanted.rerun)
    else:
        store = Store(root.make())
        launch = Launch(plan, store.cell_runs(), wanted.rerun)
    console.print(plan_table(launch))
    if wanted.dry_run or not launch.to_run:
        left = sum(launch.status(cell) != "done" for cell in plan.cells)
        console.print(
            "nothing to run" + (f", but {left} cells are not done (see --rerun)" if left else "")
            if not wanted.dry_run
            else "dry run: nothing was started"
        )
        if not wanted.dry_run:
            store.end(store.launch(plan, command), "FINISHED")
        return 1 if left and not wanted.dry_run else 0
    if wanted.cluster is not None:
        check_cluster(wanted.cluster)
    smoke_test.check(plan, wanted.data_dir)
    jobs = wanted.jobs or default_jobs(device, len(plan.cells))  # of all: a resumed cell keeps its threads
    threads = wanted.threads or max(1, (os.cpu_count() or 1) // jobs)
    options = Options(device, jobs, threads, wanted.data_dir, wanted.fail_fast, wanted.cluster)
    display = Display(console, launch, root)
    try:
        with display.live():
            execute(launch, store, root, options, command, display.report)
    except Interrupted:
        console.print(
            f"interrupted: {display.counts['done']} of {len(launch.to_run)} cells done; the same command continues"
        )
        return 130
    after = Launch(plan, store.cell_runs())
    undone = [cell for cell in plan.cells if after.status(cell) != "done"]
    failed = display.counts["failed"]
    console.print(
        f"{len(plan.cells) - len(undone)} of {len(plan.cells)} cells done"
        + (f", {len(undone)} not (milbench status {plan.name})" if undone else "")
        + (f", {failed} failed just now" if failed else "")
        + f"; next: milbench report {plan.name}"
    )
    return 1 if undone or failed else 0


def reproduce(wanted: RunRequest, root_path: Path, command: str, gallery: Literal["all", "none"]) -> int:
    """Run what is missing of a study and render its report, also where some cells failed."""
    from milbench.engine.spec import read_spec

    spec = read_spec(wanted.spec or "", wanted.preset)
    code = run(wanted, root_path, command)
    if code != 130:
        report(spec.name, root_path, gallery, open_it=False)
    return code


def report(name: str | None, root_path: Path, gallery: Literal["all", "none"], open_it: bool) -> int:
    """Render the report of a comparison."""
    from milbench.report.render import render
    from milbench.store.collect import collect
    from milbench.store.mlflow_store import Store

    root = existing(root_path)
    results = collect(Store(root), name)
    out = root.reports / results.name
    render(results, out, gallery=gallery)
    page = out / "index.html"
    console.print(f"wrote {page}", soft_wrap=True, highlight=False)
    if open_it:
        import webbrowser

        webbrowser.open(page.as_uri())
    return 0


def status(name: str | None, root_path: Path) -> int:
    """Print every cell of a comparison."""
    from milbench.store.mlflow_store import Store

    store = Store(existing(root_path))
    plan, _, launched = store.plan(name)
    runs = store.cell_runs()
    table = Table(title=f"{plan.name}, launched {launched}", title_justify="left")
    for heading in ("task", "loss", "recipe", "seed", "status", "run", "reason"):
        table.add_column(heading)
    undone = 0
    for cell in plan.cells:
        loss, task, recipe = plan.labels[cell.id]
        found = runs.get(cell.id)
        state = found.status if found else "missing"
        undone += state != "done"
        table.add_row(
            task,
            loss,
            recipe,
            str(cell.seed),
            state,
            found.run_id if found else "",
            escape(found.reason) if found else "",
        )
    console.print(table)
    console.print(f"{len(plan.cells) - undone} of {len(plan.cells)} cells done")
    return 1 if undone else 0


def export(name: str | None, out: Path, root_path: Path, *, weights: bool, gallery: bool) -> int:
    """Write the runs of a comparison to a file."""
    from milbench.store import transfer
    from milbench.store.mlflow_store import Store

    left_out = {"model.safetensors": not weights, "gallery.npz": not gallery}
    store = Store(existing(root_path))
    console.print(
        transfer.export(store, name, out, [k for k, v in left_out.items() if v]), soft_wrap=True, markup=False
    )
    return 0


def import_(file: Path, root_path: Path) -> int:
    """Take the runs of an export into the store."""
    from milbench.store import transfer

    console.print(transfer.import_(file, Workspace(root_path)), soft_wrap=True, markup=False)
    return 0


def list_(what: str, root_path: Path) -> int:
    """Print what there is of a kind."""
    table = Table()
    if what == "runs":
        from milbench.store.mlflow_store import Store

        for heading in ("comparison", "launches", "last launch"):
            table.add_column(heading)
        for row in Store(existing(root_path)).names().itertuples():
            table.add_row(str(row.name), str(row.launches), str(row.last))
    elif what == "specs":
        from milbench.engine.spec import built_in_specs, read_spec

        for heading in ("spec", "what it compares"):
            table.add_column(heading)
        for name in built_in_specs():
            table.add_row(name, read_spec(name).title)
    else:
        _list_entries(what, table)
    console.print(table)
    return 0


def _list_entries(what: str, table: Table) -> None:
    from milbench.api.registry import losses, parameters, tasks

    registry: Any = losses() if what == "losses" else tasks()
    for heading in (registry.kind, "what it is", "parameters", "from"):
        table.add_column(heading)
    for name in registry.names():
        try:
            cls = registry.cls(name)
        except UsageError as error:
            table.add_row(name, escape(f"broken: {error}"), "", registry.entry(name).origin)
            continue
        summary = (cls.__doc__ or "").strip().splitlines()[:1]
        takes = ", ".join(f"{p.name}={p.default}" for p in parameters(cls).values())
        table.add_row(name, *summary, takes, registry.entry(name).origin)


def bench_losses(device: str, quick: bool) -> int:
    """Measure the exact likelihood."""
    from milbench._utils.devices import resolve
    from milbench.cli import bench

    bench.render(bench.run(device=str(resolve(device)), quick=quick))
    return 0


def ui(port: int, root_path: Path) -> int:
    """Run MLflow's server on the store until Ctrl-C."""
    import subprocess
    import sys

    from milbench.store.mlflow_store import Store

    store = Store(existing(root_path))
    if not store.is_local:
        raise UsageError(f"the store is on a server of its own: open {store.uri}")
    database = store.uri.partition("?")[0]
    words = ["mlflow", "ui", "--backend-store-uri", database, "--workers", "1", "--port", str(port)]
    return subprocess.call([sys.executable, "-m", *words])


def _spec(wanted: RunRequest) -> Any:
    """Join the spec file, if any, with the flags: a flag wins."""
    from milbench.engine.spec import make_spec, parse_setting, read_spec

    if wanted.spec:
        values = {**read_spec(wanted.spec, wanted.preset).model_dump(), **wanted.values}
    elif wanted.preset is not None:
        raise UsageError(f"--preset {wanted.preset} needs a spec to take it from")
    else:
        missing = [flag for flag, key in (("--loss", "losses"), ("--task", "tasks")) if key not in wanted.values]
        if missing:
            raise UsageError(
                f"give a spec, or --loss and --task ({' and '.join(missing)} missing); "
                "milbench list losses|tasks|specs shows what there is"
            )
        values = {"name": _default_name(wanted.values["tasks"]), **wanted.values}
    for setting in wanted.settings:
        parse_setting(values, setting)
    changed = wanted.settings or set(wanted.values) - {"name"}
    if wanted.spec and changed:
        values["source"] = f"{values['source']} with changes"
    return make_spec(values)


def _default_name(tasks: list[str]) -> str:
    return "+".join(Path(task).stem for task in tasks)


def existing(path: Path) -> Workspace:
    """Return the root if there is a store, or one that another server keeps. Raises UsageError."""
    import os

    root = Workspace(path)
    with as_usage():
        missing = not root.database.exists() and not os.environ.get("MLFLOW_TRACKING_URI")
    if missing:
        raise UsageError(f"there is no store in {root.runs}; start with: milbench run demo (or give --root)")
    return root
