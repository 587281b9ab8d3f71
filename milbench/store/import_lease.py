"""One import at a time into a store that several machines share: whoever imports is seen there by a run of its own.

Locks of files are seen by one machine only. A run of the kind CLAIM is made first and looked for afterwards, so that of
two imports that begin together at least one sees the other and gives up; no clock is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from milbench.errors import UsageError
from milbench.store.mlflow_store import HOST, KIND, ROOT, Store

CLAIM = "import"
"""The kind of a run that stands for an import that is going on; it is deleted at its end."""


@contextmanager
def claimed(store: Store, name: str) -> Iterator[None]:
    """Claim the store for an import of the comparison `name` while the block lasts; the root's own lock is held.

    A store under its root is not claimed, since the lock says it all; where a server offers it to other machines as
    well, their claims are respected. Raises UsageError where somebody else has claimed it.
    """
    mine = None if store.is_under_root else _claim(store, name)
    try:
        store.look_again()
        for other in store.search(CLAIM):
            run_id, tags = other.info.run_id, other.data.tags
            if any(tags.get(tag) != value for tag, value in store.owner.items()):
                raise UsageError(
                    f"another import into {store.address} is going on, from {tags.get(ROOT)} on {tags.get(HOST)}; if "
                    f"it was killed, import from there again, or delete its run {run_id}"
                )
            if run_id != mine:  # of an import under this root that was killed: its lock is ours now
                store.client.delete_run(run_id)
        yield
    finally:
        if mine:
            store.client.delete_run(mine)


def _claim(store: Store, name: str) -> str:
    """Make the run, in any experiment that is there: an import that is refused leaves none behind."""
    experiment = next(iter(store.experiments.values()), None) or store.experiment(name)
    tags = {KIND: CLAIM, **store.owner}
    return str(store.client.create_run(experiment, run_name=f"import of {name}", tags=tags).info.run_id)
