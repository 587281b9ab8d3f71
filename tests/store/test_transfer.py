from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milbench.store.collect import collect
from milbench.store.mlflow_store import Store
from milbench.store.workspace import Workspace
from tests._helpers.command_line import TINY, Ran
from tests._helpers.other_machine import BREAKING, WORDS, content, runs_of

Milbench = Callable[..., Ran]
Members = dict[str, bytes]


def test_everything_of_a_run_arrives(milbench: Milbench, root: Path, away: Path) -> None:
    ran = milbench("import", str(away / "all.zip"))
    assert (ran.code, ran.out) == (0, "imported 2 cells of mine (1 done, 1 failed); next: milbench report mine\n")
    there, here = runs_of(away), runs_of(root)
    assert set(here) == set(there) == {"launch of mine", "exact on tiny, seed 0", "breaking on tiny, seed 0"}
    digest = hashlib.sha256((away / "all.zip").read_bytes()).hexdigest()
    for name, origin in there.items():
        copy = here[name]
        assert content(root, copy) == content(away, origin)
        assert copy.info.run_id != origin.info.run_id
        own = {"milbench.origin_run": origin.info.run_id, "milbench.imported_from": f"sha256:{digest}"}
        parent = {"mlflow.parentRunId": here["launch of mine"].info.run_id} if "launch" not in name else {}
        moment = {"milbench.imported": copy.data.tags["milbench.imported"]}
        assert copy.data.tags == {**origin.data.tags, **own, **parent, **moment}
    assert here["exact on tiny, seed 0"].data.tags["milbench.host"] == "gpu-box"
    artifacts = content(root, here["exact on tiny, seed 0"])["artifacts"]
    assert set(artifacts) == {"data_digest.txt", "gallery.npz", "model.safetensors", "decoder.json"}
    assert json.loads(artifacts["decoder.json"])["format"] == "tiny/1"


def test_an_imported_comparison_is_like_any_other(milbench: Milbench, root: Path, away: Path) -> None:
    milbench("import", str(away / "all.zip"))
    status = milbench("status", "mine")
    assert "1 of 2 cells done" in status.out
    assert "RuntimeError: the loss | broke" in status.out
    assert milbench("report", "mine").code == 0
    folder = root / "reports" / "mine"
    origin = runs_of(away)["exact on tiny, seed 0"]
    where = f"imported: run {origin.info.run_id} on gpu-box, {origin.data.tags['milbench.device_name']}"
    assert where in (folder / "index.html").read_text()
    assert f"{runs_of(root)['exact on tiny, seed 0'].info.run_id} ({where}) |" in (folder / "report.md").read_text()
    assert "No gallery" not in (folder / "report.md").read_text()
    assert "nothing to run, but 1 cells are not done" in milbench(*WORDS).out
    again = milbench(*WORDS, "--rerun", "failed")
    assert "2 cells, 1 to run" in again.out
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        failed = database.execute("select count(*) from runs where name like 'breaking%' and status = 'FAILED'")
        assert failed.fetchone() == (2,)


def test_launches_here_and_from_elsewhere_add_up(milbench: Milbench, root: Path, away: Path) -> None:
    milbench("run", "--loss", "noisy-or", "--task", TINY, "--name", "mine")
    milbench("import", str(away / "all.zip"))
    results = collect(Store(Workspace(root)))  # of the comparison launched last, which is the launch here
    assert dict(results.cells.set_index("loss").status) == {"exact": "done", "breaking": "failed", "noisy-or": "done"}
    assert {tags.get("host") for tags in results.provenance.values()} == {"gpu-box", platform.node()}


def test_the_same_again_changes_nothing(milbench: Milbench, root: Path, away: Path, tmp_path: Path) -> None:
    milbench("import", str(away / "all.zip"))
    before = dump(root)
    again = milbench("import", str(away / "all.zip"))
    assert (again.code, again.out) == (0, "nothing to import: 2 cells of mine (2 already here)\n")
    assert dump(root) == before
    # A run is known by where it was made, through however many hands its copies went.
    assert milbench("export", "--out", str(tmp_path / "second-hand.zip")).code == 0
    home = tmp_path / "home"
    shutil.copytree(away, home)
    assert "2 already here" in milbench("import", str(tmp_path / "second-hand.zip"), "--root", str(home)).out


