"""The three data sets: study, silos' records, and which patients are measured.

Patients are split by the public hash that agents use, under another name for each of ten splits; all stays of a patient
lie on one side. Adult has an official split, so there only the noise differs between the draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.accuracy.real import tables
from bench.places import DEMO
from deploy.demo.sources import load_source
from deploy.local.simulate.silos import Cohorts, Silo, Source
from policies.documents.study import DataSchema, Study, load_study
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records
from silo_agent.data.split import split

HERE: Final = Path(__file__).parent
SPLITS: Final = 10
TUNING: Final = 1000
"""Seeds from here on draw other splits: all choices were made on these."""
_HOLDOUT: Final = {"diabetes": 0.3, "adult": 0.05, "heart": 0.34}


@dataclass(frozen=True, repr=False, eq=False)
class TenSplits:
    """Ten splits of the same records, in turns by seed."""

    name: str
    records: Mapping[str, Records]
    holdout: float

    def draw(self, study: Study, seed: int) -> Cohorts:  # noqa: ARG002 - a source may depend on the study; this does not
        """The cohorts of one seed."""
        silos = {name: Silo(*split(own, self.key(name, seed), self.holdout)) for name, own in self.records.items()}
        return Cohorts(silos)

    def key(self, silo: str, seed: int) -> str:
        """The name of a silo's data set under the split of a seed."""
        kind = "tuning" if seed >= TUNING else "split"
        return f"{silo}-{self.name}-{kind}-{seed % SPLITS}"


@dataclass(frozen=True, repr=False, eq=False)
class Official:
    """One split for every seed."""

    cohorts: Cohorts

    def draw(self, study: Study, seed: int) -> Cohorts:  # noqa: ARG002 - as of `TenSplits`
        """The cohorts, whatever the seed."""
        return self.cohorts


@dataclass(frozen=True, repr=False, eq=False)
class RealDataSet:
    """One data set as the bench uses it."""

    study: Study
    source: Source
    least: int
    """A domain's AUC counts as the worst only if its rarest class has so many test records, in the mean."""
    files: Mapping[str, Path]
    """The silos' own files, for a run with processes."""
    identified_by: tuple[str, ...]
    """The columns that say whose record it is; empty if the study names one."""
    holdout: float
    """Share of the patients that an agent holds out of its file. Of Adult they are no test records."""


def load(name: str, data: Path, out: Path) -> RealDataSet:
    """Prepare one data set; `data` holds the published files, tables are written below `out`."""
    return {"diabetes": _diabetes, "adult": _adult, "heart": _heart}[name](data, out)


def _diabetes(data: Path, out: Path) -> RealDataSet:
    study = load_study(HERE / "diabetes.yaml")
    files = tables.write(tables.diabetes(data / "diabetes130"), out / "diabetes")
    source = TenSplits("diabetes", _read(files, study.data, ()), _HOLDOUT["diabetes"])
    return RealDataSet(study, source, 60, files, (), _HOLDOUT["diabetes"])


def _adult(data: Path, out: Path) -> RealDataSet:
    study = load_study(HERE / "adult.yaml")
    files = [
        tables.write(own, out / "adult" / part)
        for part, own in zip(("training", "test"), tables.adult(data / "adult"), strict=True)
    ]
    training, test = (_read(own, study.data, ("row",)) for own in files)
    silos = {name: Silo(training[name], test[name]) for name in study.silos}
    return RealDataSet(study, Official(Cohorts(silos)), 60, files[0], ("row",), _HOLDOUT["adult"])


def _heart(data: Path, out: Path) -> RealDataSet:  # noqa: ARG001 - the files are read as published
    demo = load_source(DEMO / "heart-disease")
    files = {silo: data / "heart_disease" / name for silo, name in demo.files.items()}
    rows = demo.policy_of(demo.study.silos[0]).data_set.identified_by
    source = TenSplits("heart", _read(files, demo.study.data, rows), _HOLDOUT["heart"])
    return RealDataSet(demo.study, source, 0, files, rows, _HOLDOUT["heart"])


def _read(files: Mapping[str, Path], schema: DataSchema, identified_by: tuple[str, ...]) -> dict[str, Records]:
    return {silo: read_records(file, schema, identified_by).whole() for silo, file in files.items()}
