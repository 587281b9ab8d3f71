from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from milbench import UsageError
from milbench._utils import interrupts
from milbench.api.plan import Plan
from milbench.api.registry import losses, tasks
from milbench.engine import smoke_test
from milbench.engine.planning import make_plan
from milbench.engine.pools import InProcess
from milbench.engine.smoke_test import one_a_pair
from milbench.engine.spec import make_spec
from tests._helpers.command_line import PLUGINS, TINY, Milbench
from tests._helpers.faulty_loss import SOURCE, names_the_method


def plan(fault: str, *other: str) -> Plan:
    losses = [*other, str(SOURCE)]
    return make_plan(
        make_spec({"name": "t", "losses": losses, "tasks": [TINY], "loss": {"faulty": {"fault": fault}}}), None
    )


def check(plan: Plan) -> None:
    smoke_test._first_batch.cache_clear()  # of another test
    InProcess(threading.Event()).check(one_a_pair(plan.cells), None, None)


@pytest.mark.parametrize(
    ("fault", "method", "complaint"),
    [
        ("scalar", "bag_loss", "(8,) from bag_loss, got ()"),
        ("detached", "bag_loss", "values with a gradient from bag_loss, got values that are detached from the logits"),
        ("other", "bag_loss", "values with a gradient from bag_loss, got values that do not depend on the logits"),
        ("infinite", "bag_loss", "finite values from bag_loss, got inf for 1 of 8 bags"),
        ("nan gradient", "bag_loss", "values with a finite gradient from bag_loss, got inf for 8 of 8 bags"),
        ("zero gradient", "bag_loss", "values with a gradient from bag_loss, got one that is 0 for all of the 8 bags"),
        ("scores with background", "scores", "(8, 3) from scores, got (8, 4)"),
        ("nan scores", "scores", "scores that can be compared from scores, got nan"),
        ("nan evidence", "evidence", "values that can be compared from evidence, got nan"),
        ("one presence", "presence", "(8, 3) from presence, got (8,)"),
        ("posterior of a bag", "posterior", "(8, 4, 5) from posterior, got (8, 4)"),
        ("log posterior", "posterior", "probabilities from posterior, got values from -"),
        ("posterior over positions", "posterior", "probabilities that sum to 1 over the channels from posterior, got"),
    ],
)
def test_a_loss_that_returns_what_it_must_not_is_refused_with_its_place(
    fault: str, method: str, complaint: str
) -> None:
    with pytest.raises(UsageError) as error:
        check(plan(fault))
    assert str(error.value).startswith("faulty on the first batch of tiny: loss faulty ")
    assert f"must return {complaint}" in str(error.value)
    assert names_the_method(str(error.value), method)


def test_a_faulty_loss_is_refused_before_anything_is_planned(milbench: Milbench, root: Path) -> None:
    words = ["run", "--loss", "exact", "--loss", str(SOURCE), "--task", TINY, "-p", "loss.faulty.fault=scalar"]
    assert "must return (8,) from bag_loss, got ()" in milbench(*words).complaint()
    assert "nothing was run yet" in milbench("status").complaint()


@pytest.mark.parametrize("fault", ["exit", "interrupt"])
def test_a_loss_that_ends_its_process_does_not_end_the_check(fault: str) -> None:
    check(plan(fault))


def test_ctrl_c_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = tasks().cls(TINY).prepare

    def interrupted(self: object, data_dir: Path | None, device: torch.device) -> None:
        prepare(self, data_dir, device)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(tasks().cls(TINY), "prepare", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        check(plan(""))
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_an_interrupt_is_taken_for_the_users() -> None:
    found: list[Callable[[], bool]] = []

    def watch() -> None:
        with interrupts.watched() as came:
            found.append(came)

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert found[0]()


def test_every_built_in_loss_passes() -> None:
    names = [name for name in losses().names() if losses().cls(name).head != "class" and name != "ctc"]
    names += [str(PLUGINS / "learning_loss.py"), str(PLUGINS / "weighted_loss.py")]
    variants = {"max-pooling": {"normalization": ["bag", "batch", "position"]}, "noisy-or": {"head": ["softmax"]}}
    values = {"losses": names, "tasks": [TINY], "loss": variants, "supervision": ["set", "count", "position"]}
    check(make_plan(make_spec({"name": "t", **values}), None))


def test_a_loss_without_anything_to_learn_from_full_label_sets_is_no_fault() -> None:
    values = {"losses": ["superset"], "tasks": ["synthetic-bags"]}
    full = {"synthetic-bags": {"num_classes": 1, "label_sets": "constant"}}
    check(make_plan(make_spec({"name": "t", **values, "task": full}), None))
