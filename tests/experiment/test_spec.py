"""From specs, flags and settings to plans: which cells are planned, and what is refused."""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from milbench import UsageError
from milbench.contracts.parameters import constructor_parameters, parsed, type_of
from milbench.contracts.published import Published
from milbench.contracts.registry import tasks
from milbench.experiment.cell import Cell
from milbench.experiment.display_names import Label
from milbench.experiment.flags import Flags, apply_assignment, spec_and_launch
from milbench.experiment.launch_settings import Execution, Launch
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan
from milbench.experiment.plan_file import plan_from_json, plan_to_json
from milbench.experiment.spec import parse_seeds
from milbench.experiment.spec_files import built_in_specs, make_spec, presets, read_spec
from milbench.report.literature import deviations
from tests._helpers.command_line import TINY


def tiny_plan(**values: object) -> Plan:
    """Return the plan of two losses on the tiny task; `values` are fields of its spec."""
    spec = make_spec({"name": "t", "losses": ["exact", "max-pooling"], "tasks": [TINY], **values})
    return make_plan(spec)


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        pytest.param("0-3", [0, 1, 2, 3], id="range"),
        pytest.param("2,0,5-6", [0, 2, 5, 6], id="numbers and a range"),
        pytest.param(7, [7], id="number"),
        pytest.param([3, 1], [1, 3], id="list"),
        pytest.param(" 1 - 2 ", [1, 2], id="spaces"),
        pytest.param("4-4", [4], id="range of one"),
    ],
)
def test_seeds_are_read_in_every_spelling(given: str | int | list[int], seeds: list[int]) -> None:
    assert parse_seeds(given) == seeds


@pytest.mark.parametrize("given", ["3-1", "a", "", "1,,2", "-1", "1.5", "0-99999999", []])
def test_wrong_seeds_are_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="seeds"):
        parse_seeds(given)


@pytest.fixture(scope="module")
def with_axes() -> Plan:
    """A plan with an axis of a loss, an axis of the recipe, and three seeds."""
    return tiny_plan(
        seeds="0-2",
        loss={"max-pooling": {"normalization": ["bag", "batch"]}},
        recipe={"head_init": ["prior", "paper"]},
    )


def test_a_plan_is_every_combination(with_axes: Plan) -> None:
    # `exact`, and `max-pooling` with two settings.
    losses, seeds, heads = 3, 3, 2
    assert len(with_axes.cells) == losses * seeds * heads
    assert len({cell.id for cell in with_axes.cells}) == len(with_axes.cells)


def test_cells_are_named_by_their_values_of_the_axes(with_axes: Plan) -> None:
    names = {with_axes.labels[cell.id] for cell in with_axes.cells}
    losses = ("exact", "max-pooling normalization=bag", "max-pooling normalization=batch")
    recipes = ("head_init=prior", "head_init=paper")
    combinations = itertools.product(losses, recipes)
    assert names == {Label("tiny", loss, recipe=recipe) for loss, recipe in combinations}


def test_variants_of_a_task_have_the_names_of_their_tables() -> None:
    small = {"name": "small", "size": 4}
    large = {"name": "large", "size": [8, 9]}
    plan = tiny_plan(losses=["exact"], task={"tiny": [small, large]})
    names = {cell.task.params["size"]: plan.labels[cell.id].task for cell in plan.cells}
    assert names == {4: "small", 8: "large", 9: "large"}


def ids(**values: object) -> set[str]:
    """Return the ids of the cells of `tiny_plan`."""
    return {cell.id for cell in tiny_plan(**values).cells}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"losses": ["max-pooling", "exact"]}, id="order of losses"),
        pytest.param({"seeds": "1,0"}, id="order of seeds"),
        pytest.param({"name": "other"}, id="name"),
        pytest.param({"compare_by": ["set_error"]}, id="metric to compare by"),
        pytest.param({"loss": {"exact": {"divide_by": "none"}}}, id="default written out"),
    ],
)
def test_a_change_that_affects_no_result_keeps_all_ids(change: dict[str, Any]) -> None:
    assert ids(**{"seeds": "0-1", **change}) == ids(seeds="0-1")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"recipe": {"lr": 0.01}}, id="recipe"),
        pytest.param({"task": {"tiny": {"size": 6}}}, id="task"),
    ],
)
def test_a_change_that_affects_results_changes_all_ids(change: dict[str, Any]) -> None:
    assert ids(seeds="0-1", **change).isdisjoint(ids(seeds="0-1"))


