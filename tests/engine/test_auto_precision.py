"""The precision `auto`: measured once, the same for every cell, and named in the plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from milbench.api.plan import Plan
from milbench.engine import auto_precision
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from tests._helpers.command_line import TINY, Milbench

CPU = torch.device("cpu")


def plan(precision: str) -> Plan:
    values = {"losses": ["exact", "noisy-or"], "tasks": ["synthetic-bags"], "seeds": "0-1", "name": "bags"}
    return make_plan(make_spec({**values, "recipe": {"precision": precision}}), None)


def measured(monkeypatch: pytest.MonkeyPatch, float32: float, bfloat16: float) -> None:
    monkeypatch.setattr(auto_precision, "paired_seconds", lambda fns, repeats: [float32, bfloat16])


def chosen(kept: Path, given: str = "auto") -> Plan:
    return auto_precision.choose(plan(given), CPU, 1, None, kept)


@pytest.mark.parametrize(("float32", "bfloat16", "expected"), [(2.0, 1.0, "bfloat16"), (1.1, 1.0, "float32")])
def test_the_quicker_precision_is_that_of_every_cell(
    float32: float, bfloat16: float, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, float32, bfloat16)
    found = chosen(tmp_path / "precision.json")
    explicit = plan(expected)
    assert [cell.id for cell in found.cells] == [
        cell.id for cell in explicit.cells
    ]  # the same cells as if it were named
    assert found.labels == explicit.labels
    (note,) = found.notes
    assert f"synthetic-bags: {expected}, chosen by measurement" in note
    assert f"{1000 * float32:.3g} ms in float32, {1000 * bfloat16:.3g} ms in bfloat16" in note


def test_a_further_launch_elsewhere_takes_the_choice_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, 2.0, 1.0)
    first = chosen(tmp_path / "here.json")
    measured(monkeypatch, 1.0, 2.0)  # on another machine, where float32 is the quicker one
    there = tmp_path / "there.json"
    further = auto_precision.choose(plan("auto"), CPU, 1, None, there, first)
    assert [cell.id for cell in further.cells] == [cell.id for cell in first.cells]
    assert further.notes == first.notes
    assert auto_precision.recall(plan("auto"), CPU, there, first).notes == first.notes
    explicit = auto_precision.choose(plan("auto"), CPU, 1, None, there, plan("bfloat16"))
    assert {cell.recipe["precision"] for cell in explicit.cells} == {"float32"}, "what a spec named was no choice"


def test_the_choice_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "precision.json"
    measured(monkeypatch, 2.0, 1.0)
    first = chosen(kept)
    measured(monkeypatch, 1.0, 2.0)
    again = chosen(kept)
    assert [cell.id for cell in again.cells] == [cell.id for cell in first.cells]
    assert again.notes == first.notes
    kept.write_text('{"half a file')
    assert {cell.recipe["precision"] for cell in chosen(kept).cells} == {"float32"}


def test_two_launches_that_measure_at_once_both_keep_their_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "precision.json"

    def other_meanwhile(fns: list[Callable[[], object]], repeats: int) -> list[float]:
        measured(monkeypatch, 1.0, 2.0)  # the other launch measures another machine's times, for this task and one more
        chosen(kept)
        values = json.loads(kept.read_text())
        kept.write_text(json.dumps(values | {"another task": next(iter(values.values()))}))
        return [2.0, 1.0]

    monkeypatch.setattr(auto_precision, "paired_seconds", other_meanwhile)
    assert {cell.recipe["precision"] for cell in chosen(kept).cells} == {"float32"}, "the first choice counts"
    assert len(json.loads(kept.read_text())) == 2


def test_recipes_that_name_their_precision_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, 2.0, 1.0)
    assert chosen(tmp_path / "precision.json", "float32") == plan("float32")
    assert not (tmp_path / "precision.json").exists()


class Products(TorchDispatchMode):
    """Collects the types of the matrix products that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.types: list[torch.dtype] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default):
            self.types.append(result.dtype)
        return result


def test_forward_and_backward_passes_are_timed_in_both_precisions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []

    def run_each(fns: list[Callable[[], object]], repeats: int) -> list[float]:
        assert repeats >= 5
        for fn in fns:
            with Products() as products:
                fn()
            seen.append((len(products.types), {*products.types}))
        return [1.0, 1.0]

    monkeypatch.setattr(auto_precision, "paired_seconds", run_each)
    chosen(tmp_path / "precision.json")
    # Three layers: a product each forwards, and two each backwards, but one in the first layer.
    assert seen == [(8, {torch.float32}), (8, {torch.bfloat16})]


def test_the_report_says_what_was_chosen(milbench: Milbench, root: Path) -> None:
    settings = ["task.bags_per_epoch=32", "recipe.epochs=1", "recipe.precision=auto"]
    command = ["run", "--loss", "exact", "--task", "synthetic-bags", *(w for s in settings for w in ("-p", s))]
    first = milbench(*command)
    assert first.code == 0
    assert "synthetic-bags" in first.out
    assert "chosen by measurement" in first.out
    assert "nothing to run" in milbench(*command).out
    assert milbench("report").code == 0
    (page,) = (root / "reports").glob("*/index.html")
    assert "chosen by measurement" in page.read_text("utf-8")
    assert "chosen by speed alone" in page.read_text("utf-8")


def test_a_dry_run_neither_measures_nor_writes(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    task, empty = ["--task", "extended-digits", "-p", "recipe.precision=auto"], tmp_path / "empty"
    empty.mkdir()
    before = sorted(root.rglob("*"))
    found = milbench("run", "--loss", "exact,noisy-or", *task, "--dry-run", "--data-dir", str(empty))
    assert found.code == 0, found
    assert found.err == ""
    (line,) = [line for line in found.out.splitlines() if "not measured" in line]
    assert line == "Precision `auto` of extended-digits: not measured yet."
    assert "2 cells, 2 to run" in found.out
    assert sorted(root.rglob("*")) == before


def test_a_dry_run_shows_the_choice_that_is_kept(
    milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "--loss", "exact", "--task", TINY, "-p", "recipe.epochs=1"]
    measured(monkeypatch, 2.0, 1.0)
    assert milbench(*command, "-p", "recipe.precision=auto").code == 0
    monkeypatch.setattr(auto_precision, "_measured", lambda *_: pytest.fail("a dry run measures"))
    kept = (root / "runs" / "precision.json").read_bytes()
    found = milbench(*command, "-p", "recipe.precision=auto", "--dry-run")
    assert "tiny: bfloat16, chosen by measurement" in found.out
    assert "1 cells, 0 to run" in found.out
    assert (root / "runs" / "precision.json").read_bytes() == kept


def test_a_cell_that_two_recipes_lead_to_is_planned_once(milbench: Milbench, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, 1.0, 1.0)
    command = ["run", "--loss", "exact", "--task", TINY, "-p", "recipe.epochs=1"]
    found = milbench(*command, "-p", "recipe.precision=auto,float32")
    assert found.code == 0, found
    assert "1 cells, 1 to run" in found.out
    assert "1 of 1 cells done" in found.out
    assert "nothing to run" in milbench(*command).out  # whoever names float32 finds the same cell
