"""Parameters that a loss, a task or a network got after cells were stored.

Such a parameter has a neutral value, with which the code computes what it did before. Cells with
the neutral value keep their ids, and old cells are built with it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from milbench import InstanceMLP, Loss, Network, UsageError, load_loss
from milbench.contracts.parameters import neutral_values, with_neutral, without_neutral
from milbench.contracts.published import Published
from milbench.contracts.recipe import Recipe
from milbench.contracts.registry import RegistryEntry, losses, tasks
from milbench.contracts.resolver import resolve
from milbench.experiment.cell import Cell, stored_recipe
from milbench.experiment.expand_spec import changed_loss, changed_recipe
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan
from milbench.experiment.plan_file import plan_from_json, plan_to_json
from milbench.experiment.spec_files import make_spec
from milbench.losses import OneVsRest
from milbench.networks.known_networks import networks
from milbench.report.literature import deviations
from milbench.training.training_setup import network_for, setup_for_cell, task_for, unbuilt_loss
from tests._helpers.command_line import TINY
from tests._helpers.training import train

CPU = torch.device("cpu")


class Before(OneVsRest):
    """A loss before it gets the parameter `shift`."""

    name = "growing"

    def __init__(self, margin: float = 0.0) -> None:
        super().__init__()
        self.margin = margin


class After(Before):
    """The same loss with `shift`. At 0 it computes what `Before` does; the default is 5."""

    added: ClassVar[Any] = MappingProxyType({"shift": 0.0})

    def __init__(self, margin: float = 0.0, shift: float = 5.0) -> None:
        super().__init__(margin)
        self.shift = shift

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        return super().bag_loss(logits, labels, mask) + self.shift


class WithoutShift(After):
    """A subclass of `After` whose constructor has no `shift`."""

    def __init__(self, margin: float = 0.0) -> None:
        super().__init__(margin, shift=0.0)


class Mistaken(Before):
    """A loss whose `added` names a parameter that it does not have."""

    added: ClassVar[Any] = MappingProxyType({"marjin": 0.0})


Install = Callable[[type[Loss]], None]
"""Type of the fixture `install`."""


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """A function that makes a class the loss `growing`, as if it were built in."""

    def install_class(cls: type[Loss]) -> None:
        entry = RegistryEntry("growing", "milbench", lambda: cls, __name__)
        monkeypatch.setitem(losses().entries, "growing", entry)

    return install_class


SMALL = {"epochs": 1, "steps_per_epoch": 2, "precision": "float32"}
"""The recipe of a cell that is trained in a blink."""


def planned(**values: Any) -> Plan:
    """Return the plan of the loss `growing` on the tiny task; `values` are fields of its spec."""
    spec = {"name": "t", "losses": ["growing"], "tasks": [TINY], "seeds": 0, "recipe": SMALL}
    return make_plan(make_spec({**spec, **values}))


def plan_of_loss(**params: Any) -> Plan:
    """Return the plan of `growing` with these parameters; a list is an axis."""
    return planned(loss={"growing": params})


def one_cell(**params: Any) -> Cell:
    """Return the cell of `growing` with these parameters."""
    (cell,) = plan_of_loss(**params).cells
    return cell


def test_a_cell_with_the_neutral_value_keeps_its_old_id(install: Install) -> None:
    install(Before)
    before = one_cell(margin=1.0)
    install(After)
    assert one_cell(margin=1.0, shift=0).id == before.id


def test_another_value_has_another_id(install: Install) -> None:
    install(After)
    ids = {one_cell(shift=shift).id for shift in (0.0, 1.0, 2.0)}
    assert len(ids) == 3


def test_the_default_is_hashed_where_it_is_not_neutral(install: Install) -> None:
    install(After)
    default = one_cell()
    assert default.loss.params == {"margin": 0.0, "shift": 5.0}
    assert default.id == one_cell(shift=5.0).id
    assert default.id != one_cell(shift=0.0).id


def test_an_old_cell_is_built_with_the_neutral_value(install: Install) -> None:
    install(Before)
    cell = one_cell()
    install(After)
    built: Any = unbuilt_loss(cell)
    assert built.shift == 0.0


def test_loading_the_loss_by_name_gives_its_default(install: Install) -> None:
    install(After)
    loss: Any = load_loss("growing")
    assert loss.shift == 5.0


def test_an_old_cell_trains_as_it_did(install: Install, tmp_path: Path) -> None:
    install(Before)
    cell = one_cell()
    expected = train(cell, tmp_path / "before").history
    install(After)
    assert train(cell, tmp_path / "after").history == expected


def test_labels_name_the_value_that_is_not_neutral(install: Install) -> None:
    install(After)
    both = plan_of_loss(shift=[0.0, 1.0])
    assert {label.loss for label in both.labels.values()} == {"growing", "growing shift=1.0"}


def test_settings_of_a_plan_include_the_neutral_value(install: Install) -> None:
    install(After)
    written = plan_to_json(plan_of_loss(shift=[0.0, 1.0]))
    both = plan_from_json(written.encode())
    assert [both.params(cell)["loss.shift"] for cell in both.cells] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("published_shift", "differences"),
    [
        pytest.param(0.0, [], id="the neutral value"),
        pytest.param(1.0, ["shift 0.0 (published: 1.0)"], id="another value"),
    ],
)
def test_a_published_protocol_is_compared_with_the_neutral_value(
    install: Install, published_shift: float, differences: list[str]
) -> None:
    install(After)
    neutral = plan_of_loss(shift=0.0)
    params = [neutral.params(cell) for cell in neutral.cells]
    published = Published(
        metric="set_error",
        value=0.1,
        source="a paper",
        loss="growing",
        protocol={"loss.shift": published_shift},
    )
    assert deviations(published, params) == differences


def test_a_change_of_a_cell_leaves_an_absent_parameter_neutral(install: Install) -> None:
    install(After)
    choice = one_cell(margin=0.0, shift=0.0).loss
    assert changed_loss(choice, {"margin": 1.0}).params == {"margin": 1.0}


def test_a_change_of_a_cell_may_set_an_absent_parameter(install: Install) -> None:
    install(After)
    choice = one_cell(margin=0.0, shift=0.0).loss
    assert changed_loss(choice, {"shift": 2.0}).params == {"margin": 0.0, "shift": 2.0}


def test_a_subclass_without_the_parameter_is_not_given_it() -> None:
    assert neutral_values(WithoutShift) == {}


def test_a_misspelt_parameter_is_named() -> None:
    with pytest.raises(UsageError, match=r"'marjin'; did you mean 'margin'"):
        neutral_values(Mistaken)


class Counted:
    """A class with a parameter that was added later; its neutral value is 1."""

    added: ClassVar[Any] = MappingProxyType({"times": 1})

    def __init__(self, times: int | bool = 1) -> None: ...


@pytest.mark.parametrize(
    ("times", "kept"),
    [pytest.param(1, {}, id="one"), pytest.param(True, {"times": True}, id="true")],
)
def test_true_is_stored_where_one_is_neutral(times: int, kept: dict[str, Any]) -> None:
    # To Python, True equals 1.
    assert without_neutral(Counted, {"times": times}) == kept


def test_an_absent_parameter_comes_back_with_its_neutral_value() -> None:
    assert with_neutral(Counted, {}) == {"times": 1}


@pytest.fixture
def later_field(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the recipe's field `average_last` count as added later.

    Its neutral value is 0.5, which is not its default.
    """
    install(Before)
    monkeypatch.setattr(Recipe, "added", {"average_last": 0.5})


