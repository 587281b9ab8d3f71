"""The import lease: one import at a time into a store that several machines share.

A file lock is visible on one machine only. An import therefore makes a run of the kind LEASE first, and looks for such
runs of others afterwards: of two imports that begin together at least one finds the other and gives up. No clocks are
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from milbench.errors import UsageError
from milbench.store.records import HOST, KIND, ROOT
from milbench.store.writer import StoreWriter

LEASE = "import"
"""The kind of the run that is an import lease; the run is deleted at the end of the import."""


@contextmanager
def import_lease(store: StoreWriter, name: str) -> Iterator[None]:
    """Lease a store for an import while the block lasts; the caller holds the workspace's lock for imports.

    A store in its workspace needs no lease for its own imports, since the lock is enough. A server may offer the same
    store to other machines: their leases are respected.

    Args:
        store: the store.
        name: the comparison that is imported.

    Raises:
        UsageError: another machine or workspace holds a lease.
    """
    mine = None if store.is_in_workspace else _take_lease(store, name)
    try:
        store.refresh()
        for other in store.search(LEASE):
            if any(other.tags.get(tag) != value for tag, value in store.owner.items()):
                raise UsageError(
                    f"another import into {store.address} is going on, from {other.tags.get(ROOT)} on "
                    f"{other.tags.get(HOST)}; if it was killed, import from there again, or delete its run "
                    f"{other.run_id}"
                )
            if other.run_id != mine:  # left by an import of this workspace that was killed: we hold its lock now
                store.delete(other.run_id)
        yield
    finally:
        if mine:
            store.delete(mine)


def _take_lease(store: StoreWriter, name: str) -> str:
    """Create the run of a lease, in an experiment that exists, if any, so that a refused import leaves no new one."""
    return store.create(next(iter(store.experiments), name), {KIND: LEASE}, name=f"import of {name}")
