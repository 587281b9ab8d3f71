"""The optimisers that torch has here."""

from __future__ import annotations

import pytest
import torch

from milbench.optimizers.registry import OPTIMIZERS

needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
NAMES = [pytest.param(name, marks=needs_muon if name == "muon" else ()) for name in OPTIMIZERS]
