"""`milbench run` and `milbench reproduce`: presets, searches in stages, and published studies."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from milbench import Bags, Scores, load_task
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import built_in_specs, presets, read_spec
from milbench.store.folders import Root
from milbench.testing.task_contract import untrained_scores
from tests._helpers.command_line import HOSTILE, SMALL, TINY, Milbench
from tests._helpers.small_data import PARAMS
from tests._helpers.training import needs_muon


@pytest.fixture
def study(tmp_path: Path) -> str:
    """The path of a spec with two presets and a published value."""
    path = tmp_path / "study.toml"
    path.write_text(f"""
losses = ["exact", "max-pooling"]
tasks = ["{TINY}"]
loss.max-pooling.normalization = "batch"
recipe = {{optimizer = "psgd", lr = 0.01}}

[presets.quick]
about = "a first look"
seeds = "0-1"
recipe.epochs = 1

[presets.paper]
about = "days"
seeds = "0-9"

[[published]]
task = "tiny"
method = "a method of others"
metric = "set_error"
value = 0.123
source = "A paper, table 1"
""")
    return str(path)


def test_the_first_preset_is_the_default(study: str) -> None:
    spec = read_spec(study)
    assert spec.preset == "quick"
    assert make_plan(spec).spec.preset == "quick"


def test_a_preset_changes_what_it_names(study: str) -> None:
    quick = read_spec(study)
    paper = read_spec(study, "paper")
    assert quick.seeds == "0-1"
    assert paper.seeds == "0-9"
    assert {cell.recipe.epochs for cell in make_plan(quick).cells} == {1}


def test_a_preset_changes_nothing_else(study: str) -> None:
    quick = read_spec(study)
    paper = read_spec(study, "paper")
    assert paper.recipe == {"optimizer": "psgd", "lr": 0.01}
    assert quick.recipe == {"optimizer": "psgd", "lr": 0.01, "epochs": 1}
    assert quick.loss == paper.loss == {"max-pooling": {"normalization": "batch"}}


def test_a_dry_run_shows_presets_and_published_numbers(milbench: Milbench, study: str) -> None:
    shown = milbench("reproduce", study, "--dry-run").done()
    assert re.search(r"quick +│ a first look", shown)
    assert re.search(r"paper +│ days", shown)
    assert "published on tiny: a method of others, set error 12.30 % (A paper, table 1)" in shown


def test_a_study_ends_in_its_report_and_computes_nothing_twice(
    milbench: Milbench, root: Path, study: str
) -> None:
    assert "4 cells, 4 to run" in milbench("reproduce", study).done()
    assert "max-pooling" in (root / "reports" / "study" / "index.html").read_text()
    again = milbench("reproduce", study).done()
    assert ", 0 to run" in again
    assert again.splitlines()[-1].endswith("index.html")


SEARCH = """
losses = ["exact", "noisy-or"]
tasks = ["synthetic-bags"]
seeds = "0-1"
task.synthetic-bags.bags_per_epoch = 64
recipe = {epochs = 1, evaluation_bags = 16}
tune = {draws = 2, seeds = "1000", recipe.lr = {low = 1e-3, high = 1e-1, scale = "log"}}
"""


def test_a_spec_is_searched_before_it_is_compared(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "my-search.toml"
    path.write_text(SEARCH)
    # Two losses have two draws each; this shard computes half of the four cells.
    said = milbench("run", str(path), "--shard", "1/2").done()
    assert "my-search: 4 cells, 2 to run" in said
    # While half of the search is missing, the next step is to run it, not to report.
    assert said.splitlines()[-1] == f"next: milbench run my-search --root {root}"

    said = milbench("run", "my-search").done()
    *_, end, answer, after = said.splitlines()
    assert end == "all 4 cells are done"
    assert after == f"next: milbench report my-search --root {root}"
    assert answer.startswith("On synthetic-bags no loss is shown to beat the best constant answer")

    # With three draws, each loss gets one more cell.
    assert "my-search: 6 cells, 2 to run" in milbench("run", str(path), "-p", "tune.draws=3").done()


STAGED = """
losses = ["exact", "noisy-or"]
tasks = ["synthetic-bags"]
seeds = "0-1"
task.synthetic-bags.bags_per_epoch = 64
recipe = {epochs = 1, evaluation_bags = 16}
tune.draws = 2
tune.seeds = "1000-1002"
tune.finalists = 1
tune.recipe.lr = {low = 1e-3, high = 1e-1, scale = "log"}
tune.recipe.head_init = ["prior", "paper"]
"""


@pytest.fixture
def staged(tmp_path: Path) -> str:
    """The path of a spec whose search has two stages.

    The first stage has eight draws with one seed, the second two finalists with two more seeds.
    """
    path = tmp_path / "staged.toml"
    path.write_text(STAGED)
    return str(path)


def seeds_of_search(root: Path) -> Counter[int]:
    """Return how many draws were planned with each seed of the search."""
    plan = Root(root).plan("staged")
    assert plan.search is not None
    return Counter(cell.seed for cell in plan.cells if cell.id in plan.search.draws)


def test_a_search_in_two_stages_ends_in_a_comparison(
    milbench: Milbench, root: Path, staged: str
) -> None:
    shown = milbench("run", staged, "--dry-run").done()
    assert "staged: 8 cells, 8 to run" in shown
    assert "then the best 1 draw of each loss on each task with 2 more seeds (4 cells)" in shown
    said = milbench("run", staged).done()
    assert "the first stage of the search is done" in said
    assert "staged: 12 cells, 4 to run" in said
    assert "staged: 16 cells, 4 to run" in said
    assert "all 4 cells are done" in said
    assert seeds_of_search(root) == {1000: 8, 1001: 2, 1002: 2}
    assert "16 of 16 cells done" in milbench("status", "staged").done()
    milbench("report", "staged").done()
    page = (root / "reports" / "staged" / "report.md").read_text()
    assert "2 points of the ranges, each with 2 combinations of the lists" in page
    assert "All were trained with one seed, the best one with three seeds" in page


def die_as_if_killed(*_: object) -> None:
    """Exit with the code that a shell gives to a process that SIGKILL has ended.

    A test puts this in place of a function, as if the launch were killed before its call.
    """
    raise SystemExit(137)


ONE_LOSS = ("--loss", "exact")
"""Half of the cells of `staged`: four draws, two more seeds of one finalist, two compared cells."""


def test_a_launch_that_ends_between_the_stages_goes_on(
    milbench: Milbench, root: Path, staged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("milbench.experiment.stages.finalists_plan", die_as_if_killed)
        assert milbench("run", staged, *ONE_LOSS).code == 137
    # The second stage is not planned yet.
    assert seeds_of_search(root) == {1000: 4}

    shown = milbench("run", staged, *ONE_LOSS, "--dry-run").done()
    assert "staged: 6 cells, 2 to run" in shown
    assert "then the comparison, with the settings that these cells choose" in shown

    said = milbench("run", staged, *ONE_LOSS).done()
    assert "staged: 4 cells, 0 to run" in said
    assert "staged: 6 cells, 2 to run" in said
    assert seeds_of_search(root) == {1000: 4, 1001: 1, 1002: 1}


def test_the_jobs_of_an_array_go_through_the_stages_together(
    milbench: Milbench, root: Path, staged: str
) -> None:
    # The first job leaves the first stage unfinished; the second job ends it and begins the next.
    milbench("run", staged, *ONE_LOSS, "--shard", "1/2").done()
    assert seeds_of_search(root) == {1000: 4}
    said = milbench("run", staged, *ONE_LOSS, "--shard", "2/2").done()
    assert "staged: 6 cells, 1 to run" in said
    # The first job is given once more: it ends the second stage and begins the comparison.
    said = milbench("run", staged, *ONE_LOSS, "--shard", "1/2").done()
    assert "staged: 8 cells, 1 to run" in said
    said = milbench("run", staged, *ONE_LOSS, "--shard", "2/2").done()
    assert "the cell is done" in said
    assert "8 of 8 cells done" in milbench("status", "staged").done()


def test_a_loss_joins_a_search_in_two_stages_later(
    milbench: Milbench, root: Path, staged: str
) -> None:
    milbench("run", staged, "--loss", "exact").done()
    assert seeds_of_search(root) == {1000: 4, 1001: 1, 1002: 1}
    said = milbench("run", staged, "--loss", "noisy-or").done()
    assert "staged: 4 cells, 4 to run" in said, "only the draws of the new loss"
    assert seeds_of_search(root) == {1000: 8, 1001: 2, 1002: 2}
    assert "16 of 16 cells done" in milbench("status", "staged").done()


def test_a_study_with_a_failed_cell_still_gets_its_report(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "failing.toml"
    path.write_text(f'losses = ["exact", "{HOSTILE}"]\ntasks = ["{TINY}"]\n')
    ran = milbench("reproduce", str(path))
    assert ran.code == 1
    assert "non-finite" in (root / "reports" / "failing" / "report.md").read_text()


STUDIES = [name for name in built_in_specs() if name.startswith(("supplementary", "section"))]


def test_supplementary_a_is_one_of_the_studies() -> None:
    assert "supplementary-a" in STUDIES


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_begins_small_and_ends_with_the_paper(name: str) -> None:
    names = list(presets(name))
    assert names[0] in ("small", "quick")
    assert names[-1] == "paper"


@pytest.mark.parametrize("name", STUDIES)
def test_every_preset_of_a_study_says_what_it_is(name: str) -> None:
    without = [preset for preset, about in presets(name).items() if not about]
    assert without == []


@pytest.mark.parametrize("name", STUDIES)
def test_every_preset_except_the_last_says_what_limits_it(name: str) -> None:
    for preset in list(presets(name))[:-1]:
        notes = read_spec(name, preset).notes
        assert [note for note in notes if note.startswith(f"Preset {preset}")], preset


@pytest.mark.parametrize("name", STUDIES)
def test_the_preset_of_the_paper_has_its_optimizer_and_weights(name: str) -> None:
    recipe = read_spec(name, "paper").recipe
    assert recipe["optimizer"] == "psgd"
    assert recipe["head_init"] == "paper"


@pytest.mark.parametrize("task", ["svhn", "extended-digits"])
def test_the_size_of_an_evaluation_counts_the_scored_bags(task: str, street_data: Path) -> None:
    described = load_task(task, **PARAMS.get(task, {}))
    problem = described.load(street_data, limit=20)
    score = untrained_scores(described, problem)
    scored = []

    def counting(bags: Bags) -> Scores:
        # Batches of bags that hold a single instance are not counted.
        if bags.labels.sum(dim=1).max() > 1:
            scored.append(len(bags))
        return score(bags)

    problem.evaluate(counting)
    assert problem.evaluation_size == pytest.approx(sum(scored), abs=20)


@pytest.mark.parametrize("task", ["svhn", "extended-digits"])
def test_a_dry_run_estimates_the_time_of_evaluations(
    task: str, milbench: Milbench, street_data: Path
) -> None:
    words = ["--loss", "exact", "--task", task, "--data-dir", str(street_data)]
    for key, value in PARAMS.get(task, {}).items():
        words += ["-p", f"task.{key}={value}"]
    ran = milbench("run", *words, "-p", "recipe.evaluation_bags=20", "--dry-run")
    assert re.search(r"steps an epoch, .+ of evaluations", ran.out), ran


@needs_muon
def test_the_published_comparison_on_svhn_runs_on_its_files(
    milbench: Milbench, street_data: Path, tmp_path: Path
) -> None:
    """Small files in the form of SVHN let machines without the real data try the code, too."""
    shutil.copytree(street_data / "svhn", tmp_path / "svhn")
    study = ["section-5-4", "--preset", "quick", "--loss", "exact,ctc", "--seeds", "0"]
    small = ["-p", "task.batch_bags=2", "-p", "task.validation=4", "-p", "recipe.precision=float32"]
    ran = milbench("run", *study, "--data-dir", str(tmp_path), *small, *SMALL).done()
    assert "all 2 cells are done" in ran
