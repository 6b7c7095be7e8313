"""Published files as the tables that hospitals would hold, one for each silo.

Guarantees that a cell follows from its own row alone, so that preparing the files tells nobody about anybody: codes are
grouped by published classifications, and no group depends on how frequent it is here.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

Row = dict[str, str | int | float]
Tables = Mapping[str, Sequence[Row]]
"""Rows by silo."""

SPECIALTIES: Final = {
    "?": "unrecorded",
    "InternalMedicine": "internal-medicine",
    "Family/GeneralPractice": "family-practice",
    "Emergency/Trauma": "emergency",
    "Cardiology": "cardiology",
}
OTHER_SPECIALTY: Final = "other-specialty"
"""Diabetes-130 names no hospital. Its silos are the admitting specialties of the patients' first stays."""
_ENDED: Final = frozenset({"11", "13", "14", "19", "20", "21"})
"""Discharged to a hospice or dead: nobody of these comes back."""
_CHAPTERS: Final = (
    ("circulatory", 390, 459),
    ("circulatory", 785, 785),
    ("respiratory", 460, 519),
    ("respiratory", 786, 786),
    ("digestive", 520, 579),
    ("digestive", 787, 787),
    ("injury", 800, 999),
    ("musculoskeletal", 710, 739),
    ("genitourinary", 580, 629),
    ("genitourinary", 788, 788),
    ("neoplasm", 140, 239),
)
"""Groups of ICD-9 codes, those of Strack et al. 2014 (Table 2)."""
_DIABETES: Final = 250
_SILOS: Final = 6
_ADULT: Final = (
    "age", "workclass", "fnlwgt", "education", "education_years", "marital", "occupation", "relationship", "race",
    "sex", "gain", "loss", "hours", "country", "income",
)  # fmt: skip


def diabetes(folder: Path) -> Tables:
    """Stays of diabetes-130 that a patient could come back from, by silo; a patient's stays are all at one silo."""
    with zipfile.ZipFile(folder / "dataset_diabetes.zip") as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("diabetic_data.csv")]
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open(name), encoding="utf-8")))
    first: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: int(row["encounter_id"])):
        first.setdefault(row["patient_nbr"], SPECIALTIES.get(row["medical_specialty"], OTHER_SPECIALTY))
    by_silo: dict[str, list[Row]] = {silo: [] for silo in (*SPECIALTIES.values(), OTHER_SPECIALTY)}
    for row in rows:
        if row["discharge_disposition_id"] not in _ENDED:
            by_silo[first[row["patient_nbr"]]].append(_stay(row))
    return by_silo


def _stay(row: Mapping[str, str]) -> Row:
    age = int(row["age"][1:].partition("-")[0]) + 5
    kept = (
        "readmitted", "gender", "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications",
        "number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses", "max_glu_serum", "A1Cresult",
        "insulin", "metformin", "change", "diabetesMed",
    )  # fmt: skip
    groups = {
        "race": ("Caucasian", "AfricanAmerican", "Hispanic", "Asian"),
        "admission_type_id": ("1", "2", "3"),
        "discharge_disposition_id": ("1", "2", "3", "5", "6", "22"),
        "admission_source_id": ("1", "7"),
        "medical_specialty": (
            "?", "InternalMedicine", "Emergency/Trauma", "Family/GeneralPractice", "Cardiology", "Surgery-General",
            "Nephrology",
        ),
        "payer_code": ("?", "MC", "HM", "SP", "BC", "MD"),
    }  # fmt: skip
    return {
        "patient": row["patient_nbr"],
        **{column: row[column] for column in kept},
        **{column: row[column] if row[column] in codes else "other" for column, codes in groups.items()},
        **{f"diagnosis_{number}": icd_group(row[f"diag_{number}"]) for number in (1, 2, 3)},
        "age": age,
        "age_squared": age**2,
        "any_inpatient": int(int(row["number_inpatient"]) > 0),
    }


def icd_group(code: str) -> str:
    """The chapter of an ICD-9 code."""
    if code in ("?", ""):
        return "none"
    if code[0] in "EV":
        return "other"
    number = int(float(code))
    if number == _DIABETES:
        return "diabetes"
    return next((name for name, low, high in _CHAPTERS if low <= number <= high), "other")


def adult(folder: Path) -> tuple[Tables, Tables]:
    """The official training and test rows of Adult. It names no places: every sixth row is the same silo's."""
    training, test = ([_person(row) for row in _adult_rows(folder / name)] for name in ("adult.data", "adult.test"))
    return _dealt(training), _dealt(test)


def _adult_rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        for cells in csv.reader(lines, skipinitialspace=True):
            if len(cells) == len(_ADULT):
                yield dict(zip(_ADULT, cells, strict=True))


def _person(row: Mapping[str, str]) -> Row:
    kept = ("workclass", "education_years", "marital", "occupation", "relationship", "sex", "gain", "loss", "hours")
    return {
        **{column: row[column] for column in kept},
        "income": row["income"].rstrip("."),
        "race": row["race"] if row["race"] in ("White", "Black") else "Other",
        "native": int(row["country"] == "United-States"),
        "any_loss": int(float(row["loss"]) > 0),
        "age": row["age"],
        "age_squared": int(row["age"]) ** 2,
    }


def _dealt(rows: Sequence[Row]) -> Tables:
    return {f"silo-{number + 1}": [*_numbered(rows, number)] for number in range(_SILOS)}


def _numbered(rows: Sequence[Row], start: int) -> Iterator[Row]:
    for number in range(start, len(rows), _SILOS):
        yield {"row": number, **rows[number]}


def write(tables: Tables, folder: Path) -> dict[str, Path]:
    """One CSV file for each silo."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for silo, rows in tables.items():
        files[silo] = folder / f"{silo}.csv"
        with files[silo].open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return files
