"""Contrasts on the command line: refused where they name no variant, and dated by the launches that had them."""

from __future__ import annotations

from pathlib import Path

import pytest

from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import TINY, Milbench

CONTRAST = '[[contrasts]]\nname = "asked"\nfirst = "one-vs-rest"\nsecond = "exact"\n'


def spec(folder: Path, contrasts: str) -> str:
    path = folder / "asked.toml"
    path.write_text(f'losses = ["exact", "one-vs-rest"]\ntasks = ["{TINY}"]\nseeds = "0"\n{contrasts}')
    return str(path)


@pytest.mark.parametrize("flags", [(), ("--seeds", "0-1"), ("--loss", "exact")])
def test_an_unknown_variant_is_one_line_and_nothing_is_written(
    milbench: Milbench, root: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    ran = milbench("run", spec(tmp_path, CONTRAST.replace('"exact"', '"exakt"')), *flags)
    assert ran.complaint().startswith("unknown variant in contrast 'asked'")
    assert "did you mean 'exact'" in ran.err
    assert StoreReader(Workspace(root)).names().empty


def test_contrasts_that_came_after_the_cells_are_known_as_such(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    def before() -> int | None:
        return collect(StoreReader(Workspace(root)), "asked").before_contrasts

    assert milbench("run", spec(tmp_path, "")).code == 0
    assert before() is None, "there are no contrasts"
    assert "nothing to run" in milbench("run", spec(tmp_path, CONTRAST)).out
    assert before() == 2
    assert milbench("run", spec(tmp_path, CONTRAST), "--seeds", "0-1").code == 0
    assert before() == 2, "the cells of the other seed began later"
    other = CONTRAST.replace('"asked"', '"the same by another name"')
    milbench("run", spec(tmp_path, other), "--seeds", "0-1")
    assert before() == 2
    turned = 'first = "exact"\nsecond = "one-vs-rest"\n'
    milbench("run", spec(tmp_path, CONTRAST.partition("first")[0] + turned), "--seeds", "0-1")
    assert before() == 4


def test_a_loss_that_flags_leave_out_takes_its_contrast_along(milbench: Milbench, tmp_path: Path) -> None:
    assert "1 cells" in milbench("run", spec(tmp_path, CONTRAST), "--loss", "exact", "--dry-run").out
