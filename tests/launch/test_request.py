from __future__ import annotations

from pathlib import Path

import pytest

from milbench.engine.planning import make_plan
from milbench.errors import UsageError
from milbench.launch.request import RunRequest, companions, requested_spec
from tests._helpers.command_line import PLUGINS

MARKED = 'losses = ["exact"]\ntasks = ["synthetic-bags"]\n[[marks]]\nname = "easy"\nat_most = {set_error = 0.1}\n'


@pytest.fixture
def marked(tmp_path: Path) -> str:
    path = tmp_path / "marked.toml"
    path.write_text(MARKED)
    return str(path)


@pytest.mark.parametrize("tasks", [["extended-digits"], ["extended-digits", "synthetic-bags"]])
def test_a_flag_does_not_move_a_mark_to_another_task(marked: str, tasks: list[str]) -> None:
    plan = make_plan(requested_spec(RunRequest("", spec=marked, values={"tasks": tasks})), None)
    assert [(mark.name, mark.task) for mark in plan.marks] == [("easy", "synthetic-bags")] * ("synthetic-bags" in tasks)


def test_a_flag_wins_over_the_spec_and_a_setting_over_the_recipe_of_the_task(marked: str) -> None:
    asked = RunRequest("", spec=marked, values={"losses": ["noisy-or"], "seeds": "1,3"}, settings=["recipe.epochs=7"])
    spec = requested_spec(asked)
    assert (list(spec.losses), list(spec.tasks)) == (["noisy-or"], ["synthetic-bags"])
    assert {(cell.loss, cell.seed, cell.recipe["epochs"]) for cell in make_plan(spec, None).cells} == {
        ("noisy-or", 1, 7),
        ("noisy-or", 3, 7),
    }


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match=r"give a spec, or --loss and --task \(--task missing\)"):
        requested_spec(RunRequest("", spec=None, values={"losses": ["exact"]}))
    with pytest.raises(UsageError, match="--preset quick needs a spec"):
        requested_spec(RunRequest("", spec=None, preset="quick"))


def test_a_loss_from_a_file_takes_the_companions_unless_less_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "harder.toml").write_text(MARKED)
    easy, own = tmp_path / "easy.toml", str(PLUGINS / "third_party_loss.py")
    companion = (tmp_path / "harder.toml").as_posix()
    easy.write_text(f'losses = ["exact"]\ntasks = ["synthetic-bags"]\ncompanions = ["{companion}"]\n')
    for values, expected in (
        ({"losses": [own]}, ["harder.toml"]),
        ({"losses": [own], "seeds": "0"}, []),
        ({"losses": ["exact"]}, []),
    ):
        request = RunRequest("as typed", spec=str(easy), values=values)
        found = companions(requested_spec(request), request)
        assert [Path(other.spec or "").name for other in found] == expected
        assert all((other.command, other.is_companion) == ("as typed", True) for other in found)
