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
    # The difference of two infinities is NaN.
    is_equal = a == b
    is_near = (a - b).abs() <= 1e-12 * b.abs().clamp(min=1.0)
    return bool((is_equal | is_near).all())


@given(random_bags(max_positions=5))
def test_every_path_agrees_with_enumeration(bag: RandomBag) -> None:
    label_set = frozenset(bag.labels[0].nonzero().flatten().tolist())
    maps = LabelMaps(bag.log_probs[0])
    total = float(maps.set_prob.get(label_set, 0))
    joint = torch.zeros_like(bag.log_probs[0])
    for (of_set, channel, position), prob in maps.emits.items():
        if of_set == label_set:
            joint[channel, position] = float(prob)

    for path, solve in PATHS.items():
        value, posterior = solve(*bag)
        if total == 0.0:
            assert value.item() < -700, path
            assert torch.isfinite(posterior).all(), path
            continue
        assert value.exp().item() == pytest.approx(total, rel=1e-11), path
        # The quotient of smaller floats has too few digits to compare with.
        if total > 1e-290:
            assert (posterior[0] - joint / total).abs().max() < 1e-11, path


SHAPES = [(), (7,), (3, 4), (2, 3, 2)]
ALL_SETS = every_label_set(4)


def one_bag_for_each_set(shape: tuple[int, ...]) -> Tensor:
    """Return log-probabilities (16, 5, *shape) of random bags, one for each set of four classes."""
    return torch.randn(16, 5, *shape, dtype=torch.float64).log_softmax(1)


@pytest.mark.parametrize("shape", SHAPES)
def test_bags_of_a_batch_have_the_value_they_have_alone(shape: tuple[int, ...]) -> None:
    log_probs = one_bag_for_each_set(shape)
    flat = log_probs.reshape(16, 5, -1)
    alone = [bag_log_prob(flat[i : i + 1], ALL_SETS[i : i + 1]) for i in range(16)]
    assert close(bag_log_prob(log_probs, ALL_SETS), torch.cat(alone))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_posterior_has_the_shape_of_the_bags(shape: tuple[int, ...]) -> None:
    log_probs = one_bag_for_each_set(shape)
    assert instance_posterior(log_probs, ALL_SETS).shape == log_probs.shape


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("path", PATHS)
def test_every_path_agrees_on_bags_of_any_shape(path: str, shape: tuple[int, ...]) -> None:
    log_probs = one_bag_for_each_set(shape)
    value, posterior = PATHS[path](log_probs.reshape(16, 5, -1), ALL_SETS)
    assert close(value, bag_log_prob(log_probs, ALL_SETS))
    expected = instance_posterior(log_probs, ALL_SETS).view_as(posterior)
    torch.testing.assert_close(posterior, expected, rtol=0, atol=1e-13)


def test_an_empty_batch_has_no_values() -> None:
    assert bag_log_prob(torch.zeros(0, 3, 4), torch.zeros(0, 2)).shape == (0,)
    assert instance_posterior(torch.zeros(0, 3, 4), torch.zeros(0, 2)).shape == (0, 3, 4)


def test_an_empty_bag_has_the_empty_label_set() -> None:
    nothing_or_one_class = torch.tensor([[0, 0], [1, 0]])
    value = bag_log_prob(torch.zeros(2, 3, 0), nothing_or_one_class)
    assert value.tolist() == [0.0, -torch.inf]


def with_impossible_classes() -> tuple[Tensor, Tensor]:
    """Return log-probabilities (4, 4, 6) and label sets, of which only that of bag 2 is possible.

    In the other bags, the probabilities that their label sets need are 0.
    """
    log_probs = torch.randn(4, 4, 6, dtype=torch.float64)
    required_class_nowhere = log_probs[0, 0]
    only_background = log_probs[1, :-1]
    no_background = log_probs[2, -1]
    two_required_classes_at_one_position_only = log_probs[3, :2, 1:]
    for values in (
        required_class_nowhere,
        only_background,
        no_background,
        two_required_classes_at_one_position_only,
    ):
        values.fill_(-torch.inf)
    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]]).bool()
    return log_probs.log_softmax(1), labels


@pytest.mark.parametrize("path", PATHS)
def test_impossible_label_sets_have_no_posterior_and_no_nan(path: str) -> None:
    log_probs, labels = with_impossible_classes()
    value, posterior = PATHS[path](log_probs, labels)
    assert torch.isinf(value).tolist() == [True, True, False, True]
    assert torch.isfinite(posterior).all()
    assert not posterior[[0, 1, 3]].any()


def test_second_derivatives_of_impossible_label_sets_are_no_nan() -> None:
    log_probs, labels = with_impossible_classes()
    leaf = log_probs.requires_grad_()
    (gradient,) = torch.autograd.grad(bag_log_prob(leaf, labels).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad((gradient**2).sum(), leaf)
    assert torch.isfinite(second).all()
