"""Images that leave doubt are looked at again, and the look with the most probable label set counts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.task import Scores
from milbench.evaluation.reading.component_decoder import Reader, spell
from milbench.evaluation.reading.components import Blobs, find_blobs
from milbench.evaluation.reading.decoders import shown_given_best
from milbench.evaluation.reading.metrics import ReadingMetrics
from milbench.evaluation.reading.rescoring import rescore
from milbench.likelihood import label_set_distribution
from tests._helpers.maps import draw

BLANK = "........ " * 3
SURE, DOUBTFUL = "1.1..... 111..... ........", "11..3... 11..3... ........"
READER = Reader(reach=(8.0,) * 10)
SIDE = 16
"""Images of 16 pixels are looked at again with 14 and with 20."""


class Looks:
    """What is seen of image n, known by its brightness, at each size; remembers how many were looked at."""

    def __init__(self, seen: dict[int, dict[int, Tensor]]) -> None:
        self.seen = seen
        self.asked: list[tuple[int, list[int]]] = []

    def __call__(self, images: Tensor) -> Tensor:
        which = (images[:, 0, 0, 0] * 10).round().int().tolist()
        self.asked.append((images.shape[-1], which))
        return torch.cat([self.seen[n][images.shape[-1]] for n in which])


def images(count: int) -> Tensor:
    return torch.stack([torch.full((1, SIDE, SIDE), n / 10) for n in range(count)])


def again(some: Tensor, probs: Tensor, look: Looks) -> Blobs:
    shown = shown_given_best(probs)
    return rescore(some, probs, shown, find_blobs(shown.probs, shown.classes), look)


def probability_of_the_best_set(probs: Tensor) -> float:
    return float(label_set_distribution(probs.log()).max().exp())


def test_only_what_is_doubtful_is_looked_at_again_and_the_likeliest_look_counts() -> None:
    seen = {
        0: {16: draw(SURE, sure=0.9999), 14: draw(BLANK), 20: draw(BLANK)},
        1: {
            16: draw(DOUBTFUL, sure=0.97),
            14: draw("2...3... 22..3... ........", sure=0.99),
            20: draw(DOUBTFUL, sure=0.98),
        },
        # Nothing is seen for certain, which counts less than anything that is seen.
        2: {
            16: draw(DOUBTFUL, sure=0.97),
            14: draw(BLANK, sure=0.99999),
            20: draw("4..4.... 4..4.... ........", sure=0.96),
        },
        3: {
            16: draw(BLANK, sure=0.97),
            14: draw("5....... 5....... ........", sure=0.97),
            20: draw(BLANK, sure=0.9999),
        },
    }
    assert probability_of_the_best_set(seen[0][16]) > 0.95 > probability_of_the_best_set(seen[1][16])
    look = Looks(seen)
    first = torch.cat([seen[n][16] for n in seen])
    found = again(images(4), first, look)
    assert look.asked == [(14, [1, 2, 3]), (20, [1, 2, 3])]
    likeliest = {n: max(sizes.values(), key=probability_of_the_best_set) for n, sizes in seen.items()}
    assert likeliest[1] is seen[1][14]
    assert likeliest[2] is seen[2][14]
    assert spell(found, 4, READER) == ["1", "23", "13", "5"]
    assert found.image.tolist() == sorted(found.image.tolist())


def test_the_decoder_is_a_metric_of_its_own() -> None:
    sure, doubtful = draw(SURE, sure=0.9999), draw(DOUBTFUL, sure=0.97)
    look = Looks({0: {14: sure, 20: sure}, 1: {14: draw("2...3... 22..3... ........", sure=0.999), 20: doubtful}})
    classes = torch.tensor([[1, -1], [2, 3]])
    bags = Bags(images(2), label_matrix(classes, 10), truth=Truth(classes))
    empty = torch.empty(0)

    def score(some: Bags) -> Scores:
        assert some.truth is None
        return Scores(empty, empty, look(some.instances))

    centres = torch.arange(3.0), torch.arange(8.0)
    for scored, names in ((score, True), (None, False)):
        read = ReadingMetrics(lambda height, width: centres, scored)
        read("validation", Scores(empty, empty, torch.cat([sure, doubtful])), bags)
        values = read.evaluation().metrics
        assert values["validation/transcription_error_components"] == 1 / 2
        assert ("validation/transcription_error_rescored" in values) is names
        asked = len(look.asked)
        read("calibration", Scores(empty, empty, torch.cat([sure, doubtful])), bags)
        assert len(look.asked) == asked, "nothing is learnt from second looks"
        if names:
            assert values["validation/transcription_error_rescored"] == 0


@pytest.mark.parametrize("sharpness", [0.5, 2.0])
def test_no_other_look_has_a_more_probable_set(sharpness: float) -> None:
    """Against the whole distribution over label sets of every look."""
    rng = torch.Generator().manual_seed(7)
    maps: dict[int, dict[int, Tensor]] = {}
    for n in range(6):
        maps[n] = {}
        for side in (16, 14, 20):
            logits = sharpness * torch.randn(1, 11, 3, 4, generator=rng, dtype=torch.float64)
            logits[:, -1] += 6
            maps[n][side] = logits.softmax(dim=1)
    first = torch.cat([maps[n][16] for n in range(6)])
    found = again(images(6), first, Looks(maps))
    for n in range(6):
        sets = {}
        for side, probs in maps[n].items():
            table = label_set_distribution(probs.log())[0]
            best = int(table.argmax())
            sets[side] = (best > 0, float(table[best]), {c for c in range(10) if best >> c & 1})
        expected = sets[16] if sets[16][1] >= math.log(0.95) else max(sets.values(), key=lambda one: one[:2])
        assert set(found.cls[found.image == n].tolist()) == expected[2]
