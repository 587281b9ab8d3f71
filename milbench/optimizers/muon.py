"""The optimiser Muon: torch's own for the weights of every layer, AdamW for biases."""

from typing import Any

import torch
from torch import Tensor, nn


class Muon(torch.optim.Optimizer):
    """Momentum, made approximately orthogonal for each matrix of weights before the step.

    torch's Muon accepts only matrices. The weights of a convolution are given to it as (fan_out,
    fan_in) views of the same memory. Parameters of one dimension are left to AdamW. Both optimisers
    make steps of the same length (`match_rms_adamw`), so that they can share a learning rate.

    K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; the common
    step length: J. Liu et al., "Muon is Scalable for LLM Training", arXiv:2502.16982, 2025.
    """

    def __init__(self, model: nn.Module, *, lr: float, weight_decay: float) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        super().__init__(parameters, {"lr": lr})
        self.views: dict[Tensor, nn.Parameter] = {}
        vectors = []
        for parameter in parameters:
            if parameter.ndim > 1:
                self.views[parameter] = nn.Parameter(_as_matrix(parameter.detach()))
            else:
                vectors.append(parameter)
        options: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
        # torch refuses an optimiser without parameters.
        self.inner: list[torch.optim.Optimizer] = []
        if self.views:
            muon = torch.optim.Muon(self.views.values(), adjust_lr_fn="match_rms_adamw", **options)
            self.inner.append(muon)
        if vectors:
            self.inner.append(torch.optim.AdamW(vectors, **options))

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Make one step of both optimisers with the learning rate of the parameter group."""
        for parameter, view in self.views.items():
            view.grad = None if parameter.grad is None else _as_matrix(parameter.grad)
        for inner in self.inner:
            for group in inner.param_groups:
                group["lr"] = self.param_groups[0]["lr"]
            inner.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of both optimisers."""
        return {"inner": [inner.state_dict() for inner in self.inner]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the states that `state_dict` returned."""
        for inner, state in zip(self.inner, state_dict["inner"], strict=True):
            inner.load_state_dict(state)


def _as_matrix(tensor: Tensor) -> Tensor:
    """Return weights as a matrix (fan_out, fan_in), a view of the same memory.

    In the memory, the channels of a convolution may come last.
    """
    has_channels_last = tensor.ndim == 4 and not tensor.is_contiguous()
    if has_channels_last:
        tensor = tensor.permute(0, 2, 3, 1)
    return tensor.view(tensor.shape[0], -1)
