"""From specs, flags and settings to plans: what is planned, and what is refused in one line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milbench import UsageError
from milbench.api.plan import Label, Plan
from milbench.api.registry import tasks
from milbench.engine.planning import make_plan
from milbench.engine.spec import (
    built_in_specs,
    make_spec,
    parse_seeds,
    parse_setting,
    presets,
    read_spec,
    requested_spec,
)
from milbench.report.literature import deviations
from tests._helpers.command_line import TINY


def tiny_plan(**values: object) -> Plan:
    spec = make_spec({"name": "t", "losses": ["exact", "max-pooling"], "tasks": [TINY], **values})
    return make_plan(spec)


@pytest.mark.parametrize(
    ("given", "seeds"),
    [("0-3", [0, 1, 2, 3]), ("2,0,5-6", [0, 2, 5, 6]), (7, [7]), ([3, 1], [1, 3]), (" 1 - 2 ", [1, 2]), ("4-4", [4])],
)
def test_seeds(given: str | int | list[int], seeds: list[int]) -> None:
    assert parse_seeds(given) == seeds


@pytest.mark.parametrize("given", ["3-1", "a", "", "1,,2", "-1", "1.5", "0-99999999"])
def test_wrong_seeds(given: str) -> None:
    with pytest.raises(UsageError, match="seeds"):
        parse_seeds(given)


def test_a_plan_is_every_combination() -> None:
    plan = tiny_plan(
        seeds="0-2", loss={"max-pooling": {"normalization": ["bag", "batch"]}}, recipe={"head_init": ["prior", "paper"]}
    )
    assert len(plan.cells) == 3 * 3 * 2  # exact and two max-poolings, three seeds, two heads
    assert len({cell.id for cell in plan.cells}) == len(plan.cells)
    names = {plan.labels[cell.id] for cell in plan.cells}
    assert Label("tiny", "max-pooling normalization=batch", recipe="head_init=paper") in names
    assert Label("tiny", "exact", recipe="head_init=prior") in names


def test_identity_is_what_is_computed() -> None:
    first, second = tiny_plan(seeds="0-1"), tiny_plan(losses=["max-pooling", "exact"], seeds="1,0", name="other")
    assert {c.id for c in first.cells} == {c.id for c in second.cells}
    assert {c.id for c in first.cells}.isdisjoint(c.id for c in tiny_plan(seeds="0-1", recipe={"lr": 0.01}).cells)
    assert {c.id for c in first.cells}.isdisjoint(
        c.id for c in tiny_plan(seeds="0-1", task={"tiny": {"size": 6}}).cells
    )
    default = tiny_plan(seeds="0", loss={"exact": {"divide_by": "batch"}})  # a default, written out
    assert {c.id for c in default.cells} < {c.id for c in first.cells}


def test_the_first_metric_to_compare_by_takes_the_place_of_the_primary_one() -> None:
    plan = tiny_plan(compare_by=["set_error", "instance_error"])
    assert {info.primary for info in plan.tasks.values()} == {"set_error"}
    assert plan.compare_by == ["set_error", "instance_error"]
    assert {c.id for c in plan.cells} == {c.id for c in tiny_plan().cells}
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(UsageError, match=r"metric of compare_by 'set_errorr'.*did you mean 'set_error'"):
        tiny_plan(compare_by=["set_errorr"])


def test_a_plan_that_would_not_fit_into_memory_is_refused_before_it_is_made() -> None:
    ranges = ",".join(f"{n * 100_000}-{n * 100_000 + 99_999}" for n in range(20))
    with pytest.raises(UsageError, match="2,000,000 seeds are too many, expected at most 100,000"):
        parse_seeds(ranges)
    assert len(parse_seeds("0-99999")) == 100_000
    with pytest.raises(UsageError, match=r"the axes lr, epochs have 1,000,000 combinations"):
        tiny_plan(recipe={"lr": [n / 1000 for n in range(1000)], "epochs": list(range(1000))})
    with pytest.raises(UsageError, match=r"1,400,000 cells are too many for one comparison"):
        tiny_plan(seeds="0-99999", recipe={"lr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]})


@pytest.mark.parametrize(
    ("old", "new"),
    [('"seed"', '"sead"'), ('"folds": null', '"folds": 3'), ("}", "")],
)
def test_a_plan_that_cannot_be_read_is_one_line(old: str, new: str) -> None:
    with pytest.raises(UsageError, match="damaged or of another version"):
        Plan.from_json(tiny_plan().to_json().replace(old, new, 1))


def test_a_launch_that_adds_losses_holds_every_cell_once_and_of_changed_code_the_newest() -> None:
    old, new = tiny_plan(losses=["exact"], seeds="0-1"), tiny_plan(seeds="1-2")
    joined = new.joined(old)
    assert {c.id for c in joined.cells} == {c.id for c in [*old.cells, *new.cells]}
    assert len(joined.cells) == 5
    changed = replace(new, cells=[replace(cell, loss_revision="later") for cell in new.cells])
    assert {cell.loss_revision for cell in changed.joined(new).cells} == {"later"}


def test_launches_of_one_spec_and_the_same_settings_add_up(tmp_path: Path) -> None:
    def origin(spec: str | None, loss: str | None, *settings: str, **given: object) -> str:
        chosen = {"losses": loss and [loss], "tasks": [TINY], "run": {"jobs": 2}, **given}
        return requested_spec(spec, None, chosen, settings).origin

    path = tmp_path / "mine.toml"
    path.write_text(f'losses = ["exact", "noisy-or"]\ntasks = ["{TINY}"]\n')
    for spec in (None, str(path)):
        first = origin(spec, "exact")
        assert first == origin(spec, "noisy-or", "run.threads=1", seeds="0-9")
        assert len({first, origin(spec, "exact", "recipe.lr=0.1"), origin(spec, "exact", "recipe.lr=0.2")}) == 3
    before = origin(str(path), None)
    path.write_text(path.read_text() + "[recipe]\nepochs = 3\n")
    assert before == first != origin(str(path), None)


def test_variants_of_a_task_have_short_names() -> None:
    task = {"tiny": [{"name": "small", "size": 4}, {"name": "large", "size": [8, 9]}]}
    plan = tiny_plan(task=task, losses=["exact"])
    assert {c.task_params["size"]: plan.labels[c.id].task for c in plan.cells} == {4: "small", 8: "large", 9: "large"}
    with pytest.raises(UsageError, match="two variants of task tiny are named 'small'"):
        tiny_plan(task={"tiny": [{"name": "small"}, {"name": "small", "size": 3}]})


def test_settings_go_where_they_belong() -> None:
    values: dict[str, object] = {"losses": ["exact", "max-pooling"], "tasks": [TINY]}
    for setting in ("loss.normalization=batch", "task.size=6", "task.tiny.batches=3", "recipe.lr=0.1,0.2",
                    "loss.exact.divide_by=none", "recipe.gradient_norm=max:2"):  # fmt: skip
        parse_setting(values, setting)
    assert values["loss"] == {"max-pooling": {"normalization": "batch"}, "exact": {"divide_by": "none"}}
    assert values["task"] == {"tiny": {"size": 6, "batches": 3}}
    assert values["recipe"] == {"lr": [0.1, 0.2], "gradient_norm": "max:2"}
    plan = make_plan(make_spec({"name": "t", **values}))
    assert {c.recipe["lr"] for c in plan.cells} == {0.1, 0.2}
    assert {c.recipe["gradient_norm"] for c in plan.cells} == {"max:2"}


def test_a_table_in_the_recipe_is_for_the_task_it_names(tmp_path: Path) -> None:
    values = {"losses": ["exact"], "tasks": [TINY, "synthetic-bags"]}
    recipe = {"lr": 0.1, "epochs": 3, "tiny": {"lr": [0.2, 0.3]}, "extended-digits": {"lr": 9.0}}
    rates = {(c.task, c.recipe["lr"], c.recipe["epochs"]) for c in tiny_plan(**values, recipe=recipe).cells}
    assert rates == {("tiny", 0.2, 3), ("tiny", 0.3, 3), ("synthetic-bags", 0.1, 3)}
    path = tmp_path / "mine.toml"
    path.write_text(f'losses = ["exact"]\ntasks = ["{TINY}"]\n[recipe.tiny]\nlr = 0.2\nepochs = 3\n')
    fields = read_spec(str(path)).model_dump()
    parse_setting(fields, "recipe.tiny.gradient_norm=none")
    parse_setting(fields, "recipe.lr=0.5")  # for every task: the table of one gives way
    assert fields["recipe"] == {"tiny": {"epochs": 3, "gradient_norm": "none"}, "lr": 0.5}
    with pytest.raises(UsageError, match="unknown recipe section of the run 'tinny'; did you mean 'tiny'"):
        tiny_plan(recipe={"tinny": {"lr": 0.2}})
    with pytest.raises(UsageError, match="unknown parameter of the recipe 'lrr'; did you mean 'lr'"):
        tiny_plan(recipe={"tiny": {"lrr": 0.2}})


def test_a_loss_from_orders_needs_instances_in_an_order() -> None:
    def planned(task: str) -> Plan:
        return make_plan(make_spec({"name": "t", "losses": ["ctc"], "tasks": [task]}))

    with pytest.raises(UsageError, match="ctc learns from the order of the instances, and those of extended-digits"):
        planned("extended-digits")
    assert len(planned("sound-events").cells) == 1


@pytest.mark.parametrize(("name", "preset"), [(n, p) for n in built_in_specs() for p in [None, *presets(n)]])
def test_every_spec_that_comes_with_milbench_can_be_planned_with_any_of_its_tasks_alone(
    name: str, preset: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = read_spec(name, preset).model_dump()
    for task in values["tasks"]:
        monkeypatch.setattr(tasks().get(task), "check_data", lambda self, data_dir: "not looked at")
        monkeypatch.setattr(tasks().get(task), "overlap", lambda self, data_dir: 0.0)
    whole = make_plan(make_spec(values))
    alone = [cell for task in values["tasks"] for cell in make_plan(make_spec({**values, "tasks": [task]})).cells]
    assert {cell.id for cell in alone} == {cell.id for cell in whole.cells}


@pytest.mark.parametrize(
    ("name", "count"), [("section-5-1", 40), ("section-5-2", 30), ("section-5-4", 72), ("supplementary-a", 60)]
)
def test_the_preset_paper_is_what_was_published_and_quick_differs_in_whatever_decides_a_result(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in read_spec(name, "paper").tasks:
        monkeypatch.setattr(tasks().get(task), "check_data", lambda self, data_dir: "not looked at")
    for preset in ("paper", "quick"):
        plan = make_plan(read_spec(name, preset))
        pairs = [(cell, f) for cell in plan.cells for f in plan.tasks[cell.task_key].published if f.loss == cell.loss]
        pairs = [(cell, fact) for cell, fact in pairs if cell.loss_params.get("normalization") != "bag"]
        assert pairs
        for cell, fact in pairs:
            differences = deviations(fact.protocol, [cell.params()])
            if preset == "paper":
                assert len(plan.cells) == count
                assert {*fact.protocol} <= {*cell.params()}, "a name that no cell has tells nothing"
                assert differences == []
            else:
                for word in ("optimizer", "lr", "gradient_norm", "validation"):
                    assert word in " ".join(differences)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"selection": "test"}, "'last' or 'validation'"),
        ({"margin": {"set_eror": 0.01}}, "metric of margin 'set_eror'; did you mean 'set_error'"),
        ({"margin": {"set_error": -0.01}}, "margin.set_error = -0.01 is wrong"),
    ],
)
def test_a_wrong_way_to_compare_is_one_line(values: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        tiny_plan(**values)


def test_a_plug_in_counts_by_what_is_in_it_not_by_where_it_lies(tmp_path: Path) -> None:
    text = Path(TINY).read_text()
    ids = []
    for folder, source in (("a", text), ("b", text), ("c", text + "\n# changed\n")):
        path = tmp_path / folder / "task.py"
        path.parent.mkdir()
        path.write_text(source.replace('"tiny"', '"tiny-elsewhere"'))
        from milbench.api import registry

        registry.tasks.cache_clear()
        ids.append([c.id for c in tiny_plan(tasks=[str(path)]).cells])
    registry.tasks.cache_clear()
    assert ids[0] == ids[1] != ids[2]


def contrast(first: str, second: str, name: str = "asked", **more: Any) -> dict[str, Any]:
    return {"name": name, "first": first, "second": second, **more}


def contrasted(*contrasts: dict[str, Any], **values: Any) -> Plan:
    heads = {"noisy-or": {"head": ["softmax", "sigmoid"]}}
    return tiny_plan(losses=["exact", "noisy-or"], loss=heads, contrasts=contrasts, **values)


def test_a_contrast_finds_its_variants_on_every_task_and_survives_json() -> None:
    plan = contrasted(contrast("noisy-or head=softmax", "exact", margin={"set_error": 0.01}))
    (only,) = plan.contrasts
    assert only.variants == {"tiny": ("noisy-or head=softmax", "exact")}
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([contrast("noisy-or head=softmx", "exact")], "unknown variant.*did you mean 'noisy-or head=softmax'"),
        ([contrast("exakt", "noisy-or head=softmax")], "contrast 'asked' 'exakt'; did you mean 'exact'"),
        ([contrast("noisy-or", "exact")], "unknown variant in contrast 'asked' 'noisy-or'"),
        ([contrast("exact", "exact")], "first and second are one variant"),
        ([contrast("exact", "noisy-or head=softmax", margin={"set_eror": 0.1})], "did you mean 'set_error'"),
        (
            [contrast("exact", "noisy-or head=softmax"), contrast("noisy-or head=softmax", "exact", name="reversed")],
            "'asked' and 'reversed' have the same variants",
        ),
    ],
)  # fmt: skip
def test_what_names_no_two_variants_is_refused(given: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        contrasted(*given)


def test_a_contrast_whose_variant_flags_have_left_out_is_left_out_with_a_remark() -> None:
    both = contrast("noisy-or head=softmax", "exact"), contrast("one-vs-rest", "exact", name="other")
    plan = contrasted(*both, changed=True)
    assert [c.name for c in plan.contrasts] == ["asked"]
    (note,) = plan.notes
    assert "'other' was left out" in note
    assert "unknown variant in contrast 'other' 'one-vs-rest'" in note
