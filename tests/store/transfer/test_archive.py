from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests._helpers.command_line import Ran

Milbench = Callable[..., Ran]
Members = dict[str, bytes]


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
        (spoil, "model.safetensors has another SHA-256 than in its manifest"),
        (lose, "it lacks "),
        (lambda members: members.pop("manifest.json"), "manifest.json"),
        (lambda members: members.update({"../../evil.py": b""}), "its manifest does not name '../../evil.py'"),
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