def test_the_first_metric_to_compare_by_becomes_the_primary_one() -> None:
    plan = tiny_plan(compare_by=["set_error", "instance_error"])
    assert {info.primary for info in plan.tasks.values()} == {"set_error"}
    assert plan.spec.compare_by == ["set_error", "instance_error"]


def test_as_many_seeds_as_fit_into_memory_are_allowed() -> None:
    assert len(parse_seeds("0-99999")) == 100_000


def test_seeds_that_would_not_fit_into_memory_are_refused() -> None:
    # Twenty ranges of 100,000 seeds; one range alone is allowed.
    ranges = [f"{first}-{first + 99_999}" for first in range(0, 2_000_000, 100_000)]
    with pytest.raises(UsageError, match="2,000,000 seeds are too many, expected at most 100,000"):
        parse_seeds(",".join(ranges))


def test_axes_that_would_not_fit_into_memory_are_refused() -> None:
    rates = [number / 1000 for number in range(1000)]
    with pytest.raises(UsageError, match=r"the axes lr, epochs have 1,000,000 combinations"):
        tiny_plan(recipe={"lr": rates, "epochs": list(range(1000))})


def test_cells_that_would_not_fit_into_memory_are_refused() -> None:
    # Two losses with seven rates and 100,000 seeds are 1,400,000 cells.
    rates = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    with pytest.raises(UsageError, match=r"1,400,000 cells are too many for one comparison"):
        tiny_plan(seeds="0-99999", recipe={"lr": rates})


def test_the_cells_of_all_tasks_together_count() -> None:
    # One loss with 60,000 seeds on each of two tasks.
    with pytest.raises(UsageError, match=r"120,000 cells are too many for one comparison"):
        tiny_plan(losses=["exact"], tasks=[TINY, "synthetic-bags"], seeds="0-59999")


def test_a_joined_plan_has_every_cell_once() -> None:
    old = tiny_plan(losses=["exact"], seeds="0-1")
    new = tiny_plan(seeds="1-2")
    joined = [cell.id for cell in new.joined(old).cells]
    assert sorted(joined) == sorted({cell.id for cell in [*old.cells, *new.cells]})
    # The old plan has one loss with the seeds 0 and 1, the new plan two losses with the seeds 1 and
    # 2. One cell is in both plans.
    assert len(joined) == 2 + 4 - 1


def test_of_changed_code_only_the_newest_cells_stay() -> None:
    old = tiny_plan()
    changed_cells = [replace(cell, loss=replace(cell.loss, revision="later")) for cell in old.cells]
    new = replace(old, cells=changed_cells)
    assert new.joined(old).cells == changed_cells


def origin_of(spec: str | None, *assignments: str, **flags: Any) -> str:
    """Return the digest of what a launch asks for.

    Launches with the same digest add their cells to one comparison.
    """
    asked = {"losses": ["exact"], "tasks": [TINY], **flags}
    _, launch = spec_and_launch(Flags(**asked, assignments=assignments), spec)
    return launch.origin


