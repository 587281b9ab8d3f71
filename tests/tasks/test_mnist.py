from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from milbench import generator, load_loss, load_task
from milbench.api import gallery
from milbench.api.targets import make_target
from tests._helpers.small_data import small_mnist
from tests._helpers.training import small_cell, train

CPU = torch.device("cpu")


def make(root: Path | None = None, **params: Any) -> Any:
    task = load_task("mnist", any_data=True, **params)
    if root is not None:
        task.prepare(small_mnist(root), CPU)
    return task


def test_the_published_protocol(tmp_path: Path) -> None:
    task = make(tmp_path, validation=0)
    batches = list(task.train_batches(0, generator(1)))
    assert [len(bags) for bags in batches] == [64, 56]
    assert task.steps_per_epoch == 2
    assert torch.cat([bags.truth.classes.flatten() for bags in batches]).bincount().tolist() == [12] * 10
    assert all(bags.instances.shape[1:] == (1, 28, 28) for bags in batches)
    assert all(bags.instances.min() >= 0 and bags.instances.max() == 1 for bags in batches)
    network, baseline = task.network(0), task.classifier(0)
    assert sum(p.numel() for p in network.parameters()) == 429_131  # 0.41 M with M = 2^20
    assert sum(p.numel() for p in baseline.parameters()) == 429_131 - 1601
    assert network(batches[0].instances[:2]).shape == (2, 11, 4, 4)
    assert task.positions == 16
    logits = baseline(batches[0].instances[:2])
    assert logits.shape == (2, 11, 1, 1)
    assert (logits[:, 10] == 0).all()
    assert {k for k, v in network.state_dict().items() if torch.equal(v, baseline.state_dict()[k][: len(v)])} == {
        k for k in network.state_dict() if k.startswith("body")
    }


def test_every_position_and_one_instance_are_what_targets_hold(tmp_path: Path) -> None:
    task = make(tmp_path, validation=0)
    bags, network = next(iter(task.train_batches(0, generator(1)))), task.network(0)
    logits = network(bags.instances)
    positions, counts = (make_target(load_loss(name), bags, logits, network) for name in ("position", "count"))
    assert positions is not None
    assert counts is not None
    assert torch.equal(positions, bags.truth.classes.view(-1, 1, 1).expand(64, 4, 4))
    assert torch.equal(counts, bags.labels.long())
    assert (bags.labels.sum(dim=1) == 1).all()


@pytest.mark.parametrize("loss", ["exact", "cross-entropy"])
def test_it_trains_and_leaves_pictures(tmp_path: Path, loss: str) -> None:
    root = small_mnist(tmp_path)
    recipe = {"epochs": 1, "steps_per_epoch": 1, "precision": "float32"}
    params = {"any_data": True, "validation": 20}
    cell = small_cell(loss, task_name="mnist", task={"mnist": params}, recipe=recipe, run={"data_dir": root})
    trained = train(cell, tmp_path / "cell", data_dir=root)
    assert {name for _, name in trained.history} >= {"test/instance_error", "validation/set_error"}
    seen = gallery.load(trained.folder.gallery)
    assert seen.probs.shape == ((8, 11, 4, 4) if loss == "exact" else (8, 11, 1, 1))
    assert np.allclose(seen.probs.astype(float).sum(axis=1), 1, atol=0.01)
    assert all(side is not None and abs(float(side.mean()) - 14) <= 0.5 for side in (seen.ys, seen.xs))
