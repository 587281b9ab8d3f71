"""Superset against the enumeration of label maps, and what it cannot learn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests._helpers.label_maps import ALL_LABELS, EXTREME, C, K, LabelMaps, bag, exactly
from tests._helpers.losses import per_bag


def enumerated(maps: LabelMaps, labels: list[bool]) -> float:
    """Return -log of the probability of all label maps that show nothing beside the label set and background."""
    wanted = {c for c, held in enumerate(labels) if held}
    return -float(exactly.log(sum(prob for shown, prob in maps.set_prob.items() if shown <= wanted)))


SINGLE = [(EXTREME[name].float(), 1e-5, 1e-30) for name in ("wide", "signs", "all low", "sure background")]


@pytest.mark.parametrize(("logits", "rel", "tiny"), [(bag(0), 1e-12, 1e-15), (bag(1), 1e-12, 1e-15), *SINGLE])
def test_value_is_that_of_all_maps_without_another_class(logits: Tensor, rel: float, tiny: float) -> None:
    maps = LabelMaps(logits)
    value = per_bag("superset", divide_by="none")(logits.repeat(len(ALL_LABELS), 1, 1), ALL_LABELS)
    expected = [enumerated(maps, labels) for labels in ALL_LABELS.tolist()]
    assert value.tolist() == pytest.approx(expected, rel=rel, abs=tiny)


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
