"""One import at a time into a store that several machines share: whoever imports is seen there by a run of its own.

Locks of files are seen by one machine only. A run of the kind CLAIM is made first and looked for afterwards, so that of
two imports that begin together at least one sees the other and gives up; no clock is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from milbench.errors import UsageError
from milbench.tracking import HOST, KIND, ROOT, Store

CLAIM = "import"
"""The kind of a run that stands for an import that is going on; it is deleted at its end."""


@contextmanager
def claimed(store: Store, name: str) -> Iterator[None]:
    """Claim the store for an import of the comparison `name` while the block lasts; the root's own lock is held.

    Raises UsageError where somebody on another machine, or under another root, has claimed it.
    """
    if store.is_under_root:  # the root's lock says it all
        yield
        return
    tags = {KIND: CLAIM, **store.owner}
    run = store.client.create_run(store.experiment(name), run_name=f"import of {name}", tags=tags)
    try:
        store.look_again()
        for other in store.search(CLAIM):
            host, root, run_id = (*(other.data.tags.get(tag) for tag in (HOST, ROOT)), other.info.run_id)
            if not store.is_own(other):
                raise UsageError(
                    f"another import into {store.address} is going on, from {root} on {host}; if it was killed, import "
                    f"from there again, or delete its run {run_id}"
                )
            if run_id != run.info.run_id:  # of an import under this root that was killed: its lock is ours now
                store.client.delete_run(run_id)
        yield
    finally:
        store.client.delete_run(run.info.run_id)
