"""What surrounds the arithmetic of a loss: checks, flattening of positions, and the reduction.

These functions call the methods that a subclass of `milbench.contracts.loss.Loss` writes. Shapes
and types are always checked. With `check_values` the values of tensors are checked too. Such a
check makes the host wait for a GPU, so training checks values in its first step only.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from milbench.contracts.autocast import tracing, without_autocast
from milbench.contracts.loss_checks import (
    LabelSets,
    Target,
    as_label_matrix,
    check_built,
    check_finite,
    check_label_values,
    check_logits,
    check_mask,
    check_set_sizes,
    check_target_values,
    checked_output,
    checked_target,
    fault,
)
from milbench.contracts.scores import Scores
from milbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from milbench.contracts.loss import Loss, Reduction


@without_autocast
def bag_losses(
    loss: "Loss",
    logits: Tensor,
    labels: LabelSets,
    mask: Tensor | None = None,
    target: Target | None = None,
    *,
    check_values: bool,
) -> Tensor:
    """Return (B,), the loss of every bag. Arguments and errors are those of `Loss.forward`.

    With `check_values` the values of tensors are checked as well as their shapes, except inside
    `torch.func` or compiled code, where tensors have no values to look at.
    """
    check_values = check_values and not tracing()
    flat, flat_mask = _flattened(loss, logits, mask)
    matrix = as_label_matrix(labels, flat)
    label_sets = matrix.bool()
    if check_values:
        check_label_values(matrix)
        check_finite(flat)
        check_set_sizes(label_sets, flat, flat_mask)
    if loss.takes_target:
        method = "target_loss"
        # The shape of `logits`, with the precision of `flat` and its zeros at masked positions.
        unflattened = flat.view(logits.shape)
        target_tensor = checked_target(loss, target, label_sets, logits.shape[2:], mask)
        if check_values:
            check_target_values(loss, target_tensor, label_sets)
            loss.check_target(unflattened, target_tensor, mask)
        output = loss.target_loss(unflattened, target_tensor, mask)
    else:
        method = "bag_loss"
        if check_values:
            loss.check_bags(flat, label_sets, flat_mask)
        output = loss.bag_loss(flat, label_sets, flat_mask)
    values = checked_output(loss, method, output, (len(logits),))
    # A loss that was cut from the graph of gradients, as by `detach` or `item`, would train
    # nothing, and no later step would raise an error.
    expects_gradient = logits.requires_grad and torch.is_grad_enabled()
    if expects_gradient and not values.requires_grad:
        raise fault(
            loss, method, "values with a gradient", "values that are detached from the logits"
        )
    return values


def reduced(loss: "Loss", values: Tensor, reduction: "Reduction") -> Tensor:
    """Return the mean or the sum of the losses (B,) of bags, or with "none" all of them."""
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    if reduction != "mean":
        raise unknown(f"reduction of {loss.name}", str(reduction), ("mean", "none", "sum"))
    if len(values) == 0:
        raise UsageError(
            f"{loss.name}: a batch without bags has no mean loss; leave it out, or use the sum, 0"
        )
    return values.mean()


@without_autocast
def score(
    loss: "Loss", logits: Tensor, mask: Tensor | None = None, *, check_values: bool
) -> Scores:
    """Return what a loss says about bags and positions; `Loss.score` describes it.

    With `check_values`, logits that are not finite raise UsageError.
    """
    flat, flat_mask = _flattened(loss, logits, mask)
    if check_values and not tracing():
        check_finite(flat)
    batch, channels, positions = flat.shape
    by_class = (batch, channels - 1)
    # Each class has two scores in a bag. The largest of `classes` names the class of a bag of one
    # instance; `presence` predicts label sets, and ranks bags.
    classes = checked_output(loss, "scores", loss.scores(flat, flat_mask), by_class)
    presence = classes
    # A loss that does not write `presence` uses its `scores` for both.
    if loss.has_own("presence"):
        presence = checked_output(loss, "presence", loss.presence(flat, flat_mask), by_class)
    probs = checked_output(loss, "posterior", loss.posterior(flat, flat_mask), flat.shape)
    evidence = checked_output(
        loss, "evidence", loss.evidence(flat, flat_mask), (*by_class, positions)
    )
    if flat_mask is not None:
        # There is no instance at a masked position, whatever the loss says about it.
        is_masked = ~flat_mask.unsqueeze(1)
        background = torch.zeros_like(probs)
        background[:, -1] = 1
        probs = torch.where(is_masked, background, probs)
        evidence = evidence.masked_fill(is_masked, -torch.inf)
    return Scores(
        classes,
        presence,
        instances=probs.reshape(logits.shape),
        evidence=evidence.reshape(*by_class, *logits.shape[2:]),
        log_odds=presence if loss.presence_is_log_odds else None,
    )


@without_autocast
def label_log_prob(
    loss: "Loss", logits: Tensor, labels: LabelSets, mask: Tensor | None = None
) -> Tensor | None:
    """Return (B,), the log-probability of a label set for each bag; see `Loss.label_log_prob`.

    Returns None for a loss without probabilities of label sets. Shapes and types are checked,
    values are not. A label set with more classes than its bag has positions, which `bag_losses`
    refuses, has the log-probability -inf here. Logits are not checked again, as an evaluation has
    given them to `score` before.
    """
    flat, flat_mask = _flattened(loss, logits, mask)
    label_sets = as_label_matrix(labels, flat).bool()
    log_prob = loss.set_log_prob(flat, label_sets, flat_mask)
    if log_prob is None:
        return None
    return checked_output(loss, "set_log_prob", log_prob, (len(logits),))


def label_sets_by(loss: "Loss", scores: Scores, threshold: float | None) -> Tensor:
    """Return the label sets (B, C) bool that a loss predicts by its scores; see `Loss.predict`."""
    if loss.head == "class":
        # The classes of a whole bag compete, so that exactly one class is predicted.
        most_probable = scores.classes.argmax(dim=1, keepdim=True)
        no_class = torch.zeros_like(scores.classes, dtype=torch.bool)
        return no_class.scatter(1, most_probable, True)
    if threshold is None:
        if scores.log_odds is None:
            raise UsageError(
                f"the presence scores of {loss.name} are no log-odds: predict needs a threshold, "
                "such as the best one of score(...).presence of validation bags"
            )
        # The log-odds 0 stand for the probability 1/2.
        threshold = 0.0
    return scores.presence >= threshold


def _flattened(loss: "Loss", logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Check the shapes of logits and mask, and flatten their positions into one dimension.

    Returns the logits (B, C+1, K), zero at masked positions, in float32 if they were in half
    precision, and the mask (B, K) or None.
    """
    check_logits(loss, logits)
    check_built(loss, num_classes=logits.shape[1] - 1)
    # Logits (B, C+1) belong to bags with one position.
    has_positions = logits.ndim > 2
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    flat = logits.flatten(2) if has_positions else logits.unsqueeze(2)
    if mask is None:
        return flat, None
    check_mask(loss, mask, logits)
    flat_mask = mask.flatten(1) if has_positions else mask.unsqueeze(1)
    return flat.masked_fill(~flat_mask.unsqueeze(1), 0.0), flat_mask
