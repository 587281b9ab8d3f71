"""The methods of whoever starts a training that the trainer calls."""

from __future__ import annotations


class Stopped(BaseException):
    """Raised by the trainer after a request to stop, when the checkpoint from which the cell continues is saved.

    It is no Exception, so that `except Exception` in the code of a task or a loss does not swallow it.
    """


class Callback:
    """The methods that are called while a cell is trained. Here they do nothing; a subclass overrides some."""

    def resumed(self, epoch: int, step: int, steps: int) -> None:
        """Handle that training continues from a checkpoint, after `step` of the `steps` of an epoch (from 1)."""

    def started_over(self) -> None:
        """Handle that training begins anew, since what the checkpoint holds is damaged."""

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Handle progress inside an epoch, at most twice a second.

        Args:
            epoch: from 1.
            step: how many steps of the epoch are done.
            steps: how many steps the epoch has.
            loss: the mean loss of the steps that are done.
        """

    def epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        """Handle the metrics at the end of an epoch (from 1), by `split/metric`."""

    def micro_batch(self, size: int, epoch: int, step: int) -> None:
        """Handle that a batch did not fit into memory: from a step (from 1) on, `size` bags are computed at a time.

        The step is repeated with all bags of its batch, so that training goes on as planned up to rounding.
        """

    def stop_requested(self) -> bool:
        """Return whether to stop; asked after steps and before batches of an evaluation, every 0.2 s at most."""
        return False
