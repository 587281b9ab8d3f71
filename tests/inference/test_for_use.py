"""Networks for use: trained on all bags, evaluated on none, and averaged over their seeds."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from milbench import UsageError, load_task
from tests._helpers.command_line import Milbench

PARTS = ["train", "validation", "test"]


def features(number: int) -> str:
    return f"{number / 7},{number % 5}"


def image(number: int) -> None:
    Image.fromarray(np.random.default_rng(number).integers(0, 255, (20, 20, 3), np.uint8)).save(
        f"{number}.png"
    )


def frames(number: int) -> None:
    np.save(f"{number}.npy", np.random.default_rng(number).normal(size=(12 + number % 3, 2)))


@pytest.mark.parametrize(
    ("task", "columns", "ending", "make"),
    [
        ("feature-bags", "bag,labels,split,f0,f1", "", features),
        ("image-bags", "image,labels,split", ".png", image),
        ("sequence-bags", "file,labels,split", ".npy", frames),
    ],
)
def test_all_bags_are_trained_on_and_none_is_evaluated(
    milbench: Milbench, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    task: str, columns: str, ending: str, make: Callable[[int], str | None],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    rows = [
        ",".join(filter(None, [f"{n}{ending},{'ab'[n % 2]},{PARTS[n % 3]}", make(n)]))
        for n in range(12)
    ]
    Path("mine.csv").write_text("\n".join([columns, *rows]))
    problem = load_task(task, table=str(tmp_path / "mine.csv"), test=0).load()
    seen = sum(len(bags) for bags in problem.train_batches(0, torch.Generator()))
    assert (seen, problem.splits) == (12, {})
    with pytest.raises(
        UsageError, match=r"task\.folds=3 are tested on, and task\.test=0 tests on no bag"
    ):
        load_task(task, table="mine.csv", test=0, folds=3)
    settings = [f"task.table={tmp_path / 'mine.csv'}", "task.test=0", "recipe.epochs=1"]
    words = [word for setting in settings for word in ("-p", setting)]
    launch = ("--task", task, *words, "--seeds", "0-1", "--name", "use")
    ran = milbench("run", "--loss", "exact", *launch).done()
    last = ran.splitlines()[-1].split()
    assert last[:5] == ["next:", "milbench", "predict", "FILES", "--cell"]
    cells = last[5].split(",")
    assert len(cells) == 2
    line = "mine: networks for use by milbench predict, trained on all bags: no errors of theirs are known"
    for said in (ran, milbench("status", "use").out, milbench("report", "use").out):
        assert line in said
    assert line in (root / "reports" / "use" / "report.md").read_text()
    presence = []
    for used in (
        ["--cell", cells[0]],
        ["--cell", cells[1]],
        last[4:],
    ):  # what the last line names runs
        said = milbench(
            "predict", "mine.csv", *used, "--positions", "--out", "found.csv", "--device", "cpu"
        ).done()
        assert ("drew no pictures: the table does not say where" in said) == (
            task == "feature-bags"
        )
        presence.append(pd.read_csv("found.csv").filter(like="presence "))
    np.testing.assert_allclose(presence[2], (presence[0] + presence[1]) / 2, rtol=1e-9)
    assert len([*Path("found-maps").glob("*.png")]) == (0 if task == "feature-bags" else 12)


@pytest.mark.parametrize("without", ["test", "validation"])
def test_a_search_needs_validation_bags(
    without: str, milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(
        "bag,labels,f0\n" + "\n".join(f"{n},{'ab'[n % 2]},{n}" for n in range(12))
    )
    Path("s.toml").write_text(
        f'losses = ["exact"]\ntasks = ["feature-bags"]\ntask.feature-bags = {{table = "mine.csv", {without} = 0}}\n'
        'tune = {draws = 2, seeds = "9", recipe.lr = [1e-3, 1e-2]}\n'
    )
    assert "a search needs validation bags" in milbench("run", "s.toml").complaint()
