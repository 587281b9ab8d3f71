"""The predictions of a published report: whoever has them computes its metrics again."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score

import milbench
from milbench import Comparison
from milbench.contracts.predictions import Predictions, load_predictions
from milbench.evaluation.metrics import THRESHOLD, metrics_of
from milbench.report.published_reports import read, save

RECIPE = {"epochs": 2, "steps_per_epoch": 3, "precision": "float32"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two losses on synthetic bags, each with two seeds."""
    return milbench.compare(
        ["exact", "one-vs-rest"],
        "synthetic-bags",
        seeds="0-1",
        name="small",
        root=tmp_path_factory.mktemp("trained"),
        recipe=RECIPE,
        progress=False,
        in_process=True,
    )


@pytest.fixture(scope="module")
def published(trained: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its published report."""
    folder = tmp_path_factory.mktemp("published")
    save(trained.results, folder)
    return folder


def predictions_of(report: Path) -> dict[str, Predictions]:
    """Return the predictions of every cell of a published report after its last epoch."""
    files = sorted((report / "predictions").glob("*.npz"))
    return {path.stem: load_predictions(path)["last"][1] for path in files}


def values_in_frame(report: Path) -> pd.Series:
    """Return the values of the report's frame after the last epoch, by cell and metric."""
    frame = pd.read_csv(report / "results.csv.gz")
    return frame.sort_values("epoch").groupby(["cell", "metric"])["value"].last()


def test_every_compared_cell_has_predictions(trained: Comparison, published: Path) -> None:
    assert set(predictions_of(published)) == {cell.id for cell in trained.results.plan.cells}
    assert len(predictions_of(published)) == 4


def test_the_set_error_follows_from_presence_and_threshold(published: Path) -> None:
    values = values_in_frame(published)
    for cell, predictions in predictions_of(published).items():
        test = predictions["test"]
        predicted = test.presence >= values[cell, THRESHOLD]
        set_error = np.mean((predicted != test.labels).any(axis=1))
        assert set_error == pytest.approx(values[cell, "test/set_error"])


def test_average_precision_follows_from_presence(published: Path) -> None:
    values = values_in_frame(published)
    for cell, predictions in predictions_of(published).items():
        test = predictions["test"]
        precision = average_precision_score(test.labels, test.presence)
        assert precision == pytest.approx(values[cell, "test/average_precision"])


def test_all_metrics_of_whole_bags_follow(published: Path) -> None:
    values = values_in_frame(published)
    for cell, predictions in predictions_of(published).items():
        again = metrics_of(predictions)
        in_frame = {metric for metric in values[cell].index if metric.startswith("test/")}
        # Bags of one instance are left out, since no verdict is by them. The optimum that this task
        # knows is among `known`.
        missing = in_frame - set(again)
        assert {name for name in missing if "instance_error" not in name} == set()
        for metric in in_frame & set(again):
            assert again[metric] == pytest.approx(values[cell, metric], rel=1e-6), metric


def test_predictions_are_kept_in_full_precision(trained: Comparison, published: Path) -> None:
    by_cell = predictions_of(published)
    by_loss_and_seed = trained.predictions()
    for cell in trained.results.plan.cells:
        kept = by_cell[cell.id]["test"].presence
        assert np.array_equal(kept, by_loss_and_seed[cell.loss.name, cell.seed]["test"].presence)


def test_a_copy_of_a_published_report_has_its_predictions(published: Path, tmp_path: Path) -> None:
    save(read(published), tmp_path / "copy")
    names = sorted(path.name for path in (published / "predictions").iterdir())
    assert names
    assert sorted(path.name for path in (tmp_path / "copy" / "predictions").iterdir()) == names
