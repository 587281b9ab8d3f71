"""What changed between two comparisons."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from milbench.comparison.references import referred
from milbench.errors import UsageError
from milbench.report.changes import Changes, changes_between


def changes(
    a: str | Path, b: str | Path, *, metric: str | None = None, margin: float | None = None, root: Path | str = ".",
    root_a: Path | str | None = None, root_b: Path | str | None = None,
) -> Changes:  # fmt: skip
    """Return what changed from comparison A to comparison B beyond noise, as `milbench compare A B` shows it.

    It computes nothing: `compare` runs losses beside each other, and this compares two comparisons that were run.

    Args:
        a: the name of a comparison in the store; NAME@COMMIT or NAME@LAUNCH (the beginning of a git commit, or of the
            id of a launch) for the comparison as it was then; or the path of an export.
        b: likewise.
        metric: a test metric by which losses are compared, such as "set_error"; None: the leading one of each task.
        margin: the largest difference that counts as none, as a share for a metric in per cent.
        root: the folder with the store, runs/.
        root_a: that of A, where it is another one.
        root_b: that of B.

    Returns:
        The rows of both, with `.frame` (a line a loss on a task), `.worse`, `.rows`, `.only_a` and `.only_b`.

    Raises:
        UsageError: there is no such comparison, commit or file, or the two have nothing in common.

    Examples:
        >>> import tempfile, milbench
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = milbench.compare(
        ...         "exact", {"synthetic-bags": {"bags_per_epoch": 64}}, recipe={"epochs": 1}, name="mine",
        ...         root=folder, in_process=True, progress=False,
        ...     )
        ...     changed = milbench.changes("mine", "mine", root=folder)
        >>> changed.frame.loc[0, "verdict"], changed.worse
        ('the same runs', [])
    """
    if margin is not None and (isinstance(margin, bool) or not isinstance(margin, int | float) or not margin >= 0):
        raise UsageError(f"margin = {margin!r}: expected a number from 0 on, as a share for a metric in per cent")
    sides = (str(a), root_a), (str(b), root_b)
    with ExitStack() as stack:
        of_a, of_b = (stack.enter_context(referred(side, Path(own or root))) for side, own in sides)
        return changes_between(of_a, of_b, (str(a), str(b)), metric, margin)
