"""What is misread, from maps drawn by hand to the figures of a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench import load_loss, load_task
from milbench.api import gallery
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.gallery import Misread
from milbench.api.results import Results
from milbench.api.task import ScoreFunction, Scores
from milbench.errors import UsageError
from milbench.evaluation.reading.component_decoder import ComponentDecoder
from milbench.evaluation.reading.examples import collect_misread
from milbench.evaluation.saliency import gallery_saliency, sensitivity_maps
from milbench.networks.convolutional import AllConvolutional, Layer
from milbench.report.render import render
from tests._helpers.maps import draw
from tests._helpers.report_data import make_results

DECODER = ComponentDecoder(reach=(3.0,) * 10)
"""Three positions are one digit."""
EMPTY = "........ " * 3
PICTURES = {  # pattern -> what the positions show, and the truth
    "right": ("11..33.. 11..33.. ........", [1, 3]),
    "no_detection": (EMPTY, [4]),
    "orientation": ("33..11.. 33..11.. ........", [1, 3]),
    "clustering": ("11..11.. 11..11.. ........", [1]),
    "edge_or_one": ("11..77.. 11..77.. ........", [7]),
    "substitution": ("22..55.. 22..55.. ........", [2, 6]),
    "other": ("22...... 22...... ........", [2, 5, 8]),
}


def bags_and_maps(names: list[str]) -> tuple[Bags, Tensor]:
    """Bags of plain colour, the n-th of 256 * pixel = 10 n, and the maps that a network shows for them."""
    truth = [PICTURES[name][1] for name in names]
    classes = torch.tensor([[*row, *[-1] * (3 - len(row))] for row in truth])
    shades = torch.arange(len(names)).float() * 10 / 256
    instances = shades.view(-1, 1, 1, 1).expand(-1, 3, 6, 16).clone()
    left = 5.0 * torch.arange(3).expand(classes.shape)
    boxes = torch.stack([left, 0 * left, left + 4, 0 * left + 6], dim=-1)
    maps = draw(*(PICTURES[name][0] for name in names), sure=0.999)
    return Bags(instances, label_matrix(classes, 10), truth=Truth(classes, boxes)), maps


def score_by(*batches: tuple[Bags, Tensor]) -> ScoreFunction:
    answers = {id(bags): probs for bags, probs in batches}
    return lambda bags: Scores(torch.empty(0), torch.empty(0), answers[id(bags)])


def test_every_pattern_is_counted_and_shown_with_its_image_and_map() -> None:
    first = bags_and_maps(["right", "other", "edge_or_one", "no_detection", "clustering"])
    second = bags_and_maps(["substitution", "right", "orientation", "no_detection"])
    found = collect_misread(score_by(first, second), [first[0], second[0]], DECODER)
    assert found.bags == 9
    expected = {"no_detection": 2, "orientation": 1, "clustering": 1, "edge_or_one": 1, "substitution": 1, "other": 1}
    assert found.counts == expected
    assert list(found.counts) == list(expected), "in the order of the patterns"
    cases = {(p, t, r) for p, t, r in zip(found.patterns, found.truth, found.read, strict=True)}
    assert cases == {
        ("no_detection", "4", ""), ("orientation", "13", "31"), ("clustering", "1", "11"), ("edge_or_one", "7", "17"),
        ("substitution", "26", "25"), ("other", "258", "2"),
    }  # fmt: skip
    (substitution,), (one,) = found.of("substitution"), found.of("edge_or_one")
    assert found.images.dtype == np.uint8
    assert np.all(found.images[one] == 20), "the third bag of the first batch"
    assert np.all(found.images[substitution] == 0), "the first of the second"
    assert found.winners[one, 0].tolist() == [1, 1, 10, 10, 7, 7, 10, 10]
    assert found.strengths[one, 0, 0] == pytest.approx(0.999, abs=1e-3)


def test_the_first_few_examples_are_kept_and_all_are_counted() -> None:
    batches = [bags_and_maps(["no_detection", "right", "no_detection"]) for _ in range(4)]
    found = collect_misread(score_by(*batches), [bags for bags, _ in batches], DECODER, examples=3)
    assert (found.bags, found.counts, len(found)) == (12, {"no_detection": 8}, 3)
    assert found.images[:, 0, 0, 0].tolist() == [0, 20, 0]
    right = bags_and_maps(["right"])
    assert len(collect_misread(score_by(right), [right[0]], DECODER)) == 0


def test_bags_without_truth_cannot_be_misread() -> None:
    bags, maps = bags_and_maps(["right"])
    with pytest.raises(ValueError, match="truth"):
        collect_misread(lambda _: Scores(maps, maps, maps), [replace(bags, truth=None)], DECODER)


def test_house_numbers_are_read_by_the_learnt_reader_on_test_crops(street_data: Path) -> None:
    task = load_task("house-numbers", validation=20)
    task.prepare(street_data, torch.device("cpu"))

    def blind(bags: Bags) -> Scores:
        probs = torch.full((len(bags), 11, 28, 28), 1e-4)
        probs[:, 10] = 1
        return Scores(probs.amax(dim=(2, 3)), probs[:, :-1].amax(dim=(2, 3)), probs)

    found = task.misread(blind, task.evaluate(blind).decoder)
    assert found is not None
    assert (found.bags, found.counts, len(found)) == (20, {"no_detection": 20}, 8)
    assert set(found.read) == {""}
    truth = task.gallery().truth
    assert truth is not None
    classes = [[c for c in row if c >= 0] for row in truth.classes.tolist()]
    assert found.truth == tuple("".join(map(str, row)) for row in classes)
    assert torch.equal(torch.from_numpy(found.images).float() / 256, task.gallery().instances)
    assert load_task("extended-digits").misread(blind, None) is None


def some_misread(count: int = 9) -> Misread:
    """Examples that fit `image_arrays` of test_gallery: one channel of 24x24 pixels, 9x9 positions."""
    rng = np.random.default_rng(0)
    return Misread(
        bags=500, counts={"no_detection": 37, "edge_or_one": 12, "other": 1},
        patterns=("no_detection",) * 8 + ("edge_or_one",) * (count - 8), truth=("11",) * count,
        read=("",) * 8 + ("1234567",) * (count - 8), images=rng.integers(0, 256, (count, 1, 24, 24), dtype=np.uint8),
        winners=np.full((count, 9, 9), 10, np.uint8), strengths=np.ones((count, 9, 9), np.float16),
    )  # fmt: skip


def with_misread(folder: Path) -> Results:
    """Results of two losses, only the second's gallery having examples of what it misreads, and sensitivities."""
    losses, tasks = {"exact": 0.1, "noisy-or": 0.2}, {"house-numbers": "instance_error"}
    results = make_results(folder, losses, tasks, 2, 7)
    path = list(results.galleries.values())[2]
    maps = np.full((1, 24, 24), 255, np.uint8)
    more: dict[str, Any] = {"sensitivity": maps, "sensitivity_of": np.array([[0, 3]]), "misread": some_misread()}
    gallery.write(path, replace(gallery.load(path), **more))
    return results


