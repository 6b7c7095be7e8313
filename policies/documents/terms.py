"""The terms of the losses that a study may ask for: what each may feed, and the range of its coefficient.

Guarantees that one entry says of a term whether it may feed an upload: only one whose loss of a record depends on that
record alone, since only then does the clip of a patient's own gradient bound what the patient adds. The others train
the personal model, which never leaves. Which terms one study has is `policies.plan.terms`'; the code of a term is the
silo's (`silo_agent.learning.terms`), and a test there holds the entries against the code and the study's fields.

A new term is one entry here, its coefficient in `study`, and one file at the silo.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

Part = Literal["encoder", "personal"]
"""What is trained: `encoder` feeds an upload, `personal` never leaves."""
Reads = Literal["record", "batch", "weights"]


@dataclass(frozen=True)
class Term:
    """One term of a loss.

    Attributes:
        name: of the module in `silo_agent.learning.terms`.
        reads: what one value of it depends on: a single record, the records of a batch together, or weights alone.
        field: the study's field that holds its coefficient; None where it is always there, with coefficient 1.
        part: the part of the study that `field` stands in; None where every training has it.
        least, most: range of the coefficient; 0 switches the term off.
        stochastic: whether the encoder draws its features for it, and so has a deviation for each.
        tables: values of the tables that are trained with it, from the number of classes and the representation's
            width; they are averaged over the silos with the encoder where the study says so. None where it has none.
    """

    name: str
    reads: Reads
    field: str | None = None
    part: Part | None = None
    least: float = 0.0
    most: float = math.inf
    stochastic: bool = False
    tables: Callable[[int, int], int] | None = None

    @property
    def per_record(self) -> bool:
        """Whether a record's loss depends on this record alone, so that the term may feed an upload."""
        return self.reads == "record"

    @property
    def words(self) -> frozenset[str]:
        """What a study's author would call it."""
        return frozenset({self.name} if self.field is None else {self.name, self.field})


def _one_gaussian_per_class(classes: int, representation: int) -> int:
    return 2 * classes * representation


TERMS: Final = (
    Term("cross_entropy", "record", least=1.0, most=1.0),
    Term("l2r", "record", "l2r", "encoder", most=100.0),
    Term("cmi", "record", "cmi", "encoder", most=100.0, stochastic=True, tables=_one_gaussian_per_class),
    Term("ditto", "weights", "ditto", "personal"),
    Term("mk_mmd", "batch", "mmd", "personal"),
)
"""In the order in which they are added up."""
