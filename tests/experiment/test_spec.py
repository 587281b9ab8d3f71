"""From specs, flags and settings to plans: what is planned, and what is refused in one line."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from milbench import UsageError
from milbench.contracts.parameters import constructor_parameters, parsed, type_of
from milbench.contracts.registry import tasks
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
    spec = make_spec({"name": "t", "losses": ["exact", "max-pooling"], "tasks": [TINY], **values})
    return make_plan(spec)


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("2,0,5-6", [0, 2, 5, 6]),
        (7, [7]),
        ([3, 1], [1, 3]),
        (" 1 - 2 ", [1, 2]),
        ("4-4", [4]),
    ],
)
def test_seeds(given: str | int | list[int], seeds: list[int]) -> None:
    assert parse_seeds(given) == seeds


@pytest.mark.parametrize("given", ["3-1", "a", "", "1,,2", "-1", "1.5", "0-99999999", []])
def test_wrong_seeds(given: Any) -> None:
    with pytest.raises(UsageError, match="seeds"):
        parse_seeds(given)


def test_a_plan_is_every_combination() -> None:
    plan = tiny_plan(
        seeds="0-2",
        loss={"max-pooling": {"normalization": ["bag", "batch"]}},
        recipe={"head_init": ["prior", "paper"]},
    )
    assert len(plan.cells) == 3 * 3 * 2  # exact and two max-poolings, three seeds, two heads
    assert len({cell.id for cell in plan.cells}) == len(plan.cells)
    names = {plan.labels[cell.id] for cell in plan.cells}
    assert Label("tiny", "max-pooling normalization=batch", recipe="head_init=paper") in names
    assert Label("tiny", "exact", recipe="head_init=prior") in names
    task = {"tiny": [{"name": "small", "size": 4}, {"name": "large", "size": [8, 9]}]}
    plan = tiny_plan(task=task, losses=["exact"])
    assert {c.task.params["size"]: plan.labels[c.id].task for c in plan.cells} == {
        4: "small",
        8: "large",
        9: "large",
    }


def ids(**values: object) -> set[str]:
    return {cell.id for cell in tiny_plan(**values).cells}


def test_identity_is_what_is_computed() -> None:
    first = ids(seeds="0-1")
    assert first == ids(
        losses=["max-pooling", "exact"], seeds="1,0", name="other", compare_by=["set_error"]
    )
    assert first.isdisjoint(
        ids(seeds="0-1", recipe={"lr": 0.01}) | ids(seeds="0-1", task={"tiny": {"size": 6}})
    )
    assert ids(seeds="0", loss={"exact": {"divide_by": "none"}}) < first, "a default, written out"


def test_the_first_metric_to_compare_by_takes_the_place_of_the_primary_one() -> None:
    plan = tiny_plan(compare_by=["set_error", "instance_error"])
    assert {info.primary for info in plan.tasks.values()} == {"set_error"}
    assert plan.spec.compare_by == ["set_error", "instance_error"]


def test_a_plan_that_would_not_fit_into_memory_is_refused_before_it_is_made() -> None:
    ranges = ",".join(f"{n * 100_000}-{n * 100_000 + 99_999}" for n in range(20))
    with pytest.raises(UsageError, match="2,000,000 seeds are too many, expected at most 100,000"):
        parse_seeds(ranges)
    assert len(parse_seeds("0-99999")) == 100_000
    with pytest.raises(UsageError, match=r"the axes lr, epochs have 1,000,000 combinations"):
        tiny_plan(recipe={"lr": [n / 1000 for n in range(1000)], "epochs": list(range(1000))})
    with pytest.raises(UsageError, match=r"1,400,000 cells are too many for one comparison"):
        tiny_plan(seeds="0-99999", recipe={"lr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]})


def test_a_launch_that_adds_losses_holds_every_cell_once_and_of_changed_code_the_newest() -> None:
    old, new = tiny_plan(losses=["exact"], seeds="0-1"), tiny_plan(seeds="1-2")
    joined = new.joined(old)
    assert {c.id for c in joined.cells} == {c.id for c in [*old.cells, *new.cells]}
    assert len(joined.cells) == 5
    changed = replace(
        new, cells=[replace(cell, loss=replace(cell.loss, revision="later")) for cell in new.cells]
    )
    assert {cell.loss.revision for cell in changed.joined(new).cells} == {"later"}


def test_launches_of_one_spec_and_the_same_settings_add_up(tmp_path: Path) -> None:
    def origin(spec: str | None, loss: str | None, *settings: str, **given: Any) -> str:
        flags = Flags(
            losses=[loss] if loss else None,
            tasks=[TINY],
            execution={"jobs": 2},
            assignments=settings,
        )
        _, launch = spec_and_launch(replace(flags, **given), spec)
        return launch.origin

    path = tmp_path / "mine.toml"
    path.write_text(f'losses = ["exact", "noisy-or"]\ntasks = ["{TINY}"]\n')
    for spec in (None, str(path)):
        first = origin(spec, "exact")
        assert first == origin(spec, "noisy-or", "run.threads=1", seeds="0-9")
        assert (
            len(
                {
                    first,
                    origin(spec, "exact", "recipe.lr=0.1"),
                    origin(spec, "exact", "recipe.lr=0.2"),
                }
            )
            == 3
        )
    before = origin(str(path), None)
    path.write_text(path.read_text() + "[recipe]\nepochs = 3\n")
    assert before == first != origin(str(path), None)


def test_the_order_of_keys_in_a_spec_starts_no_new_comparison(tmp_path: Path) -> None:
    lines = ['losses = ["exact"]', f'tasks = ["{TINY}"]', 'title = "Mine"', "seeds = 3"]
    origins = set()
    for ordered in (lines, lines[::-1]):
        path = tmp_path / "mine.toml"
        path.write_text("\n".join(ordered))
        _, launch = spec_and_launch(Flags(), str(path))
        origins.add(launch.origin)
    assert len(origins) == 1


def test_a_name_in_a_single_table_of_a_task_is_a_parameter() -> None:
    with pytest.raises(UsageError, match="unknown parameter of task tiny 'name'"):
        tiny_plan(task={"tiny": {"name": "foo"}})


def test_notes_that_flags_may_have_made_false_give_way_to_what_they_changed(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    said = ["Three seeds.", "8 bags a batch."]
    path.write_text(f'losses = ["exact"]\ntasks = ["{TINY}"]\nseeds = "0-2"\nnotes = {said}\n')

    def notes(*settings: str, **given: Any) -> list[str]:
        asked, _ = spec_and_launch(Flags(**given, assignments=settings), str(path))
        return asked.notes

    assert notes("run.threads=1", losses=["noisy-or"], seeds="0-2") == said
    kept, changed = notes(seeds="4")
    assert (kept, "seeds 4." in changed) == (said[1], True)
    (changed,) = notes("recipe.epochs=1", "task.batches=2")
    assert "recipe.epochs=1; task.batches=2." in changed


def test_settings_go_where_they_belong() -> None:
    values: dict[str, object] = {"losses": ["exact", "max-pooling"], "tasks": [TINY]}
    for setting in ("loss.normalization=batch", "task.size=6", "task.tiny.batches=3", "recipe.lr=0.1,0.2",
                    "loss.exact.divide_by=bag", "recipe.gradient_norm=max:2"):  # fmt: skip
        apply_assignment(values, setting)
    assert values["loss"] == {
        "max-pooling": {"normalization": "batch"},
        "exact": {"divide_by": "bag"},
    }
    assert values["task"] == {"tiny": {"size": 6, "batches": 3}}
    assert values["recipe"] == {"lr": [0.1, 0.2], "gradient_norm": "max:2"}
    plan = make_plan(make_spec({"name": "t", **values}))
    assert {c.recipe.lr for c in plan.cells} == {0.1, 0.2}
    assert {c.recipe.gradient_norm for c in plan.cells} == {"max:2"}


class Texts:
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
def test_a_value_that_looks_like_another_type_is_text_where_the_parameter_is(text: str) -> None:
    parameters = constructor_parameters(Texts)
    for name in ("a_name", "maybe", "bare"):
        assert parsed(text, type_of(parameters[name])) == text
        assert parsed(f'"{text}"', type_of(parameters[name])) == text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("number", "1_0", 10), ("share", "1e3", 1000.0), ("share", "1", 1), ("flag", "true", True),
        ("choice", "0", "0"), ("choice", "true", "true"), ("either", "0", 0), ("either", "a", "a"),
        ("untyped", "0", 0), ("untyped", "a", "a"), ("number", "2024-01-01", "2024-01-01"), ("number", "many", "many"),
    ],
)  # fmt: skip
def test_a_value_is_parsed_by_the_type_of_its_parameter(
    name: str, text: str, value: object
) -> None:
    found = parsed(text, type_of(constructor_parameters(Texts)[name]))
    assert (found, type(found)) == (value, type(value))


def test_a_setting_is_text_for_names_and_keeps_commas_in_quotes() -> None:
    def of_table(setting: str) -> object:
        values: dict[str, Any] = {"losses": ["exact"], "tasks": ["feature-bags"]}
        apply_assignment(values, f"task.bag={setting}")
        return values["task"]["feature-bags"]["bag"]

    given = ("0", "0,true", "'a,b'", '"a,b",c', ",", "", " ", "a,")
    assert [*map(of_table, given)] == ["0", ["0", "true"], "a,b", ["a,b", "c"], ",", "", " ", "a"]
    values: dict[str, Any] = {"recipe": {}}
    for setting in ("title=2024-01-01", "notes=1,2", "run.data_dir=2024", "recipe.epochs=1_0"):
        apply_assignment(values, setting)
    assert values == {
        "title": "2024-01-01",
        "notes": ["1", "2"],
        "run": {"data_dir": "2024"},
        "recipe": {"epochs": 10},
    }


def test_a_table_in_the_recipe_is_for_the_task_it_names(tmp_path: Path) -> None:
    values = {"losses": ["exact"], "tasks": [TINY, "synthetic-bags"]}
    recipe = {"lr": 0.1, "epochs": 3, "tiny": {"lr": [0.2, 0.3]}, "extended-digits": {"lr": 9.0}}
    rates = {
        (c.task.name, c.recipe.lr, c.recipe.epochs)
        for c in tiny_plan(**values, recipe=recipe).cells
    }
    assert rates == {("tiny", 0.2, 3), ("tiny", 0.3, 3), ("synthetic-bags", 0.1, 3)}
    path = tmp_path / "mine.toml"
    path.write_text(
        f'losses = ["exact"]\ntasks = ["{TINY}"]\n[recipe.tiny]\nlr = 0.2\nepochs = 3\n'
    )
    fields = read_spec(str(path)).model_dump()
    apply_assignment(fields, "recipe.tiny.gradient_norm=none")
    apply_assignment(fields, "recipe.lr=0.5")  # for every task: the table of one gives way
    assert fields["recipe"] == {"tiny": {"epochs": 3, "gradient_norm": "none"}, "lr": 0.5}


@pytest.mark.parametrize(
    ("name", "preset"), [(n, p) for n in built_in_specs() for p in presets(n) or [None]]
)
def test_every_spec_that_comes_with_milbench_can_be_planned_with_any_of_its_tasks_alone(
    name: str, preset: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = read_spec(name, preset).model_dump()
    for task in values["tasks"]:
        monkeypatch.setattr(tasks().get(task), "check_data", lambda self, data_dir: "not looked at")
        monkeypatch.setattr(tasks().get(task), "overlap", lambda self, data_dir: 0.0)
        monkeypatch.setattr(tasks().get(task), "remarks", lambda self, data_dir, seeds: [])
        monkeypatch.setattr(tasks().get(task), "folds", lambda self, data_dir: None)
    whole = make_plan(make_spec(values))
    alone = [
        cell
        for task in values["tasks"]
        for cell in make_plan(make_spec({**values, "tasks": [task]})).cells
    ]
    assert {cell.id for cell in alone} == {cell.id for cell in whole.cells}


@pytest.mark.parametrize(
    ("name", "count"),
    [("section-5-1", 40), ("section-5-2", 30), ("section-5-4", 72), ("supplementary-a", 60)],
)
def test_the_preset_paper_is_what_was_published_and_quick_differs_in_whatever_decides_a_result(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in read_spec(name, "paper").tasks:
        monkeypatch.setattr(tasks().get(task), "check_data", lambda self, data_dir: "not looked at")
    for preset in ("paper", "quick"):
        plan = make_plan(read_spec(name, preset))
        pairs = [
            (cell, f)
            for cell in plan.cells
            for f in plan.tasks[cell.task.key].published
            if f.loss == cell.loss.name
        ]
        pairs = [
            (cell, fact) for cell, fact in pairs if cell.loss.params.get("normalization") != "bag"
        ]
        assert pairs
        for cell, fact in pairs:
            differences = deviations(fact, [cell.params()])
            if preset == "paper":
                assert len(plan.cells) == count
                assert {*fact.protocol} <= {*cell.params()}, "a name that no cell has tells nothing"
                assert differences == []
            else:
                for word in ("optimizer", "lr", "gradient_norm", "validation"):
                    assert word in " ".join(differences)


def contrast(first: str, second: str, name: str = "asked", **more: Any) -> dict[str, Any]:
    return {"name": name, "first": first, "second": second, **more}


def contrasted(*contrasts: dict[str, Any], **values: Any) -> dict[str, Any]:
    heads = {"noisy-or": {"head": ["softmax", "sigmoid"]}}
    return {"losses": ["exact", "noisy-or"], "loss": heads, "contrasts": contrasts, **values}


def published(**more: Any) -> dict[str, Any]:
    known = {
        "task": TINY,
        "method": "of others",
        "metric": "set_error",
        "value": 0.1,
        "source": "A paper",
    }
    return {"published": [known | more]}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"selection": "test"}, "'last' or 'validation'"),
        (
            {"compare_by": ["set_errorr"]},
            "metric of compare_by 'set_errorr'; did you mean 'set_error'",
        ),
        ({"margin": {"set_eror": 0.01}}, "metric of margin 'set_eror'; did you mean 'set_error'"),
        ({"margin": {"set_error": -0.01}}, "margin.set_error = -0.01 is wrong"),
        (
            {"margin": {"set_error": 0.01}},
            "losses are not compared by set_error; use instance_error, or compare_by",
        ),
        (
            {"task": {"tiny": [{"name": "a"}, {"name": "a", "size": 3}]}},
            "two variants of task tiny are named 'a'",
        ),
        (
            {"recipe": {"tinny": {"lr": 0.2}}},
            "unknown recipe section of the run 'tinny'; did you mean 'tiny'",
        ),
        (
            {"recipe": {"tiny": {"lrr": 0.2}}},
            "unknown parameter of the recipe 'lrr'; did you mean 'lr'",
        ),
        (
            {"marks": [{"name": "a", "tusk": "tiny"}]},
            "parameter of the run 'marks.0.tusk'; did you mean 'marks.0.task'",
        ),
        (
            published(protocol={"size": 4}),
            "in the protocol of [[published]] 'size'; did you mean 'task.size'",
        ),
        (published(method="", loss="exakt"), "did you mean 'exact'"),
        (published(runs=-1), "greater than or equal to 1"),
        (published(task=""), "[[published]] 'of others' needs the task of its value"),
        (published(value=12.3), "set_error is a share between 0 and 1, got 12.3"),
        (published(loss="exact"), "expected the name of a loss or of a method, one of the two"),
        (
            {"losses": ["ctc"], "tasks": ["extended-digits"]},
            "ctc learns from the order of the instances, and those of",
        ),
        (
            contrasted(contrast("noisy-or head=softmx", "exact")),
            "'noisy-or head=softmx'; did you mean 'noisy-or head",
        ),
        (
            contrasted(contrast("exakt", "noisy-or head=softmax")),
            "contrast 'asked' 'exakt'; did you mean 'exact'",
        ),
        (
            contrasted(contrast("noisy-or", "exact")),
            "unknown variant in contrast 'asked' 'noisy-or'",
        ),
        (contrasted(contrast("exact", "exact")), "first and second are one variant"),
        (
            contrasted(
                contrast("exact", "noisy-or head=softmax"),
                contrast("noisy-or head=softmax", "exact", name="turned"),
            ),
            "contrasts 'asked' and 'turned' have the same variants",
        ),
    ],
)
def test_what_makes_no_sense_is_one_line(values: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        tiny_plan(**values)


def test_a_contrast_finds_its_variants_on_every_task_and_survives_json() -> None:
    asked = contrast("noisy-or head=softmax", "exact")
    plan = tiny_plan(**contrasted(asked, compare_by=["instance_error"]))
    (only,) = plan.contrasts
    assert (only.first, only.second) == ("noisy-or head=softmax", "exact")
    assert plan_from_json(plan_to_json(plan).encode()) == plan


def test_flags_may_leave_out_a_variant_of_a_contrast() -> None:
    both = (
        contrast("noisy-or head=softmax", "exact"),
        contrast("one-vs-rest", "exact", name="other"),
    )
    spec = make_spec({"name": "t", "tasks": [TINY], **contrasted(*both)})
    changed = Launch(Execution(), is_changed=True)
    assert len(make_plan(spec, changed).contrasts) == 2
