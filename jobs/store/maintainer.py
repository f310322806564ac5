"""The one process at a time that changes what lies in a store: by a lease, as one driver at a time works on a run.

Jobs need none, to read or to put. Two maintainers at once, of which one was taken for dead, harm nothing: rows stand twice
then. The lease saves them the work.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster.errors import ClusterError, HeldError
from cluster.run.lease import Lease, holder
from cluster.storage import Storage, open_storage
from jobs.chain.store.layout import MAINTAINER

Check = Callable[[], None]
"""Raises where the process maintains the store no longer."""


@contextmanager
def maintaining(store: Storage, *, dry_run: bool = False) -> Iterator[Check]:
    """Holds the lease of a store's maintainer, or raises HeldError; yields a check for between two steps of the work."""
    if dry_run:
        yield lambda: None
        return
    storage = open_storage(store.url(MAINTAINER))
    try:
        lease = Lease.acquire(storage)
    except HeldError as error:
        last = holder(storage, time.time())
        who = "" if last is None else f" ({last.pid} on {last.host})"
        raise HeldError("run-held", f"{store.root}: another process{who} maintains this store; wait for it") from error

    def check() -> None:
        if lease.lost():
            problem = "another process may have taken over the maintenance of this store; run the same command again"
            raise ClusterError("run-held", f"{store.root}: {problem}")

    try:
        earlier = (entry.key for entry in storage.list("lease") if entry.key < f"lease/{lease.number:06d}.json")
        storage.delete(*earlier)  # else there would be one more each night
        yield check
    finally:
        lease.release()
