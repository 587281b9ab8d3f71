"""Examples of misread bags, from maps drawn by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.gallery import Misread
from milbench.evaluation.reading.component_decoder import ComponentDecoder
from milbench.evaluation.reading.metrics import EXAMPLES, misread_examples
from milbench.evaluation.reading.reader import Reader, join_batches, read_batch
from tests._helpers.maps import draw

READER = Reader(learnt=ComponentDecoder(reach=(3.0,) * 10))
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


def misread(*batches: tuple[Bags, Tensor], reader: Reader = READER) -> Misread:
    read = []
    for bags, probs in batches:
        assert bags.truth is not None
        read.append(read_batch(probs, bags.truth, probs[:, :-1].flatten(2).amax(dim=2) >= 0.5))
    return misread_examples(join_batches(read), reader, [bags for bags, _ in batches])


def test_every_pattern_is_counted_and_shown_with_its_image_and_map() -> None:
    first = bags_and_maps(["right", "other", "edge_or_one", "no_detection", "clustering"])
    second = bags_and_maps(["substitution", "right", "orientation", "no_detection"])
    found = misread(first, second)
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
    assert found.class_maps[one, 0].tolist() == [1, 1, 10, 10, 7, 7, 10, 10]
    assert found.strengths[one, 0, 0] == pytest.approx(0.999, abs=1e-3)


def test_the_first_few_examples_are_kept_and_all_are_counted() -> None:
    batches = [bags_and_maps(["no_detection", "right", "no_detection"]) for _ in range(6)]
    found = misread(*batches)
    assert (found.bags, found.counts, len(found)) == (18, {"no_detection": 12}, EXAMPLES)
    assert found.images[:, 0, 0, 0].tolist() == [0, 20] * (EXAMPLES // 2)
    assert len(misread(bags_and_maps(["right"]))) == 0


def test_what_is_misread_is_what_the_chosen_decoder_misreads() -> None:
    """The strongest positions have no digit twice, and no reach by which one digit becomes two."""
    batch = bags_and_maps(["right", "clustering", "substitution"])
    found = {
        decoder: misread(batch, reader=READER.model_copy(update={"decoder": decoder}))
        for decoder in ("components", "strongest")
    }
    assert found["components"].counts == {"clustering": 1, "substitution": 1}
    assert found["strongest"].counts == {"substitution": 1}