@pytest.fixture(params=["flags", "file"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """The path of a spec file, or None for a launch by flags alone."""
    if request.param == "flags":
        return None
    path = tmp_path / "mine.toml"
    path.write_text(f'losses = ["exact", "noisy-or"]\ntasks = ["{TINY}"]\n')
    return str(path)


def test_launches_with_other_losses_and_seeds_add_up(source: str | None) -> None:
    assert origin_of(source) == origin_of(source, losses=["noisy-or"], seeds="0-9")


def test_launches_that_run_elsewhere_add_up(source: str | None) -> None:
    elsewhere = origin_of(source, "run.threads=1", execution={"jobs": 2})
    assert origin_of(source) == elsewhere


def test_launches_with_other_settings_do_not_add_up(source: str | None) -> None:
    one = origin_of(source, "recipe.lr=0.1")
    other = origin_of(source, "recipe.lr=0.2")
    assert len({origin_of(source), one, other}) == 3


def origin_of_file(path: Path, *lines: str) -> str:
    """Write these lines to a spec file, and return the digest of a launch of it."""
    path.write_text("\n".join(lines))
    _, launch = spec_and_launch(Flags(), str(path))
    return launch.origin


def test_a_spec_that_was_edited_starts_a_new_comparison(tmp_path: Path) -> None:
    lines = ['losses = ["exact"]', f'tasks = ["{TINY}"]']
    before = origin_of_file(tmp_path / "mine.toml", *lines)
    after = origin_of_file(tmp_path / "mine.toml", *lines, "[recipe]", "epochs = 3")
    assert before != after


def test_the_order_of_keys_starts_no_new_comparison(tmp_path: Path) -> None:
    lines = ['losses = ["exact"]', f'tasks = ["{TINY}"]', 'title = "Mine"', "seeds = 3"]
    before = origin_of_file(tmp_path / "mine.toml", *lines)
    assert origin_of_file(tmp_path / "mine.toml", *reversed(lines)) == before


def test_a_name_in_a_single_table_is_a_parameter() -> None:
    with pytest.raises(UsageError, match="unknown parameter of task tiny 'name'"):
        tiny_plan(task={"tiny": {"name": "foo"}})


NOTES = ["Three seeds.", "8 bags a batch."]


def notes_of(folder: Path, *assignments: str, **flags: Any) -> list[str]:
    """Return the notes of a spec with three seeds and the notes NOTES, after changes by flags."""
    path = folder / "mine.toml"
    # Python writes a list of texts as TOML does.
    path.write_text(f'losses = ["exact"]\ntasks = ["{TINY}"]\nseeds = "0-2"\nnotes = {NOTES}\n')
    spec, _ = spec_and_launch(Flags(**flags, assignments=assignments), str(path))
    return spec.notes


def test_notes_stay_where_flags_leave_them_true(tmp_path: Path) -> None:
    assert notes_of(tmp_path, "run.threads=1", losses=["noisy-or"], seeds="0-2") == NOTES


def test_a_note_about_seeds_is_replaced_if_seeds_change(tmp_path: Path) -> None:
    kept, added = notes_of(tmp_path, seeds="4")
    assert kept == "8 bags a batch."
    assert "seeds 4." in added


def test_all_notes_are_replaced_if_settings_change(tmp_path: Path) -> None:
    (added,) = notes_of(tmp_path, "recipe.epochs=1", "task.batches=2")
    assert "recipe.epochs=1; task.batches=2." in added


def assigned(*assignments: str) -> dict[str, Any]:
    """Return the fields of a spec with two losses and a task, changed by assignments."""
    values: dict[str, Any] = {"losses": ["exact", "max-pooling"], "tasks": [TINY]}
    for assignment in assignments:
        apply_assignment(values, assignment)
    return values


def test_a_parameter_is_set_for_the_losses_that_have_it() -> None:
    values = assigned("loss.normalization=batch", "loss.exact.divide_by=bag")
    assert values["loss"] == {
        "max-pooling": {"normalization": "batch"},
        "exact": {"divide_by": "bag"},
    }


def test_a_parameter_of_a_task_may_name_the_task() -> None:
    values = assigned("task.size=6", "task.tiny.batches=3")
    assert values["task"] == {"tiny": {"size": 6, "batches": 3}}


def test_values_with_commas_are_an_axis_of_the_recipe() -> None:
    values = assigned("recipe.lr=0.1,0.2", "recipe.gradient_norm=max:2")
    assert values["recipe"] == {"lr": [0.1, 0.2], "gradient_norm": "max:2"}
    plan = make_plan(make_spec({"name": "t", **values}))
    assert {cell.recipe.lr for cell in plan.cells} == {0.1, 0.2}
    assert {cell.recipe.gradient_norm for cell in plan.cells} == {"max:2"}


class Texts:
    """A class with parameters of all types as which a text on the command line may be read."""

    def __init__(  # type: ignore[no-untyped-def]
        self,
        a_name: str = "x",
        maybe: str | None = None,
        bare="x",
        number: int = 1,
        share: float | None = None,
        flag: bool = False,
        choice: Literal["0", "true", "on"] = "on",
        either: int | str = 0,
        untyped=None,
    ) -> None: ...


@pytest.mark.parametrize(
    "text", ["0", "true", "1e3", "2024-01-01", "1_0", "nan", "-1", "07", "a=b", "it's", "x y"]
)
@pytest.mark.parametrize("name", ["a_name", "maybe", "bare"])
def test_any_value_of_a_text_parameter_is_text(name: str, text: str) -> None:
    annotation = type_of(constructor_parameters(Texts)[name])
    assert parsed(text, annotation) == text
    in_quotes = f'"{text}"'
    assert parsed(in_quotes, annotation) == text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        pytest.param("number", "1_0", 10, id="whole number"),
        pytest.param("share", "1e3", 1000.0, id="float"),
        pytest.param("share", "1", 1, id="whole number for a float"),
        pytest.param("flag", "true", True, id="truth value"),
        pytest.param("choice", "0", "0", id="choice that looks like a number"),
        pytest.param("choice", "true", "true", id="choice that looks like a truth value"),
        pytest.param("either", "0", 0, id="number where a text may be"),
        pytest.param("either", "a", "a", id="text where a number may be"),
        pytest.param("untyped", "0", 0, id="number without a type"),
        pytest.param("untyped", "a", "a", id="text without a type"),
        # A value that fits no type stays a text, which the check of parameters refuses later.
        pytest.param("number", "2024-01-01", "2024-01-01", id="date for a number"),
        pytest.param("number", "many", "many", id="text for a number"),
    ],
)
def test_a_value_is_parsed_by_the_type_of_its_parameter(
    name: str, text: str, value: object
) -> None:
    found = parsed(text, type_of(constructor_parameters(Texts)[name]))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("0", "0", id="number"),
        pytest.param("0,true", ["0", "true"], id="two values"),
        pytest.param("'a,b'", "a,b", id="comma in quotes"),
        pytest.param('"a,b",c', ["a,b", "c"], id="quotes and another value"),
        pytest.param(",", ",", id="comma alone"),
        pytest.param("", "", id="empty"),
        pytest.param(" ", " ", id="space"),
        pytest.param("a,", "a", id="comma at the end"),
    ],
)
def test_the_name_of_a_column_is_text(text: str, value: object) -> None:
    values: dict[str, Any] = {"losses": ["exact"], "tasks": ["feature-bags"]}
    apply_assignment(values, f"task.bag={text}")
    assert values["task"]["feature-bags"]["bag"] == value


