"""How a network is trained: every setting that is neither the loss nor the task."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Recipe(BaseModel):
    """The training of one cell; a task names its own defaults, a spec or `-p recipe.k=v` overrides them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    optimizer: str = Field(default="adamw", description="name in milbench.engine.optimizers")
    lr: float = Field(default=5e-4, gt=0, allow_inf_nan=False, description="peak learning rate")
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    schedule: str = Field(default="one-cycle", description="name in milbench.engine.optimizers")
    clip_norm: float | None = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="largest gradient norm; none: no clipping"
    )
    clip_rms: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="psgd: largest root mean square of a step before lr"
    )
    epochs: int = Field(default=10, ge=1)
    steps_per_epoch: int | None = Field(default=None, ge=1, description="steps of an epoch; none: all of it")
    head_init: Literal["prior", "paper"] = Field(
        default="prior", description="prior: a bag starts out with few expected instances; paper: random biases"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="of the network in training; any loss sees float32 logits, and so does any test",
    )
    loss_precision: Literal["float32", "float64"] = Field(
        default="float32", description="of the loss in training, from the logits on; the network has its own"
    )
