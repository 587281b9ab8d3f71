from __future__ import annotations

import hashlib
import json
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests._helpers.command_line import Milbench

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
        (
            edit(lambda m: m.update(later=1, milbench="9.1")),
            "Extra inputs are not permitted (written by milbench 9.1, this",
        ),
        (edit(lambda m: m["cells"][0].update(start=10**30)), "cells.0.start in its manifest"),
        (edit(lambda m: m["launches"][0].update(start=2**63 - 1)), "launches.0.start in its manifest"),
        (edit(lambda m: m["launches"][0].update(end=int(time.time() + 10 * 86400) * 1000)), "a moment in the future"),
        (lambda members: members.update({"manifest.json": b"[]"}), "its manifest is no table of JSON"),
        (lambda members: members.update({"manifest.json": b"{"}), "cannot import"),
    ],
)
def test_a_damaged_export_is_one_line(
    milbench: Milbench, root: Path, away: Path, tmp_path: Path, change: Callable[[Members], object], says: str
) -> None:
    rewrite(away / "all.zip", tmp_path / "bad.zip", change)
    refused(milbench, root, tmp_path / "bad.zip", says)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda whole: whole[: len(whole) // 2], "it is truncated or damaged: it begins as a zip file, but has no end"),
        (lambda whole: whole[:-1], "it is truncated or damaged: "),
        (lambda whole: b"", "not a zip file"),
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


@pytest.mark.parametrize("which", ["manifest.json", "model.safetensors"])
def test_a_bomb_is_refused_before_it_fills_the_memory(
    milbench: Milbench, root: Path, away: Path, tmp_path: Path, which: str
) -> None:
    with zipfile.ZipFile(away / "all.zip") as archive, zipfile.ZipFile(tmp_path / "bomb.zip", "w") as bomb:
        for member in archive.infolist():
            content = archive.read(member)
            if member.filename.endswith(which):
                content += b" " * 60_000_000
            bomb.writestr(member.filename, content, zipfile.ZIP_DEFLATED)
    with peak_memory() as peak:
        refused(milbench, root, tmp_path / "bomb.zip", "more than 200 times as many: it is no export")
    assert peak() < 20_000_000


def test_what_is_compressed_as_no_export_is_refused(milbench: Milbench, root: Path, away: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(away / "all.zip") as archive, zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        for member in archive.infolist():
            other.writestr(member.filename, archive.read(member), zipfile.ZIP_BZIP2)
    refused(milbench, root, tmp_path / "other.zip", "is compressed by another method than exports are")


def test_sizes_are_limited_and_the_limit_can_be_raised(
    milbench: Milbench, root: Path, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILBENCH_IMPORT_GB", "0.000001")  # 1,000 bytes, of which 10 for a plan
    refused(milbench, root, away / "all.zip", "/plan.json': 0.00 GB): MILBENCH_IMPORT_GB=1 would allow them")
    monkeypatch.setattr("milbench.store.transfer.limits.READ_WHOLE", 1e9)
    refused(milbench, root, away / "all.zip", "its files are too large (all together: 0.00 GB)")
    monkeypatch.setenv("MILBENCH_IMPORT_GB", "many")
    refused(milbench, root, away / "all.zip", "MILBENCH_IMPORT_GB = 'many' is wrong: expected a number")
    monkeypatch.setenv("MILBENCH_IMPORT_GB", "1")
    assert milbench("import", str(away / "all.zip")).code == 0


def test_a_member_that_is_larger_than_it_declares_is_not_read_beyond(
    milbench: Milbench, root: Path, away: Path, tmp_path: Path
) -> None:
    """The declared size of a large member is set to a small one in the directory of the zip."""
    with zipfile.ZipFile(away / "all.zip") as archive, zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
        for member in archive.infolist():
            content = archive.read(member)
            if member.filename.endswith("model.safetensors"):
                content = b"\0" * 61_234_567
            bad.writestr(member.filename, content, zipfile.ZIP_DEFLATED)
    whole = (tmp_path / "bad.zip").read_bytes()
    assert whole.count(struct.pack("<I", 61_234_567)) == 2
    (tmp_path / "bad.zip").write_bytes(whole.replace(struct.pack("<I", 61_234_567), struct.pack("<I", 1000)))
    with peak_memory() as peak:
        refused(milbench, root, tmp_path / "bad.zip", "cannot import")
    assert peak() < 20_000_000


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the largest size, in bytes, of what Python held at once during the block."""
    found: list[int] = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: found[0]
        found.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()


def test_a_large_artifact_is_never_in_memory_as_a_whole(
    milbench: Milbench, root: Path, away: Path, tmp_path: Path
) -> None:
    content = b"\1" * 100_000_000

    def enlarge(members: Members) -> None:
        name = next(name for name in members if name.endswith("model.safetensors"))
        members[name] = content
        digest = {"model.safetensors": hashlib.sha256(content).hexdigest()}
        edit(
            lambda m: next(c for c in m["cells"] if "model.safetensors" in c["artifacts"])["artifacts"].update(digest)
        )(members)

    rewrite(away / "all.zip", tmp_path / "large.zip", enlarge)
    with peak_memory() as peak:
        assert milbench("import", str(tmp_path / "large.zip")).code == 0
    assert peak() < 50_000_000
    (arrived,) = root.glob("runs/artifacts/*/artifacts/model.safetensors")
    assert arrived.stat().st_size == len(content)


def rewrite(export: Path, out: Path, change: Callable[[Members], object]) -> None:
    """Write a copy of an export with changed members."""
    with zipfile.ZipFile(export) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(out, "w") as archive:
        for name, what in members.items():
            archive.writestr(name, what)


def refused(milbench: Milbench, root: Path, export: Path, says: str) -> None:
    before = (root / "runs" / "mlflow.db").read_bytes()
    said = milbench("import", str(export)).complaint()
    assert says in said
    assert str(export) in said
    assert (root / "runs" / "mlflow.db").read_bytes() == before
    assert not list(root.glob("runs/artifacts/*"))
