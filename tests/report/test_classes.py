"""Tables of precision, recall and confusions of each class, from counts made up by hand."""

import json
from pathlib import Path

from milbench.report.classes import class_tables
from milbench.report.study import Study
from milbench.store.results import Results
from tests._helpers.report_data import make_results

TASK = "pets"

COUNTS = {
    "cat": [4, 2, 1, 0, 3],
    "dog": [4, 5, 3, 1, 0],
}
"""Class -> five numbers of bags.

Bags that have the class, bags where it is predicted, and bags where it is predicted rightly; then
bags where it is missed and a cat, or a dog, is predicted instead.
"""


def results_with(folder: Path, counts: dict[str, list[int]], seeds: int = 1) -> Results:
    """Return results of losses a and b, whose cells have these counts; a has the smaller error."""
    results = make_results(
        folder, losses={"a": 0.1, "b": 0.5}, tasks={TASK: "set_error"}, seeds=seeds
    )
    for cell, path in results.folders.items():
        (path / "classes.json").write_text(json.dumps({cell: counts}))
    return results


def test_each_class_has_its_precision_and_recall(tmp_path: Path) -> None:
    scores, _ = class_tables(Study(results_with(tmp_path, COUNTS)), TASK)
    # Of cats 1 of 2 predictions is right, and 1 of 4 bags is found; of dogs 3 of 5, and 3 of 4.
    assert scores.frame["a"].to_dict() == {"cat": "50.0 / 25.0", "dog": "60.0 / 75.0"}


def test_every_loss_has_a_column(tmp_path: Path) -> None:
    scores, _ = class_tables(Study(results_with(tmp_path, COUNTS)), TASK)
    assert list(scores.frame.columns) == ["a", "b"]


def test_the_best_loss_has_a_table_of_what_it_confuses(tmp_path: Path) -> None:
    _, confusion = class_tables(Study(results_with(tmp_path, COUNTS)), TASK)
    assert confusion.title == "What a takes for what on pets"
    # Of 4 bags with a cat 1 is found, and 3 are taken for a dog. Of 4 with a dog 3 are found.
    assert confusion.frame.loc["cat"].to_dict() == {"cat": "25.0", "dog": "75.0"}
    assert confusion.frame.loc["dog"].to_dict() == {"cat": "25.0", "dog": "75.0"}


def test_counts_of_all_seeds_are_added(tmp_path: Path) -> None:
    results = results_with(tmp_path, COUNTS, seeds=2)
    cell = Study(results).done_cells(TASK, "a")[0]
    other = {"cat": [4, 2, 2, 0, 0], "dog": [4, 5, 1, 2, 0]}
    (results.folders[cell] / "classes.json").write_text(json.dumps({cell: other}))
    scores, _ = class_tables(Study(results), TASK)
    # Of cats 3 of 4 predictions are right, and 3 of 8 bags are found; of dogs 4 of 10, and 4 of 8.
    assert scores.frame["a"].to_dict() == {"cat": "75.0 / 37.5", "dog": "40.0 / 50.0"}


def test_a_class_that_is_never_predicted_has_no_precision(tmp_path: Path) -> None:
    counts = {"cat": [4, 0, 0, 0, 4], "dog": [4, 5, 3, 1, 0]}
    scores, _ = class_tables(Study(results_with(tmp_path, counts)), TASK)
    assert scores.frame.loc["cat", "a"] == "— / 0"


def test_many_classes_have_no_table_of_confusions(tmp_path: Path) -> None:
    # Data with many classes have no counts of what is predicted instead.
    first_three = {name: counts[:3] for name, counts in COUNTS.items()}
    (scores,) = class_tables(Study(results_with(tmp_path, first_three)), TASK)
    assert list(scores.frame.index) == ["cat", "dog"]


def test_a_single_class_has_no_table_of_confusions(tmp_path: Path) -> None:
    (scores,) = class_tables(Study(results_with(tmp_path, {"cat": [4, 2, 1, 0]})), TASK)
    assert scores.frame["a"].to_dict() == {"cat": "50.0 / 25.0"}


def test_without_counts_there_is_no_table(tmp_path: Path) -> None:
    results = make_results(tmp_path, tasks={TASK: "set_error"})
    assert class_tables(Study(results), TASK) == []
