"""Connections to a dask cluster, which computes cells."""

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from milbench._utils import extras
from milbench._utils.addresses import without_secrets
from milbench._utils.process import uninterrupted
from milbench.errors import UsageError
from milbench.experiment.launch_settings import MOST_WORKERS


class ClusterLost(Exception):  # noqa: N818 it is named for what has happened
    """Raised when the scheduler of a cluster has stopped answering."""


def check_cluster(address: str) -> None:
    """Raise UsageError if dask is not installed, or the address is of no known form."""
    extras.load("distributed", "dask", "--cluster")
    local = re.fullmatch(r"local:(.*)", address)
    if local:
        workers = local[1]
        if not re.fullmatch(r"[1-9]\d{0,3}", workers) or int(workers) > MOST_WORKERS:
            raise UsageError(
                f"--cluster {address}: expected local:N with N from 1 to {MOST_WORKERS} processes"
            )
    elif not re.fullmatch(r"(\w+://)?[^/\s@?]+:\d+/?", address):
        # The pattern allows no `@`: a scheduler takes no password, and the command, which is stored
        # in the plan, must not hold one.
        shown = without_secrets(address)
        raise UsageError(
            f"--cluster {shown}: expected the address of a scheduler, tcp://HOST:PORT, or local:N"
        )


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a dask cluster for the block and yield its client.

    "local:N" starts N workers on this machine, which end with the block. Raises UsageError if no
    scheduler answers.
    """
    import dask
    from distributed import Client, LocalCluster

    _silence_dask()
    kind, _, number = address.partition(":")
    with ExitStack() as stack:
        if kind == "local":
            # By default a worker that has died and is not back after 15 seconds is given up. On a
            # busy machine a new one takes longer, and without workers the launch would never end.
            patience = {"distributed.deploy.lost-worker-timeout": "1 hour"}
            stack.enter_context(dask.config.set(patience))
            # Signals are blocked while the workers start, and the workers inherit that. So Ctrl-C
            # reaches this process alone, which then ends the workers.
            with uninterrupted():
                cluster = LocalCluster(
                    n_workers=int(number), threads_per_worker=1, dashboard_address=None
                )
            address = stack.enter_context(cluster).scheduler_address
        try:
            client = stack.enter_context(Client(address, timeout=15, set_as_default=False))
        except (OSError, ValueError) as error:
            raise UsageError(f"no dask scheduler answers at {address}: {error}") from None
        yield client


def _silence_dask() -> None:
    """Keep dask from logging lost workers: the states of the cells show what came of it."""
    # Setting the level of the logger "distributed" is not enough, since dask gives some loggers
    # below it levels of their own.
    for name in [*logging.root.manager.loggerDict, "tornado", "asyncio"]:
        if name.startswith(("distributed", "tornado", "asyncio")):
            logging.getLogger(name).setLevel(logging.CRITICAL)
