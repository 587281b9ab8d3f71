"""Properties of the exact likelihood and the posterior that hold for every bag."""

import pytest
import torch
from hypothesis import given
from torch import Tensor

from milbench.likelihood import bag_log_prob, instance_posterior
from tests._helpers.label_maps import LabelMaps
from tests._helpers.likelihood_reference import PATHS, RandomBag, every_label_set, random_bags


def close(a: Tensor, b: Tensor) -> bool:
    """Return whether logarithms agree to 1e-12 of their size, infinities included."""
    return bool(((a == b) | ((a - b).abs() <= 1e-12 * b.abs().clamp(min=1.0))).all())


@given(random_bags(max_positions=5))
def test_every_path_agrees_with_enumeration(bag: RandomBag) -> None:
    required, maps = (
        frozenset(torch.nonzero(bag.labels[0])[:, 0].tolist()),
        LabelMaps(bag.log_probs[0]),
    )
    total, (channels, positions) = float(maps.set_prob.get(required, 0)), bag.log_probs[0].shape
    joint = [
        [float(maps.emits.get((required, c, k), 0)) for k in range(positions)]
        for c in range(channels)
    ]
    for path, solve in PATHS.items():
        value, posterior = solve(*bag)
        if total == 0.0:
            assert value.item() < -700, path
            assert torch.isfinite(posterior).all(), path
        else:
            assert value.exp().item() == pytest.approx(total, rel=1e-11), path
            if total > 1e-290:
                assert (
                    posterior[0] - torch.tensor(joint, dtype=torch.float64) / total
                ).abs().max() < 1e-11, path


def test_one_batch_of_all_sizes_and_dimensions() -> None:
    for shape in ((), (7,), (3, 4), (2, 3, 2)):
        log_probs = torch.randn(16, 5, *shape, dtype=torch.float64).log_softmax(1)
        flat = log_probs.reshape(16, 5, -1)
        together = bag_log_prob(log_probs, every_label_set(4))
        one_by_one = [
            bag_log_prob(flat[i : i + 1], every_label_set(4)[i : i + 1]) for i in range(16)
        ]
        assert close(together, torch.cat(one_by_one))
        posterior = instance_posterior(log_probs, every_label_set(4))
        assert posterior.shape == log_probs.shape
        for solve in PATHS.values():
            value, found = solve(flat, every_label_set(4))
            assert close(value, together)
            torch.testing.assert_close(found, posterior.view_as(found), rtol=0, atol=1e-13)


def test_an_empty_batch_and_an_empty_bag() -> None:
    assert bag_log_prob(torch.zeros(0, 3, 4), torch.zeros(0, 2)).shape == (0,)
    assert instance_posterior(torch.zeros(0, 3, 4), torch.zeros(0, 2)).shape == (0, 3, 4)
    value = bag_log_prob(torch.zeros(2, 3, 0), torch.tensor([[0, 0], [1, 0]]))
    assert value.tolist() == [0.0, -torch.inf]


@pytest.mark.parametrize("path", PATHS)
def test_impossible_classes_give_no_nan(path: str) -> None:
    log_probs = torch.randn(4, 4, 6, dtype=torch.float64)
    log_probs[0, 0] = -torch.inf  # a required class nowhere
    log_probs[1, :-1] = -torch.inf  # only background
    log_probs[2, -1] = -torch.inf  # no background
    log_probs[3, :2, 1:] = -torch.inf  # two required classes at one position only
    log_probs = log_probs.log_softmax(1)
    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]]).bool()
    value, posterior = PATHS[path](log_probs, labels)
    assert torch.isinf(value).tolist() == [True, True, False, True]
    assert torch.isfinite(posterior).all()
    assert not posterior[[0, 1, 3]].any()
    leaf = log_probs.requires_grad_()
    (gradient,) = torch.autograd.grad(bag_log_prob(leaf, labels).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad((gradient**2).sum(), leaf)
    assert torch.isfinite(second).all()
