from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from milbench._utils.seeding import generator
from milbench.api.registry import tasks
from milbench.families.nested_digits import NestedDigits
from milbench.families.street_numbers import StreetNumbers
from tests._helpers.command_line import Ran
from tests._helpers.handmade import cell, network_of, publish, store_in

Milbench = Callable[..., Ran]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory, fresh_database: Path) -> tuple[Path, str, str]:
    """A root with a run on digits and one on house numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        store = store_in(tmp_path_factory.mktemp("figures") / "root", fresh_database)
        digits = publish(store, cell("extended-digits"), network_of("extended-digits"))
        street = publish(store, cell("house-numbers", contrast="raw", validation=10), network_of("house-numbers"))
        return store.workspace.path, digits, street


def test_figures_1_and_4_show_test_pictures(
    milbench: Milbench, where: tuple[Path, str, str], street_data: Path, tmp_path: Path
) -> None:
    root, _, street = where
    pages = {}
    for number in ("1", "4"):
        out = tmp_path / "deep" / f"{number}.png"
        words = ("figure", number, "--run", street, "--root", str(root), "--data-dir", str(street_data), "--seed", "5")
        ran = milbench(*words, "--device", "cpu", "--out", str(out))
        assert ran.code == 0, ran
        assert "note: these are other data than the run's" in ran.out
        assert f"wrote {out}" in ran.out
        pages[number] = np.asarray(Image.open(out))
    task = tasks().create("house-numbers", {"validation": 10})
    assert isinstance(task, StreetNumbers)
    task.prepare(street_data, CPU)
    crop = task.test_crops(8, generator("figure", "1", 5)).instances[0]
    pixels = (crop * 256).byte().permute(1, 2, 0).numpy()
    enlarged = np.asarray(Image.fromarray(pixels).resize((320, 320), Image.Resampling.BICUBIC))
    assert np.array_equal(pages["1"][22 : 22 + 320, 22 : 22 + 320], enlarged)
    assert len(task.test_pictures(street_data)) == 20
    assert pages["4"].shape[1] <= 1560
    assert milbench(*words, "--device", "cpu", "--out", str(out), "--scale", "2").code == 0
    assert not np.array_equal(np.asarray(Image.open(out)), pages["4"])


def test_figure_2_shows_test_digits_that_do_not_overlap(
    milbench: Milbench, where: tuple[Path, str, str], tmp_path: Path
) -> None:
    root, digits, _ = where
    out = tmp_path / "2.png"
    assert milbench("figure", "2", "--run", digits, "--root", str(root), "--out", str(out)).code == 0
    assert Image.open(out).format == "PNG"
    task = tasks().create("extended-digits", {})
    assert isinstance(task, NestedDigits)
    task.prepare(None, CPU)
    bags = task.test_canvas(3.0, 4.0, 5, torch.Generator().manual_seed(1))
    assert bags.instances.shape == (1, 1, 24, 32)
    assert bags.truth is not None
    assert bags.truth.boxes is not None
    boxes, test = bags.truth.boxes[0].int().tolist(), [b.instances for b in task._eval_splits["test"].single_instance]
    everything = torch.cat(test)[:, 0]
    for left, top, right, bottom in boxes:
        patch = bags.instances[0, 0, top:bottom, left:right]
        assert (everything == patch).flatten(1).all(dim=1).any(), "a test digit, whole"


def test_a_figure_that_the_run_cannot_give(milbench: Milbench, where: tuple[Path, str, str], tmp_path: Path) -> None:
    root, digits, street = where
    for number, run, words in (("1", digits, "shows house numbers"), ("2", street, "shows digits on canvases")):
        ran = milbench("figure", number, "--run", run, "--root", str(root), "--out", str(tmp_path / "x.png"))
        assert words in ran.complaint()
    for number, run in (("1", street), ("2", digits)):
        ran = milbench(
            "figure", number, "--run", run, "--root", str(root), "--scale", "2", "--out", str(tmp_path / "x.png")
        )
        assert "--scale is for figure 4" in ran.complaint()
    assert "'3' is not one of" in milbench("figure", "3", "--run", digits, "--out", "x.png").complaint()
    assert "is a folder" in milbench("figure", "2", "--run", digits, "--out", str(tmp_path)).complaint()
    assert not (tmp_path / "x.png").exists()
