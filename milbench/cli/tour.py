"""The text that `milbench` alone prints: three commands to try next."""

from __future__ import annotations

NEXT = (
    ("new loss my-loss", "write my_loss.py, a loss of your own that runs as it is, and its test"),
    ("run --loss my_loss.py,exact --task extended-digits --seeds 0-2", "train with it, and with the exact likelihood"),
    ("report --open", "read which of the two learns better, and how sure that is"),
)
"""The words of each command, which run one after the other in an empty folder, and what it is for."""


def show() -> None:
    """Print the three commands and how to get help."""
    from rich.text import Text

    from milbench._utils.console import console

    console.print("Try next:", style="bold")
    for words, purpose in NEXT:
        console.print(Text.assemble("  ", (f"milbench {words}", "cyan"), f"\n      {purpose}"), soft_wrap=True)
    console.print(Text.assemble("Every command: ", ("milbench --help", "cyan")), soft_wrap=True)
