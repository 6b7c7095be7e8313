"""What at an issuing authority ends soon, and what its keeper does about it.

An issuing certificate lasts a year, a root's revocation list 90 days, and once one of them has ended nobody in the
consortium accepts anybody. So the service warns long before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from crypto.errors import CryptoError
from crypto.pki.authority.issuing import ROOT_LISTS_FILE, IssuingAuthority

CERTIFICATE_NOTICE = timedelta(days=60)
LIST_NOTICE = timedelta(days=21)
PACE_SECONDS = 24 * 3600.0


def ending(authority: IssuingAuthority, now: datetime) -> Iterator[str]:
    """Yield a sentence for everything that ends within its notice, and has not been replaced."""
    last = authority.delegated_until
    if last - now < CERTIFICATE_NOTICE:
        yield (
            f"the certificate of this issuing authority ends on {last:%Y-%m-%d}; have the root delegate to it again"
            " (`fedward-authority delegate`)"
        )
    for root in authority.roots:
        if root.ends - now < CERTIFICATE_NOTICE:
            yield (
                f"the root {root.name!r} ends on {root.ends:%Y-%m-%d}; make a new root"
                " (docs/handbook/authority.md, change the root)"
            )
    try:
        lists = authority.root_lists()
    except CryptoError as error:
        yield str(error)
        return
    for root in authority.roots:
        newest = lists.newest(root)
        if newest is None or newest.until - now < LIST_NOTICE:
            when = "is missing" if newest is None else f"is stale from {newest.until:%Y-%m-%d} on"
            yield (
                f"the revocation list of the root {root.name!r} {when}; make the next one (`fedward-authority crl`)"
                f" and bring it here as {ROOT_LISTS_FILE}"
            )


def watch(authority: IssuingAuthority, tell: Callable[[str], object], stop: threading.Event) -> None:
    """Tell at once, and then once a day, what ends soon, until told to stop."""
    while not stop.is_set():
        for sentence in ending(authority, datetime.now(UTC)):
            tell(sentence)
        stop.wait(PACE_SECONDS)