def dump(root: Path) -> list[str]:
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        return list(database.iterdump())


def test_leaving_weights_and_pictures_out(milbench: Milbench, root: Path, away: Path, tmp_path: Path) -> None:
    def kinds(path: Path) -> set[str]:
        return {Path(name).name for name in zipfile.ZipFile(path).namelist()}

    small = tmp_path / "new" / "small.zip"
    assert milbench("export", "--root", str(away), "--out", str(small), "--no-weights", "--no-gallery").code == 0
    assert kinds(away / "all.zip") - kinds(small) == {"gallery.npz", "model.safetensors"}
    assert milbench("import", str(small)).code == 0
    results = collect(Store(Workspace(root)))
    assert set(results.cells.status) == {"done", "failed"}
    assert not results.galleries
    # The whole export adds what the small one had left out, and a part of a file is none.
    said = milbench("import", str(away / "all.zip")).out
    assert "imported 2 cells of mine (2 already here); what was here had lacked gallery.npz of 1, model" in said
    there, here = (runs_of(where)["exact on tiny, seed 0"] for where in (away, root))
    assert content(root, here) == content(away, there)
    weights = root / "runs" / "artifacts" / here.info.run_id / "artifacts" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    assert "had lacked model.safetensors of 1;" in milbench("import", str(away / "all.zip")).out
    assert content(root, here) == content(away, there)
    assert "nothing to import" in milbench("import", str(small)).out


def test_a_launch_that_goes_on_is_over_in_its_copy(milbench: Milbench, root: Path, away: Path, tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    shutil.copytree(away, busy)
    with sqlite3.connect(busy / "runs" / "mlflow.db") as database:
        database.execute("update runs set status = 'RUNNING', end_time = null where name != 'exact on tiny, seed 0'")
    said = milbench("export", "--out", str(tmp_path / "part.zip"), "--root", str(busy)).out
    assert "2 cells of mine (1 done, 1 left out)" in said
    assert "1 done)" in milbench("import", str(tmp_path / "part.zip")).out
    assert {run.info.status for run in runs_of(root).values()} == {"FINISHED", "KILLED"}
    # What has ended there in the meantime comes with the next export.
    assert "(1 already here, 1 failed)" in milbench("import", str(away / "all.zip")).out


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Members], None]:
    """A change of the manifest alone."""

    def changed(members: Members) -> None:
        manifest = json.loads(members["manifest.json"])
        change(manifest)
        members["manifest.json"] = json.dumps(manifest).encode()

    return changed


def spoil(members: Members) -> None:
    name = next(name for name in members if name.endswith("model.safetensors"))
    members[name] = members[name][:-1] + b"?"


def lose(members: Members) -> None:
    del members[next(name for name in members if name.endswith("gallery.npz"))]


