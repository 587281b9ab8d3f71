"""What the process imports from which worker processes are forked: each of them would need seconds for it.

It starts no thread and touches no GPU, so that its copies may do both.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys

import torch._dynamo  # every optimiser of torch imports it in its first step

import milbench.engine.trainer
import milbench.engine.worker
import milbench.store.mlflow_client
import milbench.store.writer
from milbench._utils.interrupts import STOPPING

milbench.store.mlflow_client.preload()
gc.freeze()  # workers do not search these imports for garbage, which would copy the memory that they share
atexit.register(gc.unfreeze)  # or triton lists, when this process ends, all that it has imported as leaked
if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    # Ctrl-C and SIGTERM reach every process of a group, and the launcher alone acts on them.
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)

__all__ = ["milbench", "torch"]
