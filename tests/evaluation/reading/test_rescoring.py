"""Images in doubt are rescored at other scales, and the scale with the most probable label set counts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.task import Scores
from milbench.evaluation.reading.component_decoder import ComponentDecoder, read_components
from milbench.evaluation.reading.components import Components, find_components
from milbench.evaluation.reading.decoders import posterior_given
from milbench.evaluation.reading.metrics import ReadingMetrics
from milbench.evaluation.reading.rescoring import rescore
from milbench.likelihood import best_label_set, label_set_distribution
from tests._helpers.maps import draw

BLANK = "........ " * 3
SURE, DOUBTFUL = "1.1..... 111..... ........", "11..3... 11..3... ........"
DECODER = ComponentDecoder(reach=(8.0,) * 10)
SIDE = 16
"""Images of 16 pixels are rescored with 14 and with 20."""


class KnownMaps:
    """A network with a known map for each image, known by its brightness, and each size; it records its calls."""

    def __init__(self, maps: dict[int, dict[int, Tensor]]) -> None:
        self.maps = maps
        self.calls: list[tuple[int, list[int]]] = []

    def __call__(self, images: Tensor) -> Tensor:
        which = (images[:, 0, 0, 0] * 10).round().int().tolist()
        self.calls.append((images.shape[-1], which))
        return torch.cat([self.maps[n][images.shape[-1]] for n in which])


def images(count: int) -> Tensor:
    return torch.stack([torch.full((1, SIDE, SIDE), n / 10) for n in range(count)])


def rescored_components(some: Tensor, probs: Tensor, network: KnownMaps) -> Components:
    """Rescore for a loss whose own label sets are the most probable ones."""

    def scored(images: Tensor) -> tuple[Tensor, Tensor]:
        found = network(images)
        return found, best_label_set(found.log())[0]

    given = posterior_given(probs, best_label_set(probs.log())[0])
    return rescore(some, probs, given, find_components(given.probs, given.classes), scored)


def probability_of_the_best_set(probs: Tensor) -> float:
    return float(label_set_distribution(probs.log()).max().exp())


def test_only_images_in_doubt_are_rescored_and_the_likeliest_scale_counts() -> None:
    maps = {
        0: {16: draw(SURE, sure=0.9999), 14: draw(BLANK), 20: draw(BLANK)},
        1: {
            16: draw(DOUBTFUL, sure=0.97),
            14: draw("2...3... 22..3... ........", sure=0.99),
            20: draw(DOUBTFUL, sure=0.98),
        },
        # Surely nothing is there, which counts less than any class that is found.
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
    assert probability_of_the_best_set(maps[0][16]) > 0.95 > probability_of_the_best_set(maps[1][16])
    network = KnownMaps(maps)
    first = torch.cat([maps[n][16] for n in maps])
    found = rescored_components(images(4), first, network)
    assert network.calls == [(14, [1, 2, 3]), (20, [1, 2, 3])]
    likeliest = {n: max(sizes.values(), key=probability_of_the_best_set) for n, sizes in maps.items()}
    assert likeliest[1] is maps[1][14]
    assert likeliest[2] is maps[2][14]
    assert read_components(found, 4, DECODER) == ["1", "23", "13", "5"]
    assert found.image.tolist() == sorted(found.image.tolist())


def test_the_decoder_is_a_metric_of_its_own() -> None:
    sure, doubtful = draw(SURE, sure=0.9999), draw(DOUBTFUL, sure=0.97)
    network = KnownMaps(
        {0: {14: sure, 20: sure}, 1: {14: draw("2...3... 22..3... ........", sure=0.999), 20: doubtful}}
    )
    classes = torch.tensor([[1, -1], [2, 3]])
    bags = Bags(images(2), label_matrix(classes, 10), truth=Truth(classes))

    def scores_of(probs: Tensor) -> Scores:
        highest = probs[:, :-1].flatten(2).amax(dim=2)
        return Scores(highest, highest, probs)

    def score(some: Bags) -> Scores:
        assert some.truth is None
        return scores_of(network(some.instances))

    centres = torch.arange(3.0), torch.arange(8.0)
    for scored, names in ((score, True), (None, False)):
        read = ReadingMetrics(lambda height, width: centres, scored)
        read("validation", scores_of(torch.cat([sure, doubtful])), bags, 0.5)
        values = read.evaluation().metrics
        assert values["validation/transcription_error_components"] == 1 / 2
        assert ("validation/transcription_error_rescored" in values) is names
        if names:
            assert values["validation/transcription_error_rescored"] == 0
            found = read.evaluation()
            assert found.metrics["validation/transcription_error"] == 0
            assert found.decoder is not None
            assert found.decoder["decoder"] == "rescored"
            calls = len(network.calls)
            read("calibration", scores_of(torch.cat([sure, doubtful])), bags, 0.5)
            assert len(network.calls) > calls, "the decoder is chosen on these"


def test_at_every_scale_the_label_set_is_that_of_the_loss() -> None:
    """The other scales are surer of their sets, but the loss finds nothing there."""
    doubtful, sure = draw(DOUBTFUL, sure=0.97), draw("2...3... 22..3... ........", sure=0.9999)
    own = torch.tensor([[c in (1, 3) for c in range(10)]])
    given = posterior_given(doubtful, own)
    found = find_components(given.probs, given.classes)
    for labels, read in ((torch.zeros(1, 10, dtype=torch.bool), "13"), (sure[:, :-1].flatten(2).amax(2) > 0.5, "23")):
        kept = rescore(images(1), doubtful, given, found, lambda _, sets=labels: (sure, sets))  # type: ignore[misc]
        assert read_components(kept, 1, DECODER) == [read]


@pytest.mark.parametrize("sharpness", [0.5, 2.0])
def test_no_other_scale_has_a_more_probable_set(sharpness: float) -> None:
    """Against the whole distribution over label sets of every network."""
    rng = torch.Generator().manual_seed(7)
    maps: dict[int, dict[int, Tensor]] = {}
    for n in range(6):
        maps[n] = {}
        for side in (16, 14, 20):
            logits = sharpness * torch.randn(1, 11, 3, 4, generator=rng, dtype=torch.float64)
            logits[:, -1] += 6
            maps[n][side] = logits.softmax(dim=1)
    first = torch.cat([maps[n][16] for n in range(6)])
    found = rescored_components(images(6), first, KnownMaps(maps))
    for n in range(6):
        sets = {}
        for side, probs in maps[n].items():
            table = label_set_distribution(probs.log())[0]
            best = int(table.argmax())
            sets[side] = (best > 0, float(table[best]), {c for c in range(10) if best >> c & 1})
        expected = sets[16] if sets[16][1] >= math.log(0.95) else max(sets.values(), key=lambda one: one[:2])
        assert set(found.cls[found.image == n].tolist()) == expected[2]
