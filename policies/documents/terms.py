"""The terms of the losses that a study may ask for: what each may feed, and the range of its coefficient.

Guarantees that a term's entry says whether the term may feed an upload. It may do so only if the loss of a record
depends on that record alone. Only then does clipping a patient's own gradient bound what the patient adds. The other
terms train the personal model, which never leaves the silo. `policies.plan.terms` says which terms a study has. The
silo has the code of each term (`silo_agent.learning.terms`); a test there compares it with the entries and with the
study's fields.

A new term needs one entry here, its coefficient in `sections`, and one file at the silo, of the name of its entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

Part = Literal["encoder", "step", "personal"]
"""What is trained: `encoder` feeds an upload, `step` is added to an upload's steps after their noise, `personal` never
leaves the silo."""
Reads = Literal["record", "batch", "weights", "network"]


@dataclass(frozen=True)
class Term:
    """One term of a loss.

    Attributes:
        name: name of the term's module in `silo_agent.learning.terms`.
        reads: what one value of the term depends on: a single record, the records of a batch together, weights alone,
            or a network that is trained beside the model on other records, without noise.
        field: the study's field that holds the coefficient; None if the term is always there, with coefficient 1.
        part: the part of the study that has `field`; None if every training has the term.
        least, most: range of the coefficient; 0 switches the term off.
        stochastic: whether the term needs features that are drawn at random; the encoder then gives each a deviation.
        public: whether the encoder may have the term too, under the same field, where the data are declared public
            (`privacy.mode: none`). What is uploaded is then not noised, so nothing has to be clipped.
        environments: whether the term compares environments, so that the study must name their column.
        tables: function from the number of classes and the representation's width to the number of values in the
            tables that are trained with the term; None if it has no tables. If the study says so, the tables are
            averaged over the silos with the encoder.
        scaled: the study's field of `part` which says that one value more is trained with the tables; None if there is
            no such choice.
        chosen: a field of the part and the value with which the term is meant, if several terms share a coefficient.
    """

    name: str
    reads: Reads
    field: str | None = None
    part: Part | None = None
    least: float = 0.0
    most: float = 100.0
    stochastic: bool = False
    public: bool = False
    environments: bool = False
    tables: Callable[[int, int], int] | None = None
    scaled: str | None = None
    chosen: tuple[str, str] | None = None

    @property
    def per_record(self) -> bool:
        """Whether a record's loss depends on that record alone. Only then may the term feed an upload."""
        return self.reads == "record"

    @property
    def compares(self) -> bool:
        """Whether the term compares what the encoder gives to records of one batch."""
        return self.reads == "batch" and not self.environments

    @property
    def words(self) -> frozenset[str]:
        """The names by which a study's author may call the term."""
        return frozenset({self.name} if self.field is None else {self.name, self.field})


def _one_gaussian_per_class(classes: int, representation: int) -> int:
    return 2 * classes * representation


TERMS: Final = (
    Term("cross_entropy", "record", least=1.0, most=1.0),
    Term("l2r", "record", "l2r", "encoder", chosen=("l2r_norm", "squared")),
    Term("l2r_plain", "record", "l2r", "encoder", chosen=("l2r_norm", "plain")),
    Term("cmi", "record", "cmi", "encoder", stochastic=True, tables=_one_gaussian_per_class, scaled="cmi_scale"),
    Term("proximal", "weights", "proximal", "step"),
    Term("ditto", "weights", "ditto", "personal"),
    Term("mk_mmd", "batch", "mmd", "personal"),
    Term("cosine", "batch", "cosine", "personal"),
    Term("mmd_d", "batch", "mmd_d", "personal"),
    Term("irm", "batch", "irm", "personal", most=1e6, public=True, environments=True),
    Term("group_dro", "batch", "group_dro", "personal", most=1.0, public=True, environments=True),
    Term("adversary", "network", "adversary", "personal"),
)
"""All terms, in the order in which they are added up."""


def fields_of(part: Part, which: Callable[[Term], bool] = lambda _: True) -> tuple[str, ...]:
    """The fields of a part of the study that hold coefficients of such terms, each once, in the order of the terms."""
    fields = (term.field for term in TERMS if term.part == part and which(term))
    return tuple(dict.fromkeys(field for field in fields if field is not None))
