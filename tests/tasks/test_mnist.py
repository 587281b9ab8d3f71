from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from milbench import Bags, Scores, generator, load_task
from milbench.engine.parts import typical_positions
from milbench.families import single_image
from tests._helpers.networks import new_network
from tests._helpers.small_data import small_mnist

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
    network, baseline = new_network(task), new_network(task, head="class")
    assert sum(p.numel() for p in network.parameters()) == 429_131  # 0.41 M with M = 2^20
    assert sum(p.numel() for p in baseline.parameters()) == 429_131 - 1601
    assert network(batches[0].instances[:2]).shape == (2, 11, 4, 4)
    assert typical_positions(network, task) == 16
    logits = baseline(batches[0].instances[:2])
    assert logits.shape == (2, 11, 1, 1)
    assert (logits[:, 10] == 0).all()
    assert {k for k, v in network.state_dict().items() if torch.equal(v, baseline.state_dict()[k][: len(v)])} == {
        k for k in network.state_dict() if k.startswith("body")
    }


@pytest.mark.parametrize("validation", [0, 20])
def test_every_held_out_image_is_scored_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, validation: int) -> None:
    monkeypatch.setattr(single_image, "IMAGES_PER_EVAL_BATCH", 7)
    monkeypatch.setattr(single_image, "CALIBRATION_IMAGES", 12)
    task = make(tmp_path, validation=validation)
    train, test = task.load(tmp_path)
    chosen_on = train[-20:] if validation else train[:12]  # the validation split, else the first training images
    seen: list[Tensor] = []

    def score(bags: Bags) -> Scores:
        seen.append(bags.instances)
        labels = bags.labels.double()
        return Scores(labels, labels, labels[:, :, None, None])

    assert task.evaluate(score).metrics["test/instance_error"] == 0
    assert torch.equal(torch.cat(seen) * 255, torch.cat([chosen_on.pixels, test.pixels]).float())
