"""The kinds of supervision: what the label of a bag tells a loss in training."""

from typing import Literal

Supervision = Literal["set", "count", "order", "position"]

SUPERVISIONS: dict[str, str] = {
    "set": "Set supervision: only which classes are in a bag",
    "count": "Count supervision: how often each class occurs in a bag",
    "order": "Order supervision: the classes of a bag in their order",
    "position": "Position supervision: where each class is",
}
"""Every kind with its description in reports, from the least supervision to the most."""
