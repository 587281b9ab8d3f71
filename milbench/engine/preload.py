"""What a process imports from which worker processes are forked: each of them would need seconds for it.

It starts no thread and touches no GPU, so that its copies may do both.
"""

from __future__ import annotations

import torch._dynamo

import milbench.engine.trainer
import milbench.store.mlflow_client
import milbench.store.writer

milbench.store.mlflow_client.preload()
__all__ = ["milbench", "torch"]
