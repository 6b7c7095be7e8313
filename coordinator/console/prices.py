"""What studies cost, computed once for each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from policies.accounting.planning import Prices, price
from policies.documents.study import Study
from policies.reports.guarantee import Guarantee, guarantee

_MOST: Final = 1000


class KnownPrices:
    """The prices of studies, each at its own delta. One is computed at a time: it takes a processor for a second."""

    def __init__(self) -> None:
        """Know none."""
        self._known: OrderedDict[str, Prices] = OrderedDict()
        self._guarantees: OrderedDict[str, Guarantee] = OrderedDict()
        self._turn = threading.Lock()

    def of(self, study: Study) -> Prices:
        """Return a study's prices."""
        with self._turn:
            if study.digest not in self._known:
                while len(self._known) >= _MOST:
                    self._known.popitem(last=False)
                self._known[study.digest] = price(study, study.privacy.delta)
            return self._known[study.digest]

    def guarantee(self, study: Study) -> Guarantee:
        """Return what a study's plan guarantees to a patient."""
        with self._turn:
            if study.digest not in self._guarantees:
                while len(self._guarantees) >= _MOST:
                    self._guarantees.popitem(last=False)
                self._guarantees[study.digest] = guarantee(study, None)
            return self._guarantees[study.digest]
