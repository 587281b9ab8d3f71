from __future__ import annotations

from pathlib import Path

import pytest
import torch

from milbench import Loss, UsageError, load_loss
from tests._helpers.command_line import PLUGINS
from tests._helpers.faulty_loss import SOURCE, names_the_method

LABELS = torch.tensor([[True, False, True], [False, True, False]])


def faulty(fault: str) -> Loss:
    return load_loss(str(SOURCE), reduction="none", fault=fault)


def some_logits() -> torch.Tensor:
    return torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("scalar", r"must return \(2,\) from bag_loss, got \(\)"),
        ("a value a class", r"must return \(2,\) from bag_loss, got \(2, 3\)"),
        ("number", r"must return a tensor \(2,\) from bag_loss, got float"),
        ("integers", "must return floating point from bag_loss, got int64"),
        ("detached", "must return values with a gradient from bag_loss, got values that are detached"),
    ],
)
def test_a_loss_that_is_not_one_value_a_bag_is_refused_with_its_place(fault: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=f"^loss faulty .* {complaint}") as error:
        faulty(fault)(some_logits(), LABELS)
    assert names_the_method(str(error.value), "bag_loss")


def test_values_without_a_gradient_are_fine_where_nothing_has_one() -> None:
    logits = some_logits()
    assert faulty("detached")(logits.detach(), LABELS).shape == (2,)
    with torch.no_grad():
        assert faulty("")(logits, LABELS).shape == (2,)


@pytest.mark.parametrize(
    ("fault", "public", "method", "complaint"),
    [
        ("scores with background", "class_scores", "scores", r"\(2, 3\) from scores, got \(2, 4\)"),
        ("one presence", "presence_scores", "presence", r"\(2, 3\) from presence, got \(2,\)"),
        ("posterior of a bag", "instance_probs", "posterior", r"\(2, 4, 5\) from posterior, got \(2, 4\)"),
    ],
)
def test_scores_of_the_wrong_shape_are_refused_with_their_place(
    fault: str, public: str, method: str, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as error:
        getattr(faulty(fault), public)(some_logits())
    assert names_the_method(str(error.value), method)


def test_scores_that_serve_as_presence_are_named_themselves() -> None:
    class Bare(Loss):
        name = "bare"

        def scores(self, logits: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
            return logits.sum(dim=2)

    with pytest.raises(UsageError, match=r"must return \(2, 3\) from scores, got \(2, 4\)") as error:
        Bare().presence_scores(some_logits())
    assert names_the_method(str(error.value), "scores", Path(__file__))


def test_the_checks_pass_under_compilation_and_function_transforms() -> None:
    loss, logits = load_loss(str(PLUGINS / "third_party_loss.py"), reduction="none"), some_logits()
    value = loss(logits, LABELS)
    torch.testing.assert_close(torch.compile(loss, backend="eager", fullgraph=True)(logits, LABELS), value)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    transformed = torch.func.grad(lambda z: loss(z, LABELS).sum())(logits.detach())
    torch.testing.assert_close(transformed, gradient)
