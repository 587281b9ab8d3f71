"""Superset against the enumeration of label maps, and what it cannot learn."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

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


def test_the_gradient_is_the_softmax_minus_its_share_inside_the_candidates() -> None:
    logits = bag(0).repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(per_bag("superset", divide_by="none")(logits, ALL_LABELS).sum(), logits)
    p = bag(0).softmax(dim=0)
    for got, labels in zip(gradient, ALL_LABELS.tolist(), strict=True):
        inside = torch.tensor([*labels, True]).unsqueeze(1) * p
        assert_close(got, p - inside / inside.sum(dim=0))


def test_masked_positions() -> None:
    logits, mask = torch.stack([bag(0), bag(1)]), torch.tensor([[True] * 4, [True, False, True, False]])
    labels = torch.tensor([[True, False, False], [False, True, False]])
    maps = LabelMaps(bag(0)), LabelMaps(bag(1)[:, ::2])
    alone = [enumerated(found, held) for found, held in zip(maps, labels.tolist(), strict=True)]
    value = per_bag("superset", divide_by="none")(logits, labels, mask)
    assert value.tolist() == pytest.approx(alone, rel=1e-12)


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


def test_scores_presence_and_map_are_those_of_exact() -> None:
    logits, superset, exact = torch.stack([bag(0), bag(1)]), per_bag("superset"), per_bag("exact")
    assert torch.equal(superset.class_scores(logits), exact.class_scores(logits))
    assert torch.equal(superset.presence_scores(logits), exact.presence_scores(logits))
    assert_close(superset.instance_probs(logits), logits.softmax(dim=1))
