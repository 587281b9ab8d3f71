"""The sentence of a report says what the data exclude, and no more than they show."""

from itertools import product

import pytest

from milbench.contracts.supervision import Supervision
from milbench.experiment.questions import Mark
from milbench.report.more_seeds import more_seeds
from milbench.report.render import sentence
from milbench.report.study import Study
from tests._helpers.report_data import ONE, TWO, make_results, results_by_epoch

ALONE = {("a", "t", 1): ("missing", "")}
LOST = {("c", "t", seed): ("missing", "") for seed in range(3)}
MARKS = [Mark("easy", "t", {}, {"set_error": 0.3}), Mark("hard", "t", {}, {"set_error": 0.05})]


def test_the_losses_that_are_left_are_named_the_best_mean_first() -> None:
    said = sentence(make_results(tasks=ONE))
    assert said in {
        f"Best on extended-digits: {names}. The other two are worse (95 % confidence)."
        for names in ("exact or noisy-or", "noisy-or or exact")
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"losses": {"a": 0.01, "b k=word": 0.4}},
            "Best on t: a. b (word) is worse (95 % confidence).",
        ),
        (
            {"losses": {"a": 0.01, "b": 0.4}, "seeds": 1},
            "One seed cannot tell which loss is best on t; a has",
        ),
        (
            {"losses": {"a": 0.01, "b": 0.4}, "seeds": 2, "statuses": ALONE},
            "So few common seeds cannot tell which",
        ),
        (
            {"losses": {"a": 0.01, "b": 0.0101}},
            "On t losses cannot be told apart: a difference below",
        ),
        (
            {"losses": {"a": 0.01, "b": 0.011}, "seeds": 2},
            "(95 % confidence, but two seeds say little)",
        ),
        ({"losses": {"a": 0.01}}, "% (mean of 3 seeds)."),
        (
            {"losses": {"a": 0.01}, "seeds": 1},
            "One loss has nothing to be better than on t: a has a set error of",
        ),
        (
            {"losses": dict.fromkeys("abcdefgh", 0.01) | {"i": 0.4}},
            "points would not show. Worse than the best: i (95 % confidence).",
        ),
        (
            {"losses": {"a": 0.01, "b": 0.4, "c": 0.01}, "statuses": LOST},
            "Best on t: a. b is worse (95 % confidence); 6 of 9 cells are done.",
        ),
        (
            {"losses": {"a": 0.01, "b": 0.1, "c": 0.6}, "info": {"marks": MARKS}},
            "Passed of 2 tests: a 2, b 1.",
        ),
    ],
)
def test_what_is_said_of_one_task(fields: dict[str, object], expected: str) -> None:
    assert expected in sentence(make_results(tasks={"t": "set_error"}, **fields))  # type: ignore[arg-type]


def test_few_tasks_have_a_sentence_each_and_many_are_counted() -> None:
    two = {"a": 0.01, "b": 0.4}
    assert (
        sentence(make_results(losses=two, tasks=TWO)).count("a. b is worse (95 % confidence).") == 2
    )
    many = make_results(losses=two, tasks={f"t{k}": "set_error" for k in range(5)})
    expected = (
        "Not shown to be worse than the best (95 % confidence on each task): a on 5 of 5 tasks."
    )
    assert sentence(many) == f"{expected} Worse than the best on all: b."


def test_losses_that_share_no_two_seeds_have_no_verdict_beside_one_with_more_supervision() -> None:
    lost = {("a", f"t{k}", 1): ("missing", "") for k in range(4)}
    tasks = {f"t{k}": "set_error" for k in range(4)}
    kinds: dict[str, Supervision] = {"a": "set", "b": "set", "p": "position"}
    several = make_results(
        losses=dict.fromkeys("abp", 0.1), tasks=tasks, seeds=2, statuses=lost, supervision=kinds
    )
    assert sentence(several).startswith(
        "So few common seeds cannot tell which loss is best on any of 4 tasks."
    )


def test_equivalence_is_not_counted_over_several_tasks() -> None:
    margin, params = {"set_error": 0.01}, {"a": {"size": 3, "share": 0.5}}
    for primary in ("set_error", "instance_error"):
        several = make_results(tasks={"a": primary, "b": "set_error"}, margin=margin, params=params)
        assert sentence(several).startswith("Best on a: ")


def test_the_seeds_that_are_told_separate_two_losses_whose_difference_stays() -> None:
    level = {"a": (0.10, 0.11, 0.13), "b": (0.11, 0.14, 0.12)}
    few = {(loss, k): [(0.5, v)] for loss, values in level.items() for k, v in enumerate(values)}
    (said,) = more_seeds(Study(results_by_epoch(few)))
    seeds = int(said.removeprefix("On t about ").partition(" ")[0])
    assert said == f"On t about {seeds} seeds would separate a from b, if the difference stays."
    many = {(loss, k): [(0.5, level[loss][k % 3])] for loss, k in product(level, range(seeds))}
    assert more_seeds(Study(results_by_epoch(many))) == [], "one contender is left"
