"""Makes the sum of one tensor from the contributions on the disk, with its list of chunks, under its final name.

Guarantees: whatever fails, nothing that was there before has changed, so the same sum can be made again.
"""

from __future__ import annotations

from coordinator.core.events import Add
from coordinator.storage.spool import SUM_FILE, Spool
from coordinator.storage.store import Store
from coordinator.sums.aggregation import add_contents
from policies.documents.study import Study
from policies.plan.release import plan
from protos.chunks import ChunkList
from protos.messages import Part
from protos.steps import SUM


def make_sum(store: Store, spool: Spool, study: Study, wanted: Add) -> Part:
    """Add the contributions that `wanted` names; return what can be fetched. Raises what `add_contents` raises."""
    place, slot = wanted.place, str(wanted.tensor)
    target = spool.partial(place, slot, SUM_FILE)
    kind, digests = plan(study).ring(wanted.tensor), store.digests(place, slot)
    paths = [spool.complete(place, slot, silo) for silo in wanted.silos]
    add_contents(paths, [digests[silo] for silo in wanted.silos], kind, target)
    chunks = ChunkList.of(target)
    spool.keep_chunk_list(spool.chunks(place, slot, SUM_FILE), chunks)
    spool.publish(target, spool.complete(place, slot, SUM_FILE))
    return Part(SUM, "", chunks.size, chunks.digest)
