"""Superset against the enumeration of label maps, and what it cannot learn."""

from __future__ import annotations

import pytest
import torch

from tests._helpers.label_maps import ALL_LABELS, EXTREME, C, K, LabelMaps, bag, exactly
from tests._helpers.losses import per_bag


def enumerated(maps: LabelMaps, labels: list[bool]) -> float:
    """Return -log of the probability of all label maps that show nothing beside the label set and background."""
    wanted = {c for c, held in enumerate(labels) if held}
    return -float(exactly.log(sum(prob for shown, prob in maps.set_prob.items() if shown <= wanted)))


@pytest.mark.parametrize("seed", range(3))
def test_value_is_that_of_all_maps_without_another_class(seed: int) -> None:
    maps = LabelMaps(bag(seed))
    value = per_bag("superset", divide_by="none")(bag(seed).repeat(len(ALL_LABELS), 1, 1), ALL_LABELS)
    for got, labels in zip(value.tolist(), ALL_LABELS.tolist(), strict=True):
        assert got == pytest.approx(enumerated(maps, labels), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", ["wide", "signs", "all low", "sure background"])
def test_extreme_logits_in_float32(name: str) -> None:
    logits = EXTREME[name].float()
    maps = LabelMaps(logits)
    value = per_bag("superset", divide_by="none")(logits.repeat(len(ALL_LABELS), 1, 1), ALL_LABELS)
    for got, labels in zip(value.tolist(), ALL_LABELS.tolist(), strict=True):
        assert got == pytest.approx(enumerated(maps, labels), rel=1e-5, abs=1e-30)


def test_background_everywhere_is_an_optimum_for_every_label_set_and_has_no_gradient() -> None:
    """This is the half of the exact likelihood that superset lacks: there the same bag is as bad as can be."""
    logits = torch.full((len(ALL_LABELS), C + 1, K), -200.0)
    logits[:, C] = 200.0
    logits.requires_grad_()
    value = per_bag("superset")(logits, ALL_LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.tolist() == [0.0] * len(ALL_LABELS)
    assert not gradient.any()
    exact = per_bag("exact", divide_by="none")(logits, ALL_LABELS)
    assert exact.tolist() == pytest.approx((400.0 * ALL_LABELS.sum(dim=1)).tolist(), rel=0.02)
