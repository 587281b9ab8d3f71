"""The store on real servers of MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests._helpers.command_line import TINY, Milbench
from tests._helpers.mlflow_server import MlflowServer


@pytest.fixture(params=["sqlite_server", "postgres_server"])
def server(request: pytest.FixtureRequest, root: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowServer:
    """Each of the servers, which the root's store is on."""
    found: MlflowServer = request.getfixturevalue(request.param)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", found.uri)
    return found


def test_a_comparison_on_a_server_is_computed_once_and_reported(
    server: MlflowServer, milbench: Milbench, root: Path
) -> None:
    words = ("run", "--loss", "exact,noisy-or", "--task", TINY, "--name", "served")
    assert milbench(*words).code == 0
    assert "nothing to run" in milbench(*words).out
    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name("served")
    cells = client.search_runs([experiment.experiment_id], "tags.`milbench.kind` = 'cell'")
    assert {(run.info.run_name, run.info.status) for run in cells} == {
        ("exact on tiny, seed 0", "FINISHED"),
        ("noisy-or on tiny, seed 0", "FINISHED"),
    }
    milbench("report", "served")
    page = (root / "reports" / "served" / "index.html").read_text()
    for run in cells:
        assert f"{100 * run.data.metrics['test/instance_error']:.1f}" in page
