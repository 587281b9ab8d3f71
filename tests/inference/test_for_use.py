"""Networks for use by `milbench predict`: trained on all bags and averaged over their seeds.

With `task.test=0` no bag is kept for tests, so that networks are trained on all bags and their
errors are not known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from milbench import UsageError, load_task
from tests._helpers.command_line import Milbench

NUM_BAGS = 12
PARTS = ["train", "validation", "test"]
# The table of the test, mine.csv, gives the comparison its name.
REMARK = (
    "mine: networks for use by milbench predict, trained on all bags: no errors of theirs are known"
)


@dataclass(frozen=True)
class Kind:
    """A task that reads bags from a table, and how its bags are written."""

    task: str
    columns: str
    """The first line of the table."""
    row: Callable[[int], str]
    """Writes the file of a bag, if it has one, and returns its row."""
    has_pictures: bool = True
    """Whether `milbench predict` draws a picture of each bag."""
    settings: tuple[str, ...] = ()
    """Further words of the command that trains on the task."""


def labels_and_part(number: int) -> str:
    """Return the columns of label set and split: classes take turns, and so do splits."""
    return f"{'ab'[number % 2]},{PARTS[number % 3]}"


def row_of_features(number: int) -> str:
    return f"{number},{labels_and_part(number)},{number / 7},{number % 5}"


def row_of_an_image(number: int) -> str:
    pixels = np.random.default_rng(number).integers(0, 255, (20, 20, 3), np.uint8)
    Image.fromarray(pixels).save(f"{number}.png")
    return f"{number}.png,{labels_and_part(number)}"


def row_of_frames(number: int) -> str:
    frames = np.random.default_rng(number).normal(size=(12 + number % 3, 2))
    np.save(f"{number}.npy", frames)
    return f"{number}.npy,{labels_and_part(number)}"


FEATURES = Kind("feature-bags", "bag,labels,split,f0,f1", row_of_features, has_pictures=False)
IMAGES = Kind("image-bags", "image,labels,split", row_of_an_image, settings=("-p", "task.size=32"))
SEQUENCES = Kind("sequence-bags", "file,labels,split", row_of_frames)
KINDS = [pytest.param(kind, id=kind.task) for kind in (FEATURES, IMAGES, SEQUENCES)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_table(kind: Kind, name: str = "mine.csv", bags: int = NUM_BAGS) -> Path:
    """Write a table and its files into the working directory; return the absolute path."""
    table = Path(name).absolute()
    rows = [kind.row(number) for number in range(bags)]
    table.write_text("\n".join([kind.columns, *rows]))
    return table


def train_two_seeds(milbench: Milbench, kind: Kind) -> str:
    """Train networks for use with two seeds; return what the command printed."""
    table = write_table(kind)
    words = ["--loss", "exact", "--task", kind.task, "--seeds", "0-1", "--name", "use"]
    # Without test bags all bags are trained on.
    settings = ["-p", f"task.table={table}", "-p", "task.test=0", "-p", "recipe.epochs=1"]
    return milbench("run", *words, *settings, *kind.settings).done()


@pytest.mark.parametrize("kind", KINDS)
def test_all_bags_are_trained_on_and_none_is_evaluated(kind: Kind) -> None:
    """The bags that the table gives to validation and test are trained on, too."""
    problem = load_task(kind.task, table=str(write_table(kind)), test=0).load()
    trained_on = sum(len(bags) for bags in problem.train_batches(0, torch.Generator()))
    assert trained_on == NUM_BAGS
    assert problem.splits == {}


@pytest.mark.parametrize("kind", KINDS)
def test_folds_need_bags_to_test_on(kind: Kind) -> None:
    table = write_table(kind)
    with pytest.raises(
        UsageError, match=r"task\.folds=3 are tested on, and task\.test=0 tests on no bag"
    ):
        load_task(kind.task, table=str(table), test=0, folds=3)


def test_every_command_says_that_no_errors_are_known(milbench: Milbench, root: Path) -> None:
    assert REMARK in train_two_seeds(milbench, FEATURES)
    assert REMARK in milbench("status", "use").out
    assert REMARK in milbench("report", "use").out
    assert REMARK in (root / "reports" / "use" / "report.md").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_that_a_launch_names_averages_its_networks(
    milbench: Milbench, kind: Kind
) -> None:
    said = train_two_seeds(milbench, kind)
    assert REMARK in said
    # The last line: next: milbench predict FILES --cell ID,ID and options.
    words = said.splitlines()[-1].split()
    assert words[:5] == ["next:", "milbench", "predict", "FILES", "--cell"]
    cells = words[5].split(",")
    assert len(cells) == 2
    options = words[6:]

    def presence(of_cells: str) -> pd.DataFrame:
        """Return the presence scores that `milbench predict` writes by the networks of cells."""
        out = ["--out", "found.csv", "--device", "cpu"]
        milbench("predict", "mine.csv", "--cell", of_cells, *options, *out).done()
        return pd.read_csv("found.csv").filter(like="presence ")

    first, second = (presence(cell) for cell in cells)
    np.testing.assert_allclose(presence(",".join(cells)), (first + second) / 2, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_averaged_networks_draw_a_picture_of_each_bag(milbench: Milbench, kind: Kind) -> None:
    # The last line begins: next: milbench predict FILES --cell ID,ID
    cells = train_two_seeds(milbench, kind).splitlines()[-1].split()[5]
    write_table(kind, "two.csv", bags=2)
    options = ["--positions", "--out", "found.csv", "--device", "cpu"]
    said = milbench("predict", "two.csv", "--cell", cells, *options).done()
    says_no_pictures = "drew no pictures: the table does not say where" in said
    pictures = list(Path("found-maps").glob("*.png"))
    if kind.has_pictures:
        assert len(pictures) == 2
        assert not says_no_pictures
    else:
        assert pictures == []
        assert says_no_pictures


@pytest.mark.parametrize("without", ["test", "validation"])
def test_a_search_needs_validation_bags(milbench: Milbench, without: str) -> None:
    """Without test bags all bags are trained on, so that there are no validation bags either."""
    rows = [f"{number},{'ab'[number % 2]},{number}" for number in range(NUM_BAGS)]
    Path("mine.csv").write_text("\n".join(["bag,labels,f0", *rows]))
    Path("search.toml").write_text(f"""
losses = ["exact"]
tasks = ["feature-bags"]
task.feature-bags = {{table = "mine.csv", {without} = 0}}
tune = {{draws = 2, seeds = "9", recipe.lr = [1e-3, 1e-2]}}
""")
    assert "a search needs validation bags" in milbench("run", "search.toml").complaint()
