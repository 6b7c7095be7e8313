"""What studies cost, computed once for each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from policies.accounting.planning import Prices, price
from policies.documents.study import Study
from policies.reports.guarantee import Guarantee, guarantee

_MOST: Final = 1000
_Known = TypeVar("_Known")


class KnownPrices:
    """The prices of studies, each at its own delta. One is computed at a time: it takes a processor for a second."""

    def __init__(self) -> None:
        """Know none."""
        self._known: OrderedDict[str, Prices] = OrderedDict()
        self._guarantees: OrderedDict[str, Guarantee] = OrderedDict()
        self._turn = threading.Lock()

    def of(self, study: Study) -> Prices:
        """Return a study's prices."""
        return self._once(self._known, study, lambda: price(study, study.privacy.delta))

    def guarantee(self, study: Study) -> Guarantee:
        """Return what a study's plan guarantees to a patient."""
        return self._once(self._guarantees, study, lambda: guarantee(study, None))

    def _once(self, known: OrderedDict[str, _Known], study: Study, compute: Callable[[], _Known]) -> _Known:
        with self._turn:
            if study.digest not in known:
                while len(known) >= _MOST:
                    known.popitem(last=False)
                known[study.digest] = compute()
            return known[study.digest]