def test_fields_of_a_spec_are_parsed_by_their_types() -> None:
    values: dict[str, Any] = {"recipe": {}}
    for setting in ("title=2024-01-01", "notes=1,2", "run.data_dir=2024", "recipe.epochs=1_0"):
        apply_assignment(values, setting)
    assert values == {
        "title": "2024-01-01",
        "notes": ["1", "2"],
        "run": {"data_dir": "2024"},
        "recipe": {"epochs": 10},
    }


def test_a_table_in_the_recipe_is_for_its_task() -> None:
    # A table for a task that is not compared on, such as extended-digits here, is no mistake.
    recipe = {"lr": 0.1, "epochs": 3, "tiny": {"lr": [0.2, 0.3]}, "extended-digits": {"lr": 9.0}}
    plan = tiny_plan(losses=["exact"], tasks=[TINY, "synthetic-bags"], recipe=recipe)
    settings = {(cell.task.name, cell.recipe.lr, cell.recipe.epochs) for cell in plan.cells}
    assert settings == {("tiny", 0.2, 3), ("tiny", 0.3, 3), ("synthetic-bags", 0.1, 3)}


def test_a_setting_for_all_tasks_replaces_settings_of_single_tasks(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        f'losses = ["exact"]\ntasks = ["{TINY}"]\n[recipe.tiny]\nlr = 0.2\nepochs = 3\n'
    )
    fields = read_spec(str(path)).model_dump()
    apply_assignment(fields, "recipe.tiny.gradient_norm=none")
    apply_assignment(fields, "recipe.lr=0.5")
    assert fields["recipe"] == {"tiny": {"epochs": 3, "gradient_norm": "none"}, "lr": 0.5}


def specs_with_presets() -> list[tuple[str, str | None]]:
    """Return every built-in spec with each of its presets, or with None if it has no presets."""
    pairs: list[tuple[str, str | None]] = []
    for name in built_in_specs():
        names = presets(name)
        if not names:
            pairs.append((name, None))
        pairs += [(name, preset) for preset in names]
    return pairs


