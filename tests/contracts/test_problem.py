"""The text by which Python shows a problem."""

from milbench import load_task


def test_a_problem_shows_its_size_in_one_line() -> None:
    problem = load_task("extended-digits").load(seed=1, limit=16)
    shown = repr(problem)
    assert shown.startswith("<extended-digits, seed 1: ")
    assert len(shown) < 200
    assert "\n" not in shown
