"""Making the loss of a classifier from what a user gives: a name, a file or a `Loss`."""

import copy
from typing import Any

import numpy as np

from milbench.contracts.load import load_loss
from milbench.contracts.loss import Loss
from milbench.contracts.parameters import check_params, constructor_parameters
from milbench.errors import UsageError


def new_loss(given: str | Loss) -> Loss:
    """Return a new loss for a classifier, not yet built for its classes.

    Raises UsageError where there is no such loss, or where it needs more than label sets.
    """
    if isinstance(given, str):
        loss = load_loss(given)
    elif isinstance(given, Loss):
        # Training would change the user's own object.
        loss = copy.deepcopy(given)
    else:
        raise UsageError(f"loss must be a name, a file or a Loss, got {type(given).__name__}")
    if loss.takes_target:
        raise UsageError(
            f"BagClassifier trains on label sets; {loss.name} has {loss.supervision} supervision"
        )
    return loss


def with_arguments(loss: Loss, changes: dict[str, Any]) -> Loss:
    """Return a new loss of the same class with some arguments changed."""
    return type(loss)(**arguments_of(loss, changes))


def arguments_of(loss: Loss, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return all arguments of a loss, some of them changed.

    Raises UsageError where an argument is wrong, or where the loss does not keep it.
    """
    changes = changes or {}
    kept = loss.arguments
    arguments = {}
    for name in constructor_parameters(type(loss)):
        if name not in kept and name not in changes:
            raise UsageError(
                f"loss {loss.name} takes {name} and does not keep it: its constructor must set "
                f"self.{name}, so that BagClassifier can make the loss again"
            )
        arguments[name] = changes.get(name, kept.get(name))
    # `changes` may have names that are not arguments: they are added, so that the check names them.
    return check_params(f"loss {loss.name}", type(loss), arguments | changes)


def are_same_losses(first: Loss, second: Loss) -> bool:
    """Return whether two losses are of one class and have the same arguments."""
    if type(first) is not type(second):
        return False
    others = arguments_of(second)
    # `array_equal`, as an argument may be an array.
    return all(np.array_equal(value, others[key]) for key, value in arguments_of(first).items())


def describe_loss(loss: Loss) -> str:
    """Return the name of a loss and its arguments, for messages."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in arguments_of(loss).items())
    return f"{loss.name} ({arguments})" if arguments else loss.name
