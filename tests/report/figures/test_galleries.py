"""The file of pictures: a round trip, nothing unpickled, nothing damaged let through."""

from __future__ import annotations

import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milbench._utils import files
from milbench.api import gallery
from milbench.errors import UsageError
from milbench.report.figures.galleries import MOST_BAGS, galleries, gallery_figure
from milbench.report.study import Study
from tests._helpers.report_data import ONE, galleries_of, make_results


def image_arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "kind": "image", "instances": rng.random((2, 1, 8, 10)), "labels": np.eye(2, 3) > 0,
        "presence": rng.random((2, 3)), "probs": np.full((2, 4, 4, 5), 0.25), "class_names": ["0", "1", "β"],
        "ys": np.arange(4) * 2 + 1.0, "xs": np.arange(5) * 2 + 1.0, "threshold": 0.5,
        "classes": np.array([[0, -1], [1, 1]]), "boxes": np.zeros((2, 2, 4)),
    }  # fmt: skip


def test_round_trip_of_images(tmp_path: Path) -> None:
    made = gallery.make(**image_arrays())
    gallery.write(tmp_path / "g.npz", made)
    read = gallery.load(tmp_path / "g.npz")
    for field in fields(made):
        np.testing.assert_equal(getattr(read, field.name), getattr(made, field.name))


def test_round_trip_of_sets_and_what_is_detected(tmp_path: Path) -> None:
    probs = np.zeros((1, 3, 4))
    probs[0, [0, 1, 2, 0], np.arange(4)] = 1
    mask = [[True, False, True, True]]
    gallery.write(tmp_path / "g.npz", gallery.make(kind="set", instances=np.zeros((1, 4, 2)), labels=[[True, True]],
                 presence=[[0.2, 0.9]], probs=probs, class_names=["a", "b"], mask=mask))  # fmt: skip
    read = gallery.load(tmp_path / "g.npz")
    assert read.class_map(0).tolist() == [0, 2, 2, 0], "a masked position is background"
    assert read.detected(0) == {0}
    assert read.true(0) == {0, 1}


@pytest.mark.parametrize(
    ("name", "value"),
    [("probs", np.zeros((2, 3, 4, 5))), ("presence", np.zeros((2, 2))), ("class_names", ["0"]),
     ("mask", np.zeros((2, 9), bool)), ("boxes", np.zeros((2, 3, 4))), ("instances", np.zeros((2, 8, 10))),
     ("ys", np.zeros(3)), ("xs", np.zeros(4)), ("kind", "film")],
)  # fmt: skip
def test_arrays_that_do_not_fit_together_are_named(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        gallery.write(tmp_path / "g.npz", gallery.make(**(image_arrays() | {name: value})))
    assert not (tmp_path / "g.npz").exists()


def test_damaged_missing_foreign_and_pickled_files_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 10_000_000)
    path = tmp_path / "g.npz"
    gallery.write(path, gallery.make(**image_arrays()))
    whole = path.read_bytes()
    spoilt = {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "flipped": whole[:300] + bytes(b ^ 255 for b in whole[300:400]) + whole[400:],
    }
    for name, content in spoilt.items():
        (tmp_path / name).write_bytes(content)
    np.savez(tmp_path / "pickled.npz", format=np.array([{"a": 1}], dtype=object))
    np.savez(tmp_path / "newer.npz", format=99)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as bomb, bomb.open("mask.npy", "w", force_zip64=True) as file:
        for _ in range(11):
            file.write(b"\0" * 1_000_000)
    for name in (*spoilt, "pickled.npz", "newer.npz", "absent", "g.npz"):
        with pytest.raises(UsageError) as caught:
            gallery.load(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)
    assert "would take 11," in str(caught.value)


def test_a_row_a_bag_and_a_column_a_loss_with_the_sets_above(tmp_path: Path) -> None:
    results = make_results(tmp_path, {"exact": 0.001, "noisy-or": 0.002}, ONE, 1, 2)
    figure = gallery_figure(galleries(Study(results), "extended-digits"))
    assert figure is not None
    assert len(figure.axes) == MOST_BAGS * 3
    first = gallery.load(galleries_of(results)[0])
    true = ", ".join(sorted(map(str, first.true(0))))
    assert [axes.get_title() for axes in figure.axes[:2]] == [f"{{{true}}}", f"✓ {{{true}}}"]
    assert {text.get_text() for text in figure.axes[1].texts} - {"exact"} == set(map(str, first.true(0)))


def test_galleries_that_are_lost_or_absent_leave_their_column_out(tmp_path: Path) -> None:
    results = make_results(tmp_path, {"exact": 0.001, "noisy-or": 0.002}, ONE, 1, 2)
    galleries_of(results)[0].write_bytes(b"lost")
    assert list(galleries(Study(results), "extended-digits")) == ["noisy-or"]
    galleries_of(results)[1].unlink()
    assert gallery_figure(galleries(Study(results), "extended-digits")) is None
