"""Published reports: a saved report is read back as it was, and a damaged one is refused."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from milbench.contracts.outcomes import Outcomes, load_outcomes, save_outcomes
from milbench.errors import UsageError
from milbench.report.classes import class_tables
from milbench.report.limits import shared_lines
from milbench.report.published_reports import FRAME, PLAN, read, save
from milbench.report.study import Study
from milbench.report.values import rows_of
from milbench.store.results import Results
from tests._helpers.report_data import ONE, make_results

REPORTS = Path(__file__).parents[2] / "reports"

ONE_LINE = r"\A.+\Z"
"""A pattern of any text without a line break."""

STATUSES = {
    ("exact", "extended-digits", 0): ("failed", 'a "quoted", reason'),
    ("noisy-or", "extended-digits", 1): ("missing", ""),
}


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_round_trip_keeps_the_plan_and_the_frame(tmp_path: Path) -> None:
    results = make_results(statuses=STATUSES, notes=["A note."])
    save(results, tmp_path)
    back = read(tmp_path)
    assert back.plan == results.plan
    pd.testing.assert_frame_equal(back.frame, results.frame, check_dtype=False, rtol=1e-7)


def test_the_final_rows_of_a_metric_are_the_values_of_the_report(tmp_path: Path) -> None:
    results = make_results(statuses=STATUSES)
    save(results, tmp_path)
    final = pd.read_csv(tmp_path / FRAME).query(
        "final"
        " and task == 'extended-digits'"
        " and metric == 'test/instance_error'"
        " and loss == 'max-pooling'"
    )
    expected = list(Study(results).table("extended-digits").loc["max-pooling"])
    assert list(final["value"]) == pytest.approx(expected)


def test_a_report_that_is_read_and_saved_again_has_the_same_bytes(tmp_path: Path) -> None:
    save(make_results(statuses=STATUSES, notes=["A note."]), tmp_path)
    before = contents(tmp_path)
    save(read(tmp_path), tmp_path)
    assert contents(tmp_path) == before


def with_constant_answer(results: Results) -> Results:
    """Return results with the set error of no skill, by which a report judges learning."""
    rows = results.frame[results.frame["metric"] == "test/instance_error"]
    line = rows.assign(metric="test/no_skill_set_error")
    return replace(results, frame=pd.concat([results.frame, line], ignore_index=True))


def save_evidence(results: Results) -> None:
    """Write outcomes and counts into the folder of each cell.

    The outcomes are of five test bags by three metrics, the counts of two classes.
    """
    study = Study(results)
    for row in rows_of(study.cells):
        folder = results.folders[row.cell]
        error = float(study.table("extended-digits")[row.seed][row.variant])
        outcomes = Outcomes(np.full(5, error), np.ones(5), "x")
        stored = dict.fromkeys(("instance_error", "set_error", "unused"), outcomes)
        save_outcomes(folder / "outcomes.npz", stored)
        # Bags that have the class, bags where it is predicted, and bags where it is predicted
        # rightly; then bags where it is missed and a cat, or a dog, is predicted instead.
        counts = {row.cell: {"cat": [4, 2, 1, 0, 3], "dog": [4, 5, 3, 1, 0]}}
        (folder / "classes.json").write_text(json.dumps(counts))


def test_outcomes_of_all_cells_are_one_file(tmp_path: Path) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    save_evidence(results)
    kept = tmp_path / "kept"
    save(with_constant_answer(results), kept)
    metrics = {name.partition("/")[2] for name in load_outcomes(kept / "outcomes.npz")}
    assert metrics == {"instance_error", "set_error"}
    noise = Study(read(kept)).noise("extended-digits")
    assert noise is not None
    assert (noise.items == 5).all()


def test_outcomes_of_the_draws_of_a_search_are_not_kept(tmp_path: Path) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    save_evidence(results)
    cells = set(results.frame["cell"])
    draw = results.frame["cell"] == min(cells)
    frame = results.frame.assign(draw=results.frame["draw"].mask(draw, 0))
    save(replace(results, frame=frame), tmp_path / "kept")
    kept = {name.partition("/")[0] for name in load_outcomes(tmp_path / "kept" / "outcomes.npz")}
    assert kept == cells - {min(cells)}


def test_a_report_is_copied_with_its_evidence_by_saving_it_elsewhere(tmp_path: Path) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    save_evidence(results)
    kept = tmp_path / "kept"
    save(with_constant_answer(results), kept)
    save(read(kept), tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(kept)


def test_counts_of_all_cells_are_one_file(tmp_path: Path) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    save_evidence(results)
    save(results, tmp_path / "kept")
    scores, confusion = class_tables(Study(read(tmp_path / "kept")), "extended-digits")
    # Of cats 1 of 2 predictions is right, and 1 of 4 bags is found; of dogs 3 of 5, and 3 of 4.
    assert scores.frame["exact"].to_dict() == {"cat": "50.0 / 25.0", "dog": "60.0 / 75.0"}
    assert confusion.frame.to_numpy().tolist() == [["25.0", "75.0"], ["25.0", "75.0"]]


def test_counts_are_read_where_no_outcomes_were_kept(tmp_path: Path) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    save_evidence(results)
    for folder in results.folders.values():
        (folder / "outcomes.npz").unlink()
    kept = tmp_path / "kept"
    save(results, kept)
    assert not (kept / "outcomes.npz").exists()
    back = read(kept)
    assert class_tables(Study(back), "extended-digits")
    before = contents(kept)
    save(back, kept)
    assert contents(kept) == before


def test_what_test_bags_share_is_said_of_their_task_alone() -> None:
    # Test bags of words belong to words. Those of spoken digits are made of the same recordings.
    words, digits = shared_lines(Study(read(REPORTS / "context")))
    assert words.startswith("On handwritten-words test bags belong to groups")
    assert digits.startswith("On spoken-digits some test bags share items")


def test_a_name_outside_the_folder_of_reports_is_refused(tmp_path: Path) -> None:
    save(make_results(tasks=ONE), tmp_path)
    text = gzip.decompress((tmp_path / PLAN).read_bytes()).decode()
    edited = text.replace('"name": "demo"', '"name": "../up"')
    assert edited != text
    (tmp_path / PLAN).write_bytes(gzip.compress(edited.encode()))
    with pytest.raises(UsageError, match=r"name: Value error, expected at most 200 letters"):
        read(tmp_path)


def test_a_folder_without_a_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a published report"):
        read(tmp_path)


@pytest.mark.parametrize("name", [PLAN, FRAME])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: content[: len(content) // 2], id="cut in half"),
        pytest.param(lambda content: b"text", id="not compressed"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(
    name: str, damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    save(make_results(tasks=ONE), tmp_path)
    path = tmp_path / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageError, match=ONE_LINE):
        read(tmp_path)
