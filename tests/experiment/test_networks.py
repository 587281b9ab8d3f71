"""Networks as an axis of a comparison: which cells there are, their ids, and what is refused."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from milbench import UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.flags import apply_assignment
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan
from milbench.experiment.spec_files import make_spec
from milbench.networks.known_networks import networks
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.small_data import PARAMS
from tests._helpers.training import normed_network, small_cell, train


def planned(*settings: str, **values: Any) -> Plan:
    """Return the plan of two losses on the tiny task.

    Args:
        settings: assignments, as by the flag -p.
        values: other fields of the spec.
    """
    fields = {"name": "t", "losses": ["exact", "one-vs-rest"], "tasks": [TINY], **values}
    for setting in settings:
        apply_assignment(fields, setting)
    return make_plan(make_spec(fields))


def pairs_of(plan: Plan) -> list[tuple[str, str]]:
    """Return the loss and the network of every cell."""
    return [(cell.loss.name, cell.network.name) for cell in plan.cells]


def ids_of(plan: Plan) -> list[str]:
    return [cell.id for cell in plan.cells]


def test_every_loss_is_trained_with_every_network() -> None:
    plan = planned(networks=["mlp", "linear"])
    assert pairs_of(plan) == [
        ("exact", "mlp"),
        ("exact", "linear"),
        ("one-vs-rest", "mlp"),
        ("one-vs-rest", "linear"),
    ]
    assert len(set(ids_of(plan))) == 4


def test_a_loss_may_have_networks_of_its_own() -> None:
    own = {"one-vs-rest": {"networks": ["gated-attention"]}}
    plan = planned(networks=["mlp", "linear"], loss=own)
    assert pairs_of(plan) == [
        ("exact", "mlp"),
        ("exact", "linear"),
        ("one-vs-rest", "gated-attention"),
    ]
    assert [label.variant for label in plan.labels.values()] == [
        "exact with mlp",
        "exact with linear",
        "one-vs-rest with gated-attention",
    ]


def test_an_assignment_gives_a_loss_networks_of_its_own() -> None:
    by_spec = planned(networks=["mlp"], loss={"one-vs-rest": {"networks": ["gated-attention"]}})
    by_flag = planned("loss.one-vs-rest.networks=gated-attention", networks=["mlp"])
    assert ids_of(by_flag) == ids_of(by_spec)


def test_the_default_network_is_the_first_one_by_name() -> None:
    by_name = planned(losses=["exact"], networks=["mlp"])
    assert ids_of(planned(losses=["exact"])) == ids_of(by_name)


SEVERAL = ["mlp", "linear", "gated-attention"]


def test_an_axis_reaches_the_networks_that_have_the_parameter() -> None:
    plan = planned("network.hidden=7,9", losses=["one-vs-rest"], networks=SEVERAL)
    assert [(cell.network.name, cell.network.params) for cell in plan.cells] == [
        ("mlp", {"hidden": 7}),
        ("mlp", {"hidden": 9}),
        ("linear", {}),
        ("gated-attention", {"hidden": 7}),
        ("gated-attention", {"hidden": 9}),
    ]


def test_a_setting_may_be_for_one_network_alone() -> None:
    plan = planned("network.mlp.hidden=7", losses=["one-vs-rest"], networks=SEVERAL)
    widths = [cell.network.params.get("hidden") for cell in plan.cells]
    # A linear network has no hidden layer, and gated attention keeps its default of 128.
    assert widths == [7, None, 128]
    assert plan.cells[0].params()["network.hidden"] == 7


def test_another_parameter_of_a_network_is_another_cell() -> None:
    narrow = planned("network.mlp.hidden=7", losses=["exact"])
    wide = planned("network.mlp.hidden=9", losses=["exact"])
    assert ids_of(narrow) != ids_of(wide)


@pytest.mark.parametrize(
    ("task", "key", "of_tiny"),
    [
        pytest.param("synthetic-bags", "hidden", 16, id="both networks have it"),
        pytest.param("sound-events", "stride", None, id="one network has it"),
    ],
)
def test_a_setting_reaches_every_network_that_has_it(
    task: str, key: str, of_tiny: int | None
) -> None:
    plan = planned(f"network.{key}=16", losses=["exact"], tasks=[task, TINY])
    values = {cell.task.name: cell.network.params.get(key) for cell in plan.cells}
    assert values == {task: 16, "tiny": of_tiny}


def cell_of_file(file: Path) -> Cell:
    """Return a cell with the network in a file, which is read again as in a new process."""
    networks.cache_clear()
    return small_cell(networks=[str(file)])


def test_a_network_in_a_file_is_named_by_its_class(tmp_path: Path) -> None:
    file = Path(normed_network(tmp_path))
    cell = cell_of_file(file)
    assert cell.network.name == "normed"
    assert cell.network.source == str(file)


def test_a_network_file_that_was_moved_is_the_same_cell(tmp_path: Path) -> None:
    file = Path(normed_network(tmp_path))
    before = cell_of_file(file)
    moved = file.rename(tmp_path / "moved.py")
    assert cell_of_file(moved).id == before.id


def test_a_network_that_was_edited_is_another_cell(tmp_path: Path) -> None:
    file = Path(normed_network(tmp_path))
    before = cell_of_file(file)
    file.write_text(file.read_text() + "\n# edited\n")
    assert cell_of_file(file).id != before.id


def test_a_network_edited_after_planning_is_not_trained(tmp_path: Path) -> None:
    file = Path(normed_network(tmp_path))
    cell = cell_of_file(file)
    train(cell, tmp_path / "before")
    file.write_text(file.read_text() + "\n# edited\n")
    networks.cache_clear()
    with pytest.raises(UsageError, match=r"normed\.py was changed after the cell was planned"):
        train(cell, tmp_path / "after")


@dataclass(frozen=True)
class Wrong:
    """A loss, a task and a network that do not fit together, and the complaint that says so."""

    loss: str
    task: str
    network: str
    complaint: str
    assignments: tuple[str, ...] = ()


WRONG_NETWORKS = [
    pytest.param(
        Wrong(
            "exact",
            TINY,
            "mpl",
            "head softmax; did you mean 'mlp'? (there are: mlp, linear, context; ",
        ),
        id="misspelt",
    ),
    pytest.param(
        Wrong(
            "exact",
            TINY,
            "gated-attention",
            "'gated-attention' is no network for tiny and a loss with",
        ),
        id="for other losses",
    ),
    pytest.param(
        Wrong(
            "exact",
            "sound-events",
            "mlp",
            "conv, gru, context; for losses with the head sigmoid also dsmil, gated-attention, ",
        ),
        id="of another task",
    ),
    pytest.param(
        Wrong("exact", "image-bags", "gru", "'gru' is no network for image-bags"),
        id="for another kind of bags",
    ),
    pytest.param(
        Wrong("exact", "image-bags", "resnet18", "absent.pth", ("network.weights=absent.pth",)),
        id="file of weights missing",
    ),
    pytest.param(
        Wrong(
            "exact",
            "image-bags",
            "resnet18",
            "2 classes, and the network 1 positions",
            ("network.stride=32",),
        ),
        id="fewer positions than classes",
    ),
    pytest.param(
        Wrong("exact", "mnist", "resnet19", ", and torchvision's, such as resnet18; "),
        id="no network of torchvision",
    ),
    pytest.param(
        Wrong(
            "cross-entropy", TINY, "default", "tiny has no network for losses with the head class"
        ),
        id="task without a classifier",
    ),
    pytest.param(
        Wrong(
            "cross-entropy",
            "cifar10",
            "resnet18",
            "is no network for cifar10 and a loss with the head class",
        ),
        id="torchvision's for a class of the bag",
    ),
    pytest.param(
        Wrong(
            "cross-entropy",
            "cifar10",
            "context",
            "'context' is no network for cifar10 and a loss with the head class",
        ),
        id="context for a class of the bag",
    ),
    pytest.param(
        Wrong("exact", TINY, "absent.py", "no file absent.py to load a network from"),
        id="file missing",
    ),
    pytest.param(
        Wrong("exact", TINY, TINY, "tiny_task.py holds 2 network entries: name one of them, "),
        id="file of two networks",
    ),
    pytest.param(
        Wrong(
            "exact", TINY, "mlp", "unknown parameter of network mlp 'width'", ("network.width=3",)
        ),
        id="parameter unknown",
    ),
    pytest.param(
        Wrong(
            "exact",
            TINY,
            "mlp",
            "unknown network of this run (-p network.linear.",
            ("network.linear.hidden=3",),
        ),
        id="parameter of a network that was not chosen",
    ),
    pytest.param(
        Wrong("exact", TINY, "mlp", "network mlp: hidden = 0 is wrong", ("network.hidden=0",)),
        id="parameter out of range",
    ),
]


@pytest.mark.parametrize("wrong", WRONG_NETWORKS)
def test_a_network_that_does_not_fit_is_refused_in_one_line(
    wrong: Wrong, milbench: Milbench, root: Path, data_of_all: Path
) -> None:
    chosen = ["--loss", wrong.loss, "--task", wrong.task, "--network", wrong.network]
    settings = []
    for assignment in wrong.assignments:
        settings += ["-p", assignment]
    for key, value in PARAMS.get(wrong.task, {}).items():
        # TOML writes true where Python writes True.
        settings += ["-p", f"task.{key}={value}".lower()]

    ran = milbench("run", *chosen, *settings, "--data-dir", str(data_of_all))

    assert wrong.complaint in ran.complaint()
    assert not list(root.glob("runs/cells/*"))
