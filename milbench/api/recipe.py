"""The recipe: every setting of training that belongs neither to the loss nor to the task."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Recipe(BaseModel):
    """How the network of a cell is trained. A task has defaults of its own; a spec or `-p recipe.KEY=V` changes them.

    Args:
        optimizer: a name that `milbench list optimizers` shows.
        optimizer_origin: the package that the optimiser comes from, with its version, found out where cells are
            planned.
        lr: the peak learning rate.
        weight_decay: the coefficient of the optimiser's weight decay.
        schedule: a name in `milbench.optimizers.registry.SCHEDULES`, how the learning rate changes over the steps.
        clip_norm: the largest norm of a gradient; longer ones are shortened to it. A limit in absolute units shortens
            the steps of one loss and not those of another. None: no such limit.
        clip_quantile: the limit is this quantile of the norms of all gradients of the training so far, which depends on
            no loss's units (P. Seetharaman et al., "AutoClip: Adaptive Gradient Clipping for Source Separation
            Networks", arXiv:2007.14469, 2020). None: no such limit.
        normalize_gradient: whether every gradient is scaled to norm 1, so that a loss's units have no effect at all. At
            most one of these three is set; docs/results.md has the measurement by which this one is the default.
        clip_rms: for psgd, the largest root mean square of a step before it is multiplied by `lr`. None: no clipping.
        epochs: how many epochs are trained.
        steps_per_epoch: how many steps an epoch has at most. None: as many as the task has batches.
        head_init: the initial biases of the network's head. prior: a bag has few expected instances at the start, see
            `milbench.api.task.Network.start_at_prior`; paper: random ones.
        precision: of the network in training. auto: bfloat16 where the hardware of the machine that plans the cells
            multiplies it, else float32. Tasks whose networks are tiny ask for float32.
        loss_precision: in which the loss is computed in training.
        evaluate_every: how many epochs are trained from one evaluation to the next; the last epoch is always evaluated.
        interim_bags: at most how many bags of each kind an evaluation before the last epoch uses, which then computes
            the network in bfloat16 where that is the `precision`; its metrics are named interim/..., and no epoch is
            chosen by them. None: every evaluation uses all bags.
        evaluation_bags: at most how many bags of each kind any evaluation uses, for trying things out. None: all.
        average_last: over which share of all steps, the last ones, weights are averaged; their mean is what is
            evaluated from then on, and kept (P. Izmailov et al., "Averaging Weights Leads to Wider Optima and Better
            Generalization", UAI 2018). None: the last weights.

    Raises:
        pydantic.ValidationError: a value has the wrong type or is out of range.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    optimizer: str = "adamw"
    lr: float = Field(default=5e-4, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    schedule: str = "one-cycle"
    clip_norm: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    clip_quantile: float | None = Field(default=None, gt=0, lt=1)
    normalize_gradient: bool = True
    clip_rms: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    epochs: int = Field(default=10, ge=1)
    steps_per_epoch: int | None = Field(default=None, ge=1)
    head_init: Literal["prior", "paper"] = "prior"
    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    loss_precision: Literal["float32", "float64"] = "float32"
    evaluate_every: int = Field(default=1, ge=1)
    interim_bags: int | None = Field(default=None, ge=1)
    evaluation_bags: int | None = Field(default=None, ge=1)
    average_last: float | None = Field(default=None, gt=0, le=1)
    optimizer_origin: str = ""

    def evaluated_epochs(self) -> list[int]:
        """Return the epochs (from 1) after which the network is evaluated."""
        return [*range(self.evaluate_every, self.epochs, self.evaluate_every), self.epochs]
