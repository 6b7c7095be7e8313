"""Predicts records without a label: the probabilities of every class or a number, and how each row was predicted.

Guarantees: nothing is guessed silently. A record of a domain that the study does not know is refused, unless the caller
says how to predict it; its row then says so. Nothing is released and nothing is charged. The written predictions are as
private as the records.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from policies.documents.study import BINARY, Study
from policies.plan import shapes
from silo_agent.data.cells import text
from silo_agent.data.errors import DataError
from silo_agent.data.images import Images
from silo_agent.data.outcome import in_unit
from silo_agent.data.table import Written
from silo_agent.data.unlabelled import UNKNOWN, Unlabelled, read_unlabelled
from silo_agent.errors import SiloError
from silo_agent.learning.device import choose_device
from silo_agent.learning.model import kept_parts
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import is_of_classes
from silo_agent.learning.outcomes.registry import family_of_study
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.personal.unknown_domain import (
    Model,
    Networked,
    Way,
    domain_shares,
    predict_ensemble,
    predict_pooled,
)
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StudyFolder

FORMATS = (".csv", ".parquet")
_UNKNOWN: Final = (
    "--domain DOMAIN says the domain of all records; with --unknown-domain ensemble or --unknown-domain pooled, records"
    " of a domain that the study does not know are predicted, too"
)
OWN = "own"
"""The record was predicted by the head of its own domain."""


class PredictionError(SiloError):
    """The prediction is not possible as requested. The message names the option and the fix."""


@dataclass(frozen=True, repr=False, eq=False)
class Predictions:
    """One row per record, in the file's order. Private.

    `domains` int64 (n,), -1 if unknown; `ways` as `OWN` or a `Way`; `probabilities` float64 (n, C), or (n, 1) with the
    values of a label that is a number, in its unit; `note` says how records of unknown domain were predicted, and is
    empty if there are none.
    """

    study: Study
    round: int
    patients: tuple[str, ...] | None
    domains: NDArray[np.int64]
    ways: tuple[str, ...]
    probabilities: NDArray[np.float64]
    note: str

    def __len__(self) -> int:
        return len(self.ways)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of a row's values: record, patient (if the study has it), domain, how, one per class, predicted.

        A number has the predicted value alone.
        """
        patient = () if self.patients is None else ("patient",)
        return ("record", *patient, "domain", "how", *(f"probability_{name}" for name in self.classes), "predicted")

    @property
    def classes(self) -> tuple[str, ...]:
        """The name of each class, which is its first code; a number has none.

        Of yes and no, yes is all of its codes, and no is `not` yes if it has several: its first code would name only
        some of its records.
        """
        codes = self.study.data.label.codes
        if len(codes) != BINARY:
            return tuple(text(own[0]) for own in codes)
        no, yes = ("/".join(text(code) for code in own) for own in codes)
        return (f"not {yes}" if len(codes[0]) > 1 else no, yes)

    def rows(self) -> Iterator[tuple[int | str | float | None, ...]]:
        """Yield rows in the order of `columns`. Records count from 1. An unknown domain is None."""
        names, classes, family = self.study.data.domains, self.classes, family_of_study(self.study)
        decided = family.decisions(self.probabilities) if is_of_classes(family) else ()
        for i, row in enumerate(self.probabilities):
            patient = () if self.patients is None else (self.patients[i],)
            domain = None if self.domains[i] == UNKNOWN else names[self.domains[i]]
            known = (i + 1, *patient, domain, self.ways[i], *map(float, row))
            yield (*known, classes[decided[i]]) if classes else known

    def to_csv(self) -> str:
        """Return all rows below a header line. An unknown domain is an empty cell."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows())
        return stream.getvalue()

    def to_parquet(self) -> bytes:
        """Return the same rows with types. An unknown domain is null."""
        kinds = {"record": pa.int64(), "patient": pa.string(), "domain": pa.string(), "how": pa.string()}
        kinds |= {"predicted": pa.string() if self.classes else pa.float64()}
        schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in self.columns])
        cells = list(zip(*self.rows(), strict=True)) or [()] * len(self.columns)
        arrays = [pa.array(column, field.type) for column, field in zip(cells, schema, strict=True)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), sink)
        return bytes(sink.getvalue())

    def save(self, path: Path) -> None:
        """Write CSV or Parquet, by the suffix: completely or not at all, and readable only by the owner.

        Folders that do not exist are made, for the owner alone.
        """
        content = self.to_parquet() if path.suffix == ".parquet" else self.to_csv().encode()
        for folder in reversed([one for one in path.parents if not one.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, content)


def check_output(path: Path) -> None:
    """Raise `PredictionError` if predictions cannot be saved under this name."""
    if path.suffix not in FORMATS:
        msg = f"--out {path.name}: the suffix sets the format and must be one of {', '.join(FORMATS)}"
        raise PredictionError(msg)
    if path.is_dir():
        msg = f"--out {path} is a folder; give the name of a file"
        raise PredictionError(msg)
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            msg = f"--out {path}: {folder} is a file; give a path through folders"
            raise PredictionError(msg)


def load_model(path: Path, *, personal: bool) -> Networked:
    """Read a model file; the shared model with the parts that the silo keeps. Raises `ModelFileError`."""
    return PersonalModel.load(path) if personal else kept_parts.load(path)


def predict(
    model: Model,
    data: Path,
    *,
    folder: Path,
    domain: str | None = None,
    unknown: Way | None = None,
    written: Written | None = None,
    device: str = "cpu",
) -> Predictions:
    """Predict every record of a CSV or Parquet file in the study's schema. The file needs no label column.

    `domain` names the domain of all records. Without it, the file's own columns give the domains. `unknown` says how to
    predict records of no known domain. `written` says how the hospital writes the file; without it the file is as the
    study says. `folder` is the study's folder, with noised counts and the pooled model.
    Raises `PredictionError`, `DataError`, `ModelFileError`.
    """
    schema = model.study.data
    if domain is not None and unknown is not None:
        msg = "--domain and --unknown-domain exclude each other, as --domain sets every record's domain; give only one"
        raise PredictionError(msg)
    if domain is not None and domain not in schema.domains:
        msg = f"--domain {domain!r} is unknown: the study knows {', '.join(schema.domains)}; give one of these"
        raise PredictionError(msg)
    place = None if domain is None else schema.domains.index(domain)
    try:
        records = read_unlabelled(data, schema, domain=place, unknown_allowed=unknown is not None, written=written)
    except DataError as fault:
        columns = {factor.column for factor in schema.domain}
        if unknown is not None or not columns & {one.column for one in fault.faults}:
            raise
        msg = f"{fault}\n{_UNKNOWN}"
        raise PredictionError(msg) from None
    known = records.domains != UNKNOWN
    found = np.zeros((len(records), schema.label.count))
    chosen = choose_device(device)
    inputs, images = _part(records, known)
    found[known] = model.predict(inputs, records.domains[known], images, chosen)
    note = ""
    if unknown is not None and not known.all():
        shares, counted = domain_shares(folder, len(schema.domains))
        basis = "weighted by the noised domain counts" if counted else "weighted equally"
        inputs, images = _part(records, ~known)
        if unknown is Way.ENSEMBLE:
            found[~known] = predict_ensemble(model, shares, inputs, images, chosen)
            note = f"mean of the {len(shares)} domains' predictions, {basis}"
        else:
            pooled = _pooled_model(model, folder)
            found[~known] = predict_pooled(pooled or model, shares, inputs, images, chosen)
            mean = "mean of the heads" if isinstance(model, Networked) else "mean of the domains' logits"
            note = f"the pooled head of round {pooled.round}" if pooled else f"{mean}, {basis}"
    if schema.label.number is not None:
        found = in_unit(schema.label, found)
    ways = tuple(OWN if own else str(unknown) for own in known)
    return Predictions(model.study, model.round, records.patients, records.domains, ways, found, note)


def _part(records: Unlabelled, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.float32], Images | None]:
    return records.inputs[chosen], None if records.images is None else records.images.subset(chosen)


def _pooled_model(model: Model, folder: Path) -> SharedModel | None:
    """Return the shared model after the last pooled round, if the silo still has it. A personal model has none.

    Without domain rounds it is the model itself, with the calibration's intercepts if there is one.
    """
    number = shapes.last_pooled(model.study)
    path = StudyFolder(folder).model(number)
    if isinstance(model, SharedModel) and (model.round <= number or not model.study.heads.domain_rounds):
        return model
    if not isinstance(model, SharedModel) or not path.exists():
        return None
    pooled = kept_parts.load(path)
    return pooled if pooled.study.digest == model.study.digest and pooled.round == number else None
