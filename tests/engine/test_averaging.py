"""The mean of weights, against the weights of every step written down by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from milbench.api.recipe import Recipe
from milbench.engine import trainer as trainer_module
from milbench.engine.averaging import Averaging
from tests._helpers.training import Recorder, small_cell, train

STEPS = 8  # two epochs of four


def weights_by_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """Return the weights after every step of a training without a mean."""
    seen: list[dict[str, torch.Tensor]] = []
    step = trainer_module.Trainer._train_step

    def watched(self: trainer_module.Trainer, *arguments: object) -> torch.Tensor:
        value = step(self, *arguments)  # type: ignore[arg-type]
        seen.append({name: weight.detach().clone() for name, weight in self.model.state_dict().items()})
        return value

    monkeypatch.setattr(trainer_module.Trainer, "_train_step", watched)
    train(small_cell(recipe={"epochs": 2}), folder / "plain.pt")
    monkeypatch.undo()
    return seen


@pytest.mark.parametrize(("share", "last"), [(1.0, 8), (0.5, 4), (0.3, 2), (0.01, 1)])
def test_the_kept_weights_are_the_mean_of_those_after_the_last_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, last: int
) -> None:
    seen = weights_by_step(tmp_path, monkeypatch)
    assert len(seen) == STEPS
    found = train(small_cell(recipe={"epochs": 2, "average_last": share}), tmp_path / "mean.pt").weights
    for name, weight in found.items():
        expected = torch.stack([weights[name].double() for weights in seen[-last:]]).mean(dim=0)
        torch.testing.assert_close(weight.double(), expected, rtol=1e-5, atol=1e-6)
    name = next(iter(found))
    assert last == 1 or not torch.equal(found[name], seen[-1][name])


def test_training_does_not_see_the_mean_and_the_evaluation_does(tmp_path: Path) -> None:
    plain = train(small_cell(recipe={"epochs": 2}), tmp_path / "plain.pt", Recorder()).history
    mean = train(small_cell(recipe={"epochs": 2, "average_last": 0.5}), tmp_path / "mean.pt", Recorder()).history
    assert [row["train/loss"] for row in plain] == [row["train/loss"] for row in mean]
    scores = [key for key in plain[0] if key.startswith("test/")]
    assert [plain[0][key] for key in scores] == pytest.approx([mean[0][key] for key in scores], nan_ok=True), (
        "not begun"
    )
    assert [plain[1][key] for key in scores] != [mean[1][key] for key in scores]


def test_a_recipe_without_a_mean_is_stored_as_before_there_was_one() -> None:
    assert "average_last" not in Recipe().model_dump()
    assert Recipe.from_stored({}).average_last is None


def test_a_model_gets_its_own_weights_back_whatever_happens_meanwhile() -> None:
    model = torch.nn.Linear(2, 1)
    averaging = Averaging(model, first=1)
    averaging.count(1)
    with torch.no_grad():
        model.weight += 2
    averaging.count(2)
    own = model.weight.detach().clone()

    def fail() -> None:
        with averaging.applied():
            torch.testing.assert_close(model.weight.detach(), own - 1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert torch.equal(model.weight, own)


def test_layers_that_count_batches_are_averaged_where_torch_takes_all_weights_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a GPU torch does so by default, by a division that it refuses for whole numbers: here on the CPU too."""
    monkeypatch.setattr("torch.optim.swa_utils._get_foreach_kernels_supported_devices", lambda: ["cpu"])
    model = torch.nn.BatchNorm1d(3)
    averaging = Averaging(model, first=1)
    for done in (1, 2, 3):
        model.running_mean = torch.full((3,), float(done))
        averaging.count(done)
    averaging.apply()
    assert model.running_mean is not None
    assert model.running_mean.tolist() == [2.0, 2.0, 2.0]
