"""A stand-in for a GPU, for tests on machines without one.

Torch's fake tensors stand for the tensors on the GPU. Each copy for which the host, the program on
the CPU, would wait for the GPU is noted.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GPU = torch.device("cuda:0")
aten = torch.ops.aten


class FakeGPU(TorchDispatchMode):
    """A context in which the device `GPU` exists; its tensors have shapes and types but no values.

    Tensors on the CPU are real. An operation that needs a value from the GPU, or that mixes
    tensors of both devices, raises an error.

    Attributes:
        waits: the copies for which the host would wait: to the GPU, if the copy blocks or its
            source is not page-locked; of an index on the host, which is copied with blocking; and
            from the GPU to the host.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fake: Any = FakeTensorMode(allow_non_fake_inputs=True)
        self._page_locked: list[Tensor] = []
        self.waits: list[str] = []

    def __enter__(self) -> Any:
        self._fake.__enter__()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._fake.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten._pin_memory.default:
            copy = args[0].clone()
            self._page_locked.append(copy)
            return copy
        if func is aten.is_pinned.default:
            return self._is_page_locked(args[0])
        # Operations on the CPU alone are computed as usual.
        has_fakes = any(isinstance(leaf, FakeTensor) for leaf in tree_leaves((args, kwargs)))
        device = torch.device(kwargs.get("device") or "cpu")
        if not has_fakes and device.type == "cpu":
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        self._note_waits(func, args, kwargs)
        return func(*args, **kwargs)

    def _note_waits(self, func: Any, args: Any, kwargs: Any) -> None:
        """Note the copies that a call makes between the devices."""
        if func is aten._to_copy.default:
            source = args[0]
            target = torch.device(kwargs.get("device") or source.device)
            self._note_copy(source, target, bool(kwargs.get("non_blocking")))
        elif func is aten.copy_.default:
            target, source, *others = args
            # The third argument, which may be absent, is `non_blocking`.
            self._note_copy(source, target.device, bool(others and others[0]))
        elif func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
            indexed, indices, *_ = args
            for index in indices:
                if isinstance(index, Tensor):
                    self._note_copy(index, indexed.device, non_blocking=False)

    def _note_copy(self, source: Tensor, target: torch.device, non_blocking: bool) -> None:
        """Note a copy if the host waits for it."""
        from_kind = source.device.type
        to_kind = target.type
        if {from_kind, to_kind} != {"cpu", "cuda"}:
            return
        # Only a copy to the GPU can go on beside the host, and only from page-locked memory.
        goes_on = to_kind == "cuda" and non_blocking and self._is_page_locked(source)
        if not goes_on:
            self.waits.append(f"{source.dtype} {tuple(source.shape)} from {from_kind} to {to_kind}")

    def _is_page_locked(self, tensor: Tensor) -> bool:
        # Tensors are compared by identity, since fake tensors have no values.
        return any(tensor is known for known in self._page_locked)


def _is_usable() -> bool:
    """Return whether fake tensors can be made: some versions of torch need a driver for them."""
    try:
        with FakeGPU():
            torch.ones(1).to(GPU, non_blocking=True)
    except RuntimeError:
        return False
    return True


needs_fake_gpu = pytest.mark.skipif(
    not _is_usable(), reason="fake tensors of this torch need a driver"
)
