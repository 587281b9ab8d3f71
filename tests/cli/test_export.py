"""`milbench export`: the frame of a comparison as a table in a file."""

from pathlib import Path

import pandas as pd
import pytest

from milbench import results
from milbench.cli.export import one_type_a_column
from tests._helpers.command_line import SMALL, Milbench


@pytest.fixture
def trained(milbench: Milbench, root: Path) -> pd.DataFrame:
    """The frame of a comparison that was computed in `root`."""
    milbench("run", "--loss", "exact,isr", "--task", "synthetic-bags", *SMALL).done()
    return results(root).frame


def test_a_csv_file_has_the_frame_of_the_comparison(
    milbench: Milbench, trained: pd.DataFrame, tmp_path: Path
) -> None:
    said = milbench("export", "--out", str(tmp_path / "frame.csv")).done()
    assert f"wrote {len(trained):,} rows of 2 cells to {tmp_path}/frame.csv" in said
    written = pd.read_csv(tmp_path / "frame.csv")
    assert list(written.columns) == list(trained.columns)
    assert written["metric"].tolist() == trained["metric"].tolist()
    assert written["value"].tolist() == trained["value"].tolist()


def test_a_parquet_file_has_the_frame_of_the_comparison(
    milbench: Milbench, trained: pd.DataFrame, tmp_path: Path
) -> None:
    milbench("export", "--out", str(tmp_path / "frame.parquet")).done()
    written = pd.read_parquet(tmp_path / "frame.parquet")
    assert list(written.columns) == list(trained.columns)
    assert written["metric"].tolist() == trained["metric"].tolist()
    assert written["value"].tolist() == trained["value"].tolist()


def test_settings_of_several_types_become_text_in_parquet(tmp_path: Path) -> None:
    settings = pd.DataFrame({"loss.k": [3, "all", None], "recipe.lr": [0.1, 0.2, None]})
    one_type_a_column(settings).to_parquet(tmp_path / "settings.parquet")
    read = pd.read_parquet(tmp_path / "settings.parquet")
    assert read["loss.k"].dropna().tolist() == ["3", "all"]
    assert read["recipe.lr"].dropna().tolist() == [0.1, 0.2]


@pytest.mark.parametrize("name", ["frame.zip", "frame.json", "frame"])
def test_another_ending_is_refused(milbench: Milbench, name: str) -> None:
    complaint = milbench("export", "--out", name).complaint()
    assert complaint == f"--out {name}: expected a name that ends in .csv or .parquet"


def test_a_folder_is_not_overwritten(
    milbench: Milbench, trained: pd.DataFrame, tmp_path: Path
) -> None:
    (tmp_path / "folder.csv").mkdir()
    assert "folder.csv" in milbench("export", "--out", str(tmp_path / "folder.csv")).complaint()
