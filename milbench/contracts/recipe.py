"""The recipe: every setting of training that belongs neither to the loss nor to the task."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

PLAIN_RULES = ("unit", "none")
"""The rules for the length of a gradient that are written as a name alone."""
RULES_WITH_A_NUMBER = ("max", "quantile", "rms")
"""The rules that are written as a name, a colon and a number, such as "max:1"."""


def gradient_rule(text: str) -> tuple[str, float]:
    """Return the name and the number of a rule for the length of a gradient.

    The number is 0 for a rule without one. Raises ValueError for a text that is no rule.
    """
    if text in PLAIN_RULES:
        return text, 0.0
    name, _, value = text.partition(":")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    upper_limit = 1 if name == "quantile" else math.inf
    if name in RULES_WITH_A_NUMBER and 0 < number < upper_limit:
        return name, number
    raise ValueError(
        "expected unit, none, max:X, quantile:Q or rms:X, with X above 0 and Q between 0 and 1"
    )


def _normalised_rule(text: str) -> str:
    """Return a rule in one spelling, so that equal rules make equal cells."""
    name, number = gradient_rule(text)
    return f"{name}:{number:.15g}" if number else name


class Recipe(BaseModel):
    """How the network of a cell is trained.

    A task has defaults of its own. A spec or `-p recipe.KEY=V` changes them.

    Raises:
        pydantic.ValidationError: a value has the wrong type or is out of range.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Fields that are newer than stored cells, see `milbench.contracts.parameters`."""

    optimizer: str = "adamw"
    """An optimiser that `milbench list optimizers` shows."""
    lr: float = Field(default=5e-4, gt=0, allow_inf_nan=False)
    """Peak learning rate, the largest of the schedule."""
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Coefficient of the optimiser's weight decay."""
    schedule: str = "one-cycle"
    """How the learning rate changes over the steps: one-cycle, drop-at-half, drop-at-thirds or
    constant."""
    gradient_norm: Annotated[str, AfterValidator(_normalised_rule)] = "unit"
    """Rule for the length of a gradient. unit: every gradient is scaled to norm 1, so that the
    units of a loss have no effect at all; docs/results.md has the measurement by which this is the
    default. none: gradients stay as they are. max:X: a gradient with a larger norm is shortened to
    norm X. This limit is absolute: it may shorten the gradients of one loss and leave those of
    another loss unchanged. quantile:Q: the limit is this quantile of the norms of all gradients so
    far (P. Seetharaman et al., "AutoClip: Adaptive Gradient Clipping for Source Separation
    Networks", arXiv:2007.14469, 2020). rms:X, for the optimiser psgd: a step is shortened to the
    root mean square X before it is multiplied by lr."""
    epochs: int = Field(default=10, ge=1)
    """Epochs of training."""
    steps_per_epoch: int | None = Field(default=None, ge=1)
    """Largest number of steps of an epoch; none: the number of batches of the task."""
    head_init: Literal["prior", "paper"] = "prior"
    """Initial biases of the network's last layer. prior: by these biases a bag has about one
    instance of each class, see milbench.Network.start_at_prior. paper: random biases."""
    precision: Literal["float32", "tf32", "bfloat16", "auto"] = "auto"
    """Precision of the network in training. auto: bfloat16 if the device of the machine that plans
    the cells multiplies bfloat16 in hardware; a CPU must also train at least 20 % faster with it in
    a trial of a second or two, which is made once. Otherwise auto is float32. tf32: float32, with
    convolutions of 11 significant bits on a GPU, which is torch's own default."""
    loss_precision: Literal["float32", "float64"] = "float32"
    """Precision of the loss in training."""
    evaluate_every: int = Field(default=1, ge=1)
    """Epochs from one evaluation to the next; the last epoch is always evaluated."""
    evaluation_bags: int | None = Field(default=None, ge=1)
    """Largest number of bags of each kind in an evaluation, for quick trials; none: all bags."""
    average_last: float | None = Field(default=None, gt=0, le=1)
    """Share of all steps, at the end of training, over which weights are averaged. From then on
    their mean is evaluated, and in the end kept (P. Izmailov et al., "Averaging Weights Leads to
    Wider Optima and Better Generalization", UAI 2018). none: weights are not averaged."""
    optimizer_origin: str = ""
    """Set by the plan: the package of the optimiser, with its version."""

    def evaluated_epochs(self) -> list[int]:
        """Return the epochs (from 1) after which the network is evaluated."""
        return [*range(self.evaluate_every, self.epochs, self.evaluate_every), self.epochs]
