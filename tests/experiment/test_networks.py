"""Networks as an axis of a comparison: what they share, what tells their cells apart, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from milbench import UsageError
from milbench.experiment.flags import apply_assignment
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan
from milbench.experiment.spec_files import make_spec
from milbench.networks.known_networks import networks
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.small_data import PARAMS
from tests._helpers.training import normed_network, small_cell, train


def planned(*settings: str, **values: Any) -> Plan:
    fields = {"name": "t", "losses": ["exact", "one-vs-rest"], "tasks": [TINY], **values}
    for setting in settings:
        apply_assignment(fields, setting)
    return make_plan(make_spec(fields))


def test_every_loss_is_trained_with_every_network_and_a_loss_may_have_its_own() -> None:
    plan = planned(
        networks=["mlp", "linear"], loss={"one-vs-rest": {"networks": ["gated-attention"]}}
    )
    pairs = [("exact", "mlp"), ("exact", "linear"), ("one-vs-rest", "gated-attention")]
    assert [(cell.loss.name, cell.network.name) for cell in plan.cells] == pairs
    assert len({cell.id for cell in plan.cells}) == 3
    assert [label.variant for label in plan.labels.values()] == [
        f"{loss} with {network}" for loss, network in pairs
    ]
    again = planned("loss.one-vs-rest.networks=gated-attention", networks=["mlp", "linear"])
    assert [cell.id for cell in again.cells] == [cell.id for cell in plan.cells]
    default, by_name = planned(losses=["exact"]), planned(losses=["exact"], networks=["mlp"])
    assert (
        [cell.id for cell in default.cells]
        == [cell.id for cell in by_name.cells]
        == [plan.cells[0].id]
    )


def test_settings_reach_the_networks_that_have_such_a_parameter_and_tell_cells_apart() -> None:
    names = ["mlp", "linear", "gated-attention"]
    plan = planned("network.hidden=7,9", losses=["one-vs-rest"], networks=names)
    params = [(cell.network.name, cell.network.params) for cell in plan.cells]
    assert params == [(n, {"hidden": h}) for n in ("mlp",) for h in (7, 9)] + [("linear", {})] + [
        ("gated-attention", {"hidden": h}) for h in (7, 9)
    ]
    plan = planned("network.mlp.hidden=7", losses=["one-vs-rest"], networks=names)
    assert [cell.network.params.get("hidden") for cell in plan.cells] == [7, None, 128]
    assert plan.cells[0].params()["network.hidden"] == 7
    ids = [planned(f"network.mlp.hidden={h}", losses=["exact"]).cells[0].id for h in (7, 9)]
    assert ids[0] != ids[1]
    for task, key, of_tiny in (("synthetic-bags", "hidden", 16), ("sound-events", "stride", None)):
        several = planned(f"network.{key}=16", losses=["exact"], tasks=[task, TINY])
        assert [(c.task.name, c.network.params.get(key)) for c in several.cells] == [
            (task, 16),
            ("tiny", of_tiny),
        ]


def test_a_network_in_a_file_counts_by_what_is_in_it_and_is_refused_when_it_was_edited(
    tmp_path: Path,
) -> None:
    file = Path(normed_network(tmp_path))
    cell = small_cell(networks=[str(file)])
    assert (cell.network.name, cell.network.source) == ("normed", str(file))
    train(cell, tmp_path / "c")
    (tmp_path / "elsewhere").mkdir()
    copy = file.rename(tmp_path / "elsewhere" / "copy.py")
    networks.cache_clear()  # as in another process
    assert small_cell(networks=[str(copy)]).id == cell.id
    copy.write_text(copy.read_text() + "\n# edited\n")
    networks.cache_clear()
    assert small_cell(networks=[str(copy)]).id != cell.id
    file.write_text(copy.read_text())
    networks.cache_clear()
    with pytest.raises(UsageError, match=r"normed\.py was changed after the cell was planned"):
        train(cell, tmp_path / "d")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("exact", TINY, "mpl"),
            "head softmax; did you mean 'mlp'? (there are: mlp, linear, context; ",
        ),
        (
            ("exact", TINY, "gated-attention"),
            "'gated-attention' is no network for tiny and a loss with",
        ),
        (
            ("exact", "sound-events", "mlp"),
            "conv, gru, context; for losses with the head sigmoid also dsmil, gated-attention, set-",
        ),
        (("exact", "image-bags", "gru"), "'gru' is no network for image-bags"),
        (("exact", "image-bags", "resnet18", "-p", "network.weights=absent.pth"), "absent.pth"),
        (
            ("exact", "image-bags", "resnet18", "-p", "network.stride=32"),
            "2 classes, and the network 1 positions",
        ),
        (("exact", "mnist", "resnet19"), ", and torchvision's, such as resnet18; "),
        (("cross-entropy", TINY, "default"), "tiny has no network for losses with the head class"),
        (
            ("cross-entropy", "cifar10", "resnet18"),
            "is no network for cifar10 and a loss with the head class",
        ),
        (
            ("cross-entropy", "cifar10", "context"),
            "'context' is no network for cifar10 and a loss with the head class",
        ),
        (("exact", TINY, "absent.py"), "no file absent.py to load a network from"),
        (("exact", TINY, TINY), "tiny_task.py holds 2 network entries: name one of them, "),
        (
            ("exact", TINY, "mlp", "-p", "network.width=3"),
            "unknown parameter of network mlp 'width'",
        ),
        (
            ("exact", TINY, "mlp", "-p", "network.linear.hidden=3"),
            "unknown network of this run (-p network.linear.",
        ),
        (("exact", TINY, "mlp", "-p", "network.hidden=0"), "network mlp: hidden = 0 is wrong"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else "",
)
def test_a_network_that_does_not_suit_is_one_line(
    words: tuple[str, ...], says: str, milbench: Milbench, root: Path, data_of_all: Path
) -> None:
    loss, task, network, *more = words
    own = [
        word
        for key, value in PARAMS.get(task, {}).items()
        for word in ("-p", f"task.{key}={value}".lower())
    ]
    ran = milbench(
        "run",
        "--loss",
        loss,
        "--task",
        task,
        "--network",
        network,
        *more,
        *own,
        "--data-dir",
        str(data_of_all),
    )
    assert says in ran.complaint()
    assert not list(root.glob("runs/cells/*"))