def cell_averaging(average_last: float | str) -> Cell:
    """Return a cell with this `average_last` in its recipe."""
    (cell,) = planned(recipe={**SMALL, "average_last": average_last}).cells
    return cell


@pytest.mark.usefixtures("later_field")
def test_a_field_of_the_recipe_is_left_out_where_neutral() -> None:
    assert "average_last" not in stored_recipe(cell_averaging(0.5).recipe)


@pytest.mark.usefixtures("later_field")
def test_a_field_of_the_recipe_is_kept_where_not_neutral() -> None:
    recipe = cell_averaging("none").recipe
    assert recipe.average_last is None
    assert stored_recipe(recipe)["average_last"] is None


@pytest.mark.usefixtures("later_field")
def test_a_cell_is_trained_with_the_neutral_value() -> None:
    assert setup_for_cell(cell_averaging(0.5), CPU, None).recipe.average_last == 0.5


@pytest.mark.usefixtures("later_field")
def test_a_changed_recipe_still_leaves_out_the_neutral_value() -> None:
    changed = changed_recipe(cell_averaging(0.5).recipe, {"lr": 0.5})
    assert changed.lr == 0.5
    assert "average_last" not in stored_recipe(changed)


def test_a_later_parameter_of_a_task_changes_no_id(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(Before)
    (before,) = planned().cells
    tiny = tasks().get(resolve(tasks(), TINY))
    # `size` counts as added later. Its neutral value, 6, is not its default.
    monkeypatch.setattr(tiny, "added", {"size": 6}, raising=False)
    (after,) = planned().cells
    assert after.id == before.id, "the default of `size` is hashed in both ids"


def test_a_later_parameter_of_a_task_is_filled_in(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(Before)
    tiny = tasks().get(resolve(tasks(), TINY))
    # `size` counts as added later.
    monkeypatch.setattr(tiny, "added", {"size": 6}, raising=False)
    (neutral,) = planned(task={"tiny": {"size": 6}}).cells
    assert "size" not in neutral.task.params
    built: Any = task_for(neutral)
    assert built.size == 6


def small_network(inputs: int, num_classes: int, seed: int, width: int = 9) -> Network:
    """Return a network with a hidden layer. Tests let its `width` count as added later."""
    return InstanceMLP(inputs, num_classes, seed, hidden=width)


@pytest.mark.parametrize(
    ("width", "stored"),
    [
        pytest.param(4, {}, id="neutral value"),
        pytest.param(9, {"width": 9}, id="another value"),
    ],
)
def test_a_later_parameter_of_a_network_function_is_filled_in(
    install: Install, monkeypatch: pytest.MonkeyPatch, width: int, stored: dict[str, int]
) -> None:
    install(Before)
    monkeypatch.setattr(small_network, "added", {"width": 4}, raising=False)
    entry: Any = RegistryEntry("small-network", "milbench", lambda: small_network, __name__)
    monkeypatch.setitem(networks().entries, "small-network", entry)
    table = {"small-network": {"width": width}}

    (cell,) = planned(networks=["small-network"], network=table).cells
    setup = setup_for_cell(cell, CPU, None)
    network = network_for(cell, task_for(cell), setup.problem.format, setup.model.loss)

    assert cell.network.params == stored
    # The inputs of the last layer are the outputs of the hidden layer.
    head = network.get_parameter("head.weight")
    assert head.shape[1] == width


def test_the_file_of_a_plan_lists_the_neutral_values(install: Install) -> None:
    install(After)
    written = json.loads(plan_to_json(plan_of_loss(shift=0.0)))
    assert written["neutral"] == {"loss growing": {"shift": 0.0}}
