"""The contract tests for every built-in loss in several settings, and for a loss from a file."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import Loss
from milbench.contracts.registry import losses
from milbench.losses import OneVsRest
from milbench.testing import LossContract, Variant
from milbench.testing.loss_contract import (
    MASK,
    SIZES,
    WEIGHTS,
    B,
    C,
    K,
    labels_that_fit,
    some_logits,
    target_for,
    value_and_gradient,
)
from tests._helpers.command_line import LOSS
from tests._helpers.losses import BUILT_IN


def even_target(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor | None:
    """Return a target by which the classes of a label set are at equally many positions.

    A loss that takes no counts and no classes of positions gets the usual target.
    """
    positions_of_class = K // C
    if loss.takes_target and loss.supervision == "count":
        return positions_of_class * labels.long()
    if loss.takes_target and loss.supervision == "position":
        return torch.where(labels, torch.arange(C), C).repeat(1, positions_of_class)
    return target_for(loss, logits, labels)


class TestBuiltIn(LossContract):
    variants = BUILT_IN

    @pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])
    def test_first_and_second_derivatives(
        self, loss: Loss, labels: Tensor, mask: Tensor | None
    ) -> None:
        """Skip exact-em, whose derivatives are not those of its value.

        It takes its targets as constants, though they change with the logits.
        """
        if loss.name == "exact-em":
            pytest.skip("test_exact_em.py tests its derivatives")
        super().test_first_and_second_derivatives(loss, labels, mask)

    @pytest.mark.parametrize("background", [-200.0, 0.0, 200.0])
    def test_a_class_missed_everywhere_is_still_learnt(
        self, loss: Loss, labels: Tensor, background: float
    ) -> None:
        """A larger logit must lower the loss even where the probability in float32 is 0."""
        if loss.name == "superset":
            pytest.skip("its gradient is 0 there, as test_exact.py asserts")
        is_softmax_of_positions = loss.name == "ctc" or (
            getattr(loss, "normalization", "") == "position"
        )
        if background == -200 and is_softmax_of_positions:
            pytest.skip("all channels are equal, and the target is as likely with less of a class")
        logits = torch.full((B, C + 1, K), -200.0)
        logits[:, C] = background
        logits.requires_grad_()
        target = even_target(loss, logits, labels)
        (gradient,) = torch.autograd.grad(loss(logits, labels, None, target).sum(), logits)
        # A class of the label set must have a negative gradient that is not vanishing.
        assert (gradient[:, :C].sum(dim=2)[labels] < -1e-3).all()

    def test_presence_differs_however_sure_the_network_is(
        self, loss: Loss, variant: Variant
    ) -> None:
        """Presence must not be rounded to 1, since no threshold could then tell two bags apart.

        In float32 a probability is 1 where the logits differ by 17 or more.
        """
        if loss.supervision != "set" or variant.one_class:
            pytest.skip("its presence is a probability or an expected number of positions")
        logits = torch.zeros(2, C + 1, 1)
        logits[:, 0, 0] = torch.tensor([18.0, 60.0])
        less, more = loss.score(logits).presence[:, 0].tolist()
        assert less < more

    def test_logits_of_zero_are_not_taken_for_padding(
        self, loss: Loss, labels: Tensor, variant: Variant
    ) -> None:
        """Masked logits are set to zero; other logits of zero must not be confused with them."""
        if loss.name == "hard-em":
            pytest.skip("assignments that tie have different gradients, and each of them is right")
        if variant.depends_on_batch:
            pytest.skip("its bags depend on one another")
        # About half of these logits are 0, all other logits are -1.
        logits = some_logits(K).sign().clamp(max=0)
        labels = labels_that_fit(labels)
        value, gradient = value_and_gradient(loss, logits, labels, MASK)
        for i, size in enumerate(SIZES):
            alone = logits[i : i + 1, :, :size].clone().requires_grad_()
            label_set = labels[i : i + 1]
            own = loss(alone, label_set, None, target_for(loss, alone, label_set))
            (own_gradient,) = torch.autograd.grad(own.sum() * WEIGHTS[i], alone)
            assert_close(own[0], value[i])
            assert_close(own_gradient[0], gradient[i, :, :size])

    def test_unchecked_classes_of_an_empty_bag_have_an_infinite_loss(
        self, loss: Loss, labels: Tensor
    ) -> None:
        if loss.supervision == "position":
            pytest.skip("its target is where the instances are, and there are none")
        if loss.name == "superset":
            pytest.skip("it does not require that any class occurs")
        loss.validate = False
        logits = some_logits(K)
        no_instances = torch.zeros(B, K, dtype=torch.bool)
        value = loss(logits, labels, no_instances, target_for(loss, logits, labels))
        assert (value[labels.any(dim=1)] == torch.inf).all()


class TestThirdParty(LossContract):
    variants = (Variant(str(LOSS)),)


class OfAbsentClasses(OneVsRest):
    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        return super().bag_loss(logits, ~labels, mask)


class OfWrongSign(OneVsRest):
    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        return -super().bag_loss(logits, labels, mask)


class BlindToLabels(OneVsRest):
    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        return super().bag_loss(logits, torch.ones_like(labels), mask)


@pytest.mark.parametrize("wrong", [OfAbsentClasses, OfWrongSign, BlindToLabels])
def test_the_contract_finds_a_loss_that_learns_something_else(wrong: type[Loss]) -> None:
    with pytest.raises(AssertionError):
        LossContract().test_the_class_that_the_evidence_shows_costs_least(wrong(reduction="none"))


def test_every_built_in_loss_has_contract_tests() -> None:
    built_in = {name for name, entry in losses().entries.items() if entry.origin == "milbench"}
    assert {variant.loss for variant in BUILT_IN} == built_in