def rename_plan(members: Members) -> None:
    """A plan with another name and the digest to go with it: its report would land beside reports/."""
    name = next(name for name in members if name.endswith("plan.json"))
    members[name] = members[name].replace(b'"mine"', b'"../mine"')
    digest = hashlib.sha256(members[name]).hexdigest()
    edit(lambda m: m["launches"][0]["artifacts"].update({"plan.json": digest}))(members)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (spoil, "model.safetensors has another SHA-256 than its manifest says"),
        (lose, "it lacks "),
        (lambda members: members.pop("manifest.json"), "manifest.json"),
        (lambda members: members.update({"../../evil.py": b""}), "its manifest says nothing of '../../evil.py'"),
        (edit(lambda m: m["cells"][0]["artifacts"].update({"../evil": "0"})), "cells.0.artifacts.../evil"),
        (edit(lambda m: m["cells"][0].update(run_id="../" * 10 + "ab")), "cells.0.run_id"),
        (edit(lambda m: m.update(name="../up")), "name in its manifest"),
        (rename_plan, "a launch of '../mine' among those of 'mine'"),
        (edit(lambda m: m.update(format=7, milbench="9.1")), "it has format 7, written by milbench 9.1; this is"),
        (edit(lambda m: m["cells"][0]["cell"].update(seed=8)), "was recorded under other cell ids"),
        (edit(lambda m: m["cells"][0]["tags"].pop("milbench.cell")), "was recorded under other cell ids"),
        (edit(lambda m: m["cells"][0].update(status="RUNNING")), "cells.0.status"),
        (edit(lambda m: m["cells"].append(m["cells"][0])), "2 times"),
        (edit(lambda m: m["cells"][0].update(launch="ab" * 16)), "it lacks the launch of run"),
        (edit(lambda m: m.update(launches=[])), "launches in its manifest"),
        (lambda members: members.update({"manifest.json": b"[]"}), "cannot import"),
        (lambda members: members.update({"manifest.json": b"{"}), "cannot import"),
    ],
)
def test_a_damaged_export_is_one_line(
    milbench: Milbench, root: Path, away: Path, tmp_path: Path, change: Callable[[Members], object], says: str
) -> None:
    with zipfile.ZipFile(away / "all.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        for name, what in members.items():
            archive.writestr(name, what)
    refused(milbench, root, tmp_path / "bad.zip", says)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda whole: whole[: len(whole) // 2], "not a zip file"),
        (lambda whole: b"no zip at all", "not a zip file"),
        (lambda whole: whole[:300] + b"\xff" * 40 + whole[340:], "cannot import"),
    ],
)
def test_damaged_bytes_are_one_line(
    milbench: Milbench, root: Path, away: Path, tmp_path: Path, damage: Callable[[bytes], bytes], says: str
) -> None:
    (tmp_path / "bad.zip").write_bytes(damage((away / "all.zip").read_bytes()))
    refused(milbench, root, tmp_path / "bad.zip", says)
    refused(milbench, root, tmp_path / "nowhere.zip", "No such file")
    nowhere = tmp_path / "nowhere"
    milbench("import", str(tmp_path / "bad.zip"), "--root", str(nowhere)).complaint()
    assert not nowhere.exists()


def refused(milbench: Milbench, root: Path, export: Path, says: str) -> None:
    before = (root / "runs" / "mlflow.db").read_bytes()
    said = milbench("import", str(export)).complaint()
    assert says in said
    assert str(export) in said
    assert (root / "runs" / "mlflow.db").read_bytes() == before
    assert not list(root.glob("runs/artifacts/*"))


def test_a_cell_that_is_done_here_already_is_a_clash(milbench: Milbench, root: Path, away: Path) -> None:
    assert milbench(*WORDS).code == 1
    before = dump(root)
    said = milbench("import", str(away / "all.zip")).complaint()
    there, here = (runs_of(where)["exact on tiny, seed 0"].info.run_id for where in (away, root))
    assert "1 of its cells were done here by other runs, the first exact on tiny, seed 0" in said
    assert f"run {there} there, {here} here" in said
    assert dump(root) == before


def test_what_cannot_be_exported_is_one_line(milbench: Milbench, root: Path, away: Path, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "x.zip"))
    assert "nothing was run yet" in milbench("export", *out).complaint()
    assert "did you mean 'mine'" in milbench("export", "mien", *out, "--root", str(away)).complaint()
    assert "--out" in milbench("export", "mine", "--root", str(away)).complaint()
    assert "cannot write" in milbench("export", "--out", str(tmp_path), "--root", str(away)).complaint()
    milbench("run", "--loss", BREAKING, "--task", TINY)
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        database.execute("update runs set status = 'KILLED'")
    assert "no cell of tiny_task is done or failed" in milbench("export", *out).complaint()
    assert not (tmp_path / "x.zip").exists()
