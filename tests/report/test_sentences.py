"""The sentence at the head of a report, which says what the data exclude and no more."""

from typing import Any

import pytest

from milbench.contracts.supervision import Supervision
from milbench.experiment.questions import Mark
from milbench.report.more_seeds import more_seeds
from milbench.report.render import sentence
from milbench.report.study import Study
from tests._helpers.report_data import ONE, TWO, make_results, results_by_seed

MISSING = ("missing", "")
"""The status of a cell that was not computed, and the reason."""
TWO_LOSSES = {"a": 0.01, "b": 0.4}
MARKS = [
    Mark("easy", "t", at_most={"set_error": 0.3}),
    Mark("hard", "t", at_most={"set_error": 0.05}),
]


def test_the_losses_that_may_be_the_best_are_named() -> None:
    said = sentence(make_results(tasks=ONE))
    assert said in {
        f"Best on extended-digits: {names}. The other two are worse (95 % confidence)."
        for names in ("exact or noisy-or", "noisy-or or exact")
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            {"losses": {"a": 0.01, "b k=word": 0.4}},
            "Best on t: a. b (word) is worse (95 % confidence).",
            id="one is worse",
        ),
        pytest.param(
            {"losses": TWO_LOSSES, "seeds": 1},
            "One seed cannot tell which loss is best on t; a has",
            id="one seed",
        ),
        pytest.param(
            {"losses": TWO_LOSSES, "seeds": 2, "statuses": {("a", "t", 1): MISSING}},
            "So few common seeds cannot tell which",
            id="one common seed",
        ),
        pytest.param(
            {"losses": {"a": 0.01, "b": 0.0101}},
            "On t losses cannot be told apart: a difference below",
            id="nearly equal errors",
        ),
        pytest.param(
            {"losses": {"a": 0.01, "b": 0.011}, "seeds": 2},
            "(95 % confidence, but two seeds say little)",
            id="two seeds",
        ),
        pytest.param({"losses": {"a": 0.01}}, "% (mean of 3 seeds).", id="one loss"),
        pytest.param(
            {"losses": {"a": 0.01}, "seeds": 1},
            "One loss has nothing to be better than on t: a has a set error of",
            id="one loss with one seed",
        ),
        pytest.param(
            {"losses": dict.fromkeys("abcdefgh", 0.01) | {"i": 0.4}},
            "points may not show. Worse than the best: i (95 % confidence).",
            id="one of many is worse",
        ),
        pytest.param(
            {
                "losses": {"a": 0.01, "b": 0.4, "c": 0.01},
                "statuses": {("c", "t", seed): MISSING for seed in range(3)},
            },
            "Best on t: a. b is worse (95 % confidence); 6 of 9 cells are done.",
            id="a loss without cells",
        ),
        pytest.param(
            {"losses": {"a": 0.01, "b": 0.1, "c": 0.6}, "info": {"marks": MARKS}},
            "Passed of 2 tests: a 2, b 1.",
            id="marks",
        ),
    ],
)
def test_what_is_said_of_one_task(arguments: dict[str, Any], expected: str) -> None:
    assert expected in sentence(make_results(tasks={"t": "set_error"}, **arguments))


def test_few_tasks_have_a_sentence_each() -> None:
    said = sentence(make_results(losses=TWO_LOSSES, tasks=TWO))
    assert said.count("a. b is worse (95 % confidence).") == 2


def test_many_tasks_are_counted() -> None:
    tasks = {f"t{number}": "set_error" for number in range(5)}
    assert sentence(make_results(losses=TWO_LOSSES, tasks=tasks)) == (
        "Not shown to be worse than the best (95 % confidence on each task): a on 5 of 5 tasks. "
        "Worse than the best on all: b."
    )


def test_losses_with_one_common_seed_have_no_verdict_on_many_tasks() -> None:
    """The loss p has both seeds. It learns from positions, and so is not compared with a and b."""
    tasks = [f"t{number}" for number in range(4)]
    supervision: dict[str, Supervision] = {"p": "position"}
    results = make_results(
        losses=dict.fromkeys("abp", 0.1),
        tasks=dict.fromkeys(tasks, "set_error"),
        seeds=2,
        statuses={("a", task, 1): MISSING for task in tasks},
        supervision=supervision,
    )
    assert sentence(results).startswith(
        "So few common seeds cannot tell which loss is best on any of 4 tasks."
    )


@pytest.mark.parametrize("primary", ["set_error", "instance_error"])
def test_equivalence_is_not_counted_over_different_tasks(primary: str) -> None:
    results = make_results(
        tasks={"a": primary, "b": "set_error"},
        margin={"set_error": 0.01},
        params={"a": {"size": 3, "share": 0.5}},
    )
    assert sentence(results).startswith("Best on a: ")


def test_as_many_seeds_as_a_sentence_says_separate_two_losses() -> None:
    errors = {"a": [0.10, 0.11, 0.13], "b": [0.11, 0.14, 0.12]}
    (said,) = more_seeds(Study(results_by_seed(errors)))
    seeds = int(said.removeprefix("On t about ").partition(" ")[0])
    assert said == f"On t about {seeds} seeds would separate a from b, if the difference stays."

    # The same three errors are repeated, so that means and variances stay.
    with_more_seeds = {}
    for loss, three in errors.items():
        with_more_seeds[loss] = [three[seed % 3] for seed in range(seeds)]
    assert more_seeds(Study(results_by_seed(with_more_seeds))) == [], "one contender is left"
