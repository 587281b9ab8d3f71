"""One import at a time into a store that several machines share: whoever imports is seen there by a run of its own.

Locks of files are seen by one machine only. A run of the kind LEASE is made first and looked for afterwards, so that of
two imports that begin together at least one sees the other and gives up; no clock is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from milbench.errors import UsageError
from milbench.store.mlflow_store import HOST, KIND, ROOT, Store

LEASE = "import"
"""The kind of a run that stands for an import that is going on; it is deleted at its end."""


@contextmanager
def import_lease(store: Store, name: str) -> Iterator[None]:
    """Lease the store for an import of the comparison `name` while the block lasts; the root's own lock is held.

    A store under its root needs no lease of its own, since the lock covers it; where a server offers it to other
    machines as well, their leases are respected. Raises UsageError if another machine or root holds one.
    """
    mine = None if store.is_under_root else _take_lease(store, name)
    try:
        store.refresh()
        for other in store.search(LEASE):
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


def _take_lease(store: Store, name: str) -> str:
    """Make the run, in any experiment that is there: an import that is refused leaves none behind."""
    experiment = next(iter(store.experiments.values()), None) or store.experiment(name)
    tags = {KIND: LEASE, **store.owner}
    return str(store.client.create_run(experiment, run_name=f"import of {name}", tags=tags).info.run_id)