def test_it_is_stored_with_a_gallery_and_files_without_it_are_read(tmp_path: Path) -> None:
    results = with_misread(tmp_path)
    old, new = (gallery.load(path) for path in list(results.galleries.values())[1:3])
    assert old.misread is None
    assert old.sensitivities(0) == {}
    assert new.misread is not None
    before = some_misread()
    for name in ("bags", "counts", "patterns", "truth", "read"):
        assert getattr(new.misread, name) == getattr(before, name)
    for name in ("images", "winners", "strengths"):
        assert np.array_equal(getattr(new.misread, name), getattr(before, name))
        assert getattr(new.misread, name).dtype == getattr(before, name).dtype
    assert list(new.sensitivities(0)) == [3]
    assert np.all(new.sensitivities(0)[3] == 1)
    assert new.sensitivities(1) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [("counts", {"no_detection": 501, "edge_or_one": 1}), ("patterns", ("colour",) * 9), ("truth", ("1",)),
     ("read", ()), ("images", np.zeros((8, 1, 24, 24), np.uint8)), ("strengths", np.zeros((9, 9, 8), np.float16))],
)  # fmt: skip
def test_examples_that_do_not_fit_together_are_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        replace(some_misread(), **{name: value})


def test_examples_of_other_sizes_and_half_of_them_are_refused(tmp_path: Path) -> None:
    path = next(iter(with_misread(tmp_path).galleries.values()))
    small = replace(some_misread(), winners=np.zeros((9, 4, 4), np.uint8), strengths=np.ones((9, 4, 4), np.float16))
    with pytest.raises(ValueError, match="misread"):
        replace(gallery.load(path), misread=small)
    with pytest.raises(ValueError, match="sensitivity"):
        replace(gallery.load(path), sensitivity=np.zeros((1, 24, 24), np.uint8))
    with np.load(path) as stored:
        arrays = dict(stored) | some_misread().arrays()
    del arrays["misread_truth"]
    np.savez(path, **arrays)
    with pytest.raises(UsageError, match="cannot be read"):
        gallery.load(path)


