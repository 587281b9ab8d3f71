"""The names of the artifacts of runs."""

from __future__ import annotations

from typing import Literal

PLAN: Literal["plan.json"] = "plan.json"
"""The plan of a launch."""
DATA_DIGEST: Literal["data_digest.txt"] = "data_digest.txt"
"""A digest of the data that a cell was trained and tested on."""
TRACEBACK: Literal["traceback.txt"] = "traceback.txt"
"""Where a failed cell failed."""
WEIGHTS: Literal["model.safetensors"] = "model.safetensors"
"""The weights of the network and of the loss."""
GALLERY: Literal["gallery.npz"] = "gallery.npz"
"""A few test bags with what the network says of them."""
DECODER: Literal["decoder.json"] = "decoder.json"
"""The decoder of strings that was chosen before the test bags were seen."""
MEMORY: Literal["task.json"] = "task.json"
"""What the task must remember to use the network where its data are not."""
CHECKPOINT: Literal["checkpoint.pt"] = "checkpoint.pt"
"""From which an interrupted cell goes on. In a workspace it lies among the checkpoints, under the cell's id."""

Artifact = Literal[
    "plan.json", "data_digest.txt", "traceback.txt", "model.safetensors", "gallery.npz", "decoder.json", "task.json",
    "checkpoint.pt", "outcomes.npz", "reliability.json",
]  # fmt: skip
"""All of them, and the two whose format the API defines: OUTCOMES_FILE and RELIABILITY_FILE."""