@pytest.mark.parametrize(("name", "preset"), specs_with_presets())
def test_every_built_in_spec_can_be_planned_task_by_task(
    name: str, preset: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = read_spec(name, preset).model_dump()
    # Planning asks tasks about their data, which tests do not have: other answers are put in place.
    for task in values["tasks"]:
        cls = tasks().get(task)
        monkeypatch.setattr(cls, "check_data", lambda self, data_dir: "not looked at")
        monkeypatch.setattr(cls, "overlap", lambda self, data_dir: 0.0)
        monkeypatch.setattr(cls, "remarks", lambda self, data_dir, seeds: [])
        monkeypatch.setattr(cls, "folds", lambda self, data_dir: None)

    whole = make_plan(make_spec(values))
    ids_of_single_tasks = set()
    for task in values["tasks"]:
        alone = make_plan(make_spec({**values, "tasks": [task]}))
        ids_of_single_tasks |= {cell.id for cell in alone.cells}

    assert ids_of_single_tasks == {cell.id for cell in whole.cells}


PUBLISHED_SPECS = {"section-5-1": 40, "section-5-2": 30, "section-5-4": 72, "supplementary-a": 60}
"""Spec of published results -> how many cells its preset `paper` has."""


def plan_without_data(name: str, preset: str, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return the plan of a built-in spec, without looking at the data of its tasks."""
    spec = read_spec(name, preset)
    for task in spec.tasks:
        monkeypatch.setattr(tasks().get(task), "check_data", lambda self, data_dir: "not looked at")
    return make_plan(spec)


def cells_with_values(plan: Plan) -> list[tuple[Cell, Published]]:
    """Return pairs of a cell and a published value of its loss."""
    pairs: list[tuple[Cell, Published]] = []
    for cell in plan.cells:
        # The published values of max-pooling are from a program that normalises over the batch: a
        # cell that normalises over the bag has no published value.
        if cell.loss.params.get("normalization") == "bag":
            continue
        listed = plan.info(cell).published
        pairs += [(cell, value) for value in listed if value.loss == cell.loss.name]
    assert pairs
    return pairs


@pytest.mark.parametrize("name", PUBLISHED_SPECS)
def test_the_preset_paper_is_what_was_published(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_without_data(name, "paper", monkeypatch)
    assert len(plan.cells) == PUBLISHED_SPECS[name]
    for cell, value in cells_with_values(plan):
        # A setting of the protocol that no cell has would be compared with nothing.
        assert set(value.protocol) <= set(cell.params())
        assert deviations(value, [cell.params()]) == []


@pytest.mark.parametrize("name", PUBLISHED_SPECS)
def test_the_preset_quick_says_how_it_differs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_without_data(name, "quick", monkeypatch)
    for cell, value in cells_with_values(plan):
        differences = " ".join(deviations(value, [cell.params()]))
        for setting in ("optimizer", "lr", "gradient_norm", "validation"):
            assert setting in differences


def contrast(first: str, second: str, name: str = "asked") -> dict[str, Any]:
    """Return a contrast as a spec holds it."""
    return {"name": name, "first": first, "second": second}


def contrasted(*contrasts: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return the fields of a spec of `exact` and two variants of `noisy-or`, with contrasts."""
    heads = {"noisy-or": {"head": ["softmax", "sigmoid"]}}
    return {"losses": ["exact", "noisy-or"], "loss": heads, "contrasts": contrasts, **values}


def with_published(**changes: Any) -> dict[str, Any]:
    """Return the field of a spec with one published value, of a method that is no loss.

    `changes` are changed fields of the value.
    """
    value = {
        "task": TINY,
        "method": "of others",
        "metric": "set_error",
        "value": 0.1,
        "source": "A paper",
    }
    return {"published": [value | changes]}


SENSELESS_METRICS = [
    pytest.param({"selection": "test"}, "'last' or 'validation'", id="epoch chosen on test bags"),
    pytest.param(
        {"compare_by": ["set_errorr"]},
        "metric of compare_by 'set_errorr'; did you mean 'set_error'",
        id="misspelt metric to compare by",
    ),
    pytest.param(
        {"margin": {"set_eror": 0.01}},
        "metric of margin 'set_eror'; did you mean 'set_error'",
        id="misspelt metric of a margin",
    ),
    pytest.param(
        {"margin": {"set_error": -0.01}}, "margin.set_error = -0.01 is wrong", id="negative margin"
    ),
    pytest.param(
        {"margin": {"set_error": 0.01}},
        "losses are not compared by set_error; use instance_error, or compare_by",
        id="margin of a metric that decides nothing",
    ),
]

SENSELESS_SECTIONS = [
    pytest.param(
        {"task": {"tiny": [{"name": "a"}, {"name": "a", "size": 3}]}},
        "two variants of task tiny are named 'a'",
        id="two variants of one name",
    ),
    pytest.param(
        {"recipe": {"tinny": {"lr": 0.2}}},
        "unknown recipe section of the run 'tinny'; did you mean 'tiny'",
        id="misspelt task in the recipe",
    ),
    pytest.param(
        {"recipe": {"tiny": {"lrr": 0.2}}},
        "unknown parameter of the recipe 'lrr'; did you mean 'lr'",
        id="misspelt field of the recipe",
    ),
    pytest.param(
        {"marks": [{"name": "a", "tusk": "tiny"}]},
        "parameter of the run 'marks.0.tusk'; did you mean 'marks.0.task'",
        id="misspelt key of a pass mark",
    ),
    pytest.param(
        {"losses": ["ctc"], "tasks": ["extended-digits"]},
        "ctc learns from the order of the instances, and those of",
        id="order of bags without order",
    ),
]

SENSELESS_PUBLISHED_VALUES = [
    pytest.param(
        with_published(protocol={"size": 4}),
        "in the protocol of [[published]] 'size'; did you mean 'task.size'",
        id="protocol without its table",
    ),
    pytest.param(
        with_published(method="", loss="exakt"), "did you mean 'exact'", id="misspelt loss"
    ),
    pytest.param(
        with_published(runs=-1), "greater than or equal to 1", id="negative number of runs"
    ),
    pytest.param(
        with_published(task=""),
        "[[published]] 'of others' needs the task of its value",
        id="value without a task",
    ),
    pytest.param(
        with_published(value=12.3),
        "set_error is a share between 0 and 1, got 12.3",
        id="percentage for a share",
    ),
    pytest.param(
        with_published(loss="exact"),
        "expected the name of a loss or of a method, one of the two",
        id="both a loss and a method",
    ),
]

SENSELESS_CONTRASTS = [
    pytest.param(
        contrasted(contrast("noisy-or head=softmx", "exact")),
        "'noisy-or head=softmx'; did you mean 'noisy-or head",
        id="misspelt setting",
    ),
    pytest.param(
        contrasted(contrast("exakt", "noisy-or head=softmax")),
        "contrast 'asked' 'exakt'; did you mean 'exact'",
        id="misspelt variant",
    ),
    pytest.param(
        contrasted(contrast("noisy-or", "exact")),
        "unknown variant in contrast 'asked' 'noisy-or'",
        id="variant without its setting",
    ),
    pytest.param(
        contrasted(contrast("exact", "exact")),
        "first and second are one variant",
        id="variant with itself",
    ),
    pytest.param(
        contrasted(
            contrast("exact", "noisy-or head=softmax"),
            contrast("noisy-or head=softmax", "exact", name="turned"),
        ),
        "contrasts 'asked' and 'turned' have the same variants",
        id="same contrast turned round",
    ),
]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        *SENSELESS_METRICS,
        *SENSELESS_SECTIONS,
        *SENSELESS_PUBLISHED_VALUES,
        *SENSELESS_CONTRASTS,
    ],
)
def test_a_senseless_spec_is_refused_in_one_line(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        tiny_plan(**values)


def test_a_contrast_with_its_variants_survives_json() -> None:
    asked = contrast("noisy-or head=softmax", "exact")
    plan = tiny_plan(**contrasted(asked, compare_by=["instance_error"]))
    read = plan_from_json(plan_to_json(plan).encode())
    assert read == plan
    (only,) = read.contrasts
    assert only.first == "noisy-or head=softmax"
    assert only.second == "exact"


def test_flags_may_leave_out_a_variant_of_a_contrast() -> None:
    # The losses of the spec lack one-vs-rest, as if flags had left it out.
    both = (
        contrast("noisy-or head=softmax", "exact"),
        contrast("one-vs-rest", "exact", name="other"),
    )
    spec = make_spec({"name": "t", "tasks": [TINY], **contrasted(*both)})
    changed = Launch(Execution(), is_changed=True)
    assert len(make_plan(spec, changed).contrasts) == 2
