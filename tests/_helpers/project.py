"""A folder with the files of somebody's own loss, which tests of plug-ins write and edit."""

from pathlib import Path
from typing import Any

from milbench.contracts.registry import losses
from milbench.contracts.resolver import reload_edited_plugins, resolve
from milbench.plugins.record import ImportRecord, Target, record_import

LOSS = """
from milbench import Loss

class Mine(Loss):
    name, head = "{name}", "sigmoid"

    def bag_loss(self, logits, labels, mask):
        return self.factor() * logits.square().sum(dim=(1, 2))

    def factor(self):
        return {factor}

    def scores(self, logits, mask):
        return logits[:, :-1].amax(dim=2)
"""


def loss_text(before: str = "", factor: str = "1", name: str = "mine") -> str:
    """Return the source of a loss.

    Args:
        before: code that stands above the loss.
        factor: the expression by which the loss multiplies its value.
        name: the name of the loss.
    """
    return before + LOSS.format(factor=factor, name=name)


class Project:
    """A folder with files of a user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        """Write a file and return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def record(self, name: str = "mine.py") -> ImportRecord:
        """Import a file anew, and return the record of what it imported."""
        return record_import(Target(f"the loss file {name}", file=str(self.folder / name)))

    def digest(self, name: str = "mine.py") -> str:
        return self.record(name).digest

    def factor(self, name: str = "mine.py") -> Any:
        """Return the factor of the loss in a file, after loading the file as it is now."""
        reload_edited_plugins()
        mine: Any = losses().create(resolve(losses(), str(self.folder / name)), {})
        return mine.factor()