def test_a_report_shows_it_and_leaves_it_out_on_request(tmp_path: Path) -> None:
    results, out = with_misread(tmp_path), tmp_path / "out"
    render(results, out)
    names = {path.name for path in (out / "figures").iterdir()}
    assert {"errors-1-house-numbers.png", "errors-1-house-numbers.svg", "sensitivity-house-numbers.png"} <= names
    assert not any(name.startswith("errors-2") for name in names), "the other loss has no examples"
    figure = (out / "figures/errors-1-house-numbers.svg").read_text("utf-8")
    for words in ("37 of 500", "12 of 500", "no digit read", "edges or ones", "11 → ∅", "11 → 12345…"):
        assert f">{words}<" in figure, words
    assert "1 of 500" not in figure.replace("2 of 500", ""), "a pattern of which no example is kept has no row"
    for name in ("index.html", "report.md"):
        text = (out / name).read_text("utf-8")
        assert "How numbers are misread: noisy-or" in text
        assert "50 of 500 misread, by the network of noisy-or, seed 0, after the last epoch (7)" in text
        assert "Which pixels the detections rest on" in text
    render(results, out, gallery="none")
    assert not [path for path in (out / "figures").iterdir() if path.name.startswith(("errors", "sens", "gallery"))]
    for name in ("index.html", "report.md"):
        assert "misread" not in (out / name).read_text("utf-8")


def test_all_losses_but_the_first_are_folded_away(tmp_path: Path) -> None:
    results = with_misread(tmp_path)
    paths = list(results.galleries.values())
    paths[0].write_bytes(paths[2].read_bytes())
    render(results, tmp_path / "out")
    page = (tmp_path / "out/index.html").read_text("utf-8")
    first, second = (page.index(f"<b>How numbers are misread: {loss}") for loss in ("exact", "noisy-or"))
    folded = page.index("<details><summary>How numbers are misread: noisy-or")
    assert first < folded < second


def test_sensitivity_of_a_gallery_by_a_network_of_one_weight() -> None:
    """Logit of class 0: 4 * pixel, so d log p / d pixel = 4 (1 - p) at the position's own pixel and 0 elsewhere."""
    network = AllConvolutional((Layer(3, 1),), 1, seed=0)
    weight, bias = network.head.weight, network.head.bias
    assert bias is not None
    with torch.no_grad():
        weight.zero_()
        bias.copy_(torch.tensor([-2.0, -50.0, 0.0]))
        weight[0] = 4
    images = torch.zeros(2, 1, 2, 3)
    images[0, 0, 0, 0], images[0, 0, 1, 2] = 1.0, 0.75
    loss = load_loss("exact")
    maps = sensitivity_maps(network, loss, images[0], {0: torch.ones(2, 3, dtype=torch.bool)})
    slope = torch.sigmoid(-(4 * images[0, 0].double() - 2))  # 1 - p
    np.testing.assert_allclose(maps[0], (slope / slope.max()).numpy(), rtol=1e-6)
    with torch.no_grad():
        probs = loss.instance_probs(network(images))
    made = gallery.make(kind="image", instances=images, labels=np.zeros((2, 2)), presence=np.zeros((2, 2)),
                        probs=probs.numpy(), class_names=["a", "b"])  # fmt: skip
    stored, pairs = gallery_saliency(network, loss, made, images)
    assert pairs.tolist() == [[0, 0]], "nothing is detected in the second bag"
    shares = 255 * slope / float(torch.sigmoid(torch.tensor(-1.0)))
    expected = np.zeros((2, 3))
    expected[0, 0], expected[1, 2] = shares[0, 0], shares[1, 2]
    assert np.abs(stored[0] - expected).max() <= 0.5 + 1e-6
    blank = replace(made, threshold=-1.0)
    stored, pairs = gallery_saliency(network, loss, blank, images)
    assert pairs.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]], "a detected class that wins nowhere has a map as well"
    assert stored.shape == (4, 2, 3)
