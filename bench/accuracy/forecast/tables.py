"""Real data sets of the bench, read as a silo reads them: Adult, diabetes-130 and heart disease.

Hospitals of Adult and of diabetes-130 are made by chance from the patients, for the files name none.
`bench.accuracy.real` has these files, too, with other columns, domains and hospitals: what is expected of the studies
here was written down for the columns here, so the tables stay apart.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from bench.places import DATA, DEMO
from policies.documents.study import DataSchema
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records

HEART: Final = ("cleveland", "hungarian", "switzerland", "va")

ADULT: Final[dict[str, Any]] = {
    "columns": [
        "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship",
        "race", "sex", "capital_gain", "capital_loss", "hours", "native_country", "income",
    ],
    "missing": ["?"],
    "label": {"column": "income", "positive": [">50K"], "negative": ["<=50K"]},
    "domain": [
        {"column": "race", "values": ["White", "Black"], "names": ["white", "black"]},
        {"column": "sex", "values": ["Female", "Male"], "names": ["women", "men"]},
    ],
    "features": [
        {"column": "age", "kind": "number", "minimum": 17, "maximum": 90},
        {"column": "education_num", "kind": "number", "minimum": 1, "maximum": 16},
        {"column": "hours", "kind": "number", "minimum": 1, "maximum": 99},
        {"column": "capital_gain", "kind": "number", "minimum": 0, "maximum": 100_000, "scale": "log1p"},
        {"column": "capital_loss", "kind": "number", "minimum": 0, "maximum": 5000, "scale": "log1p"},
        {
            "column": "marital_status",
            "kind": "category",
            "values": [
                "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
                "Married-AF-spouse",
            ],
        },
        {
            "column": "relationship",
            "kind": "category",
            "values": ["Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"],
        },
        {
            "column": "occupation",
            "kind": "category",
            "optional": True,
            "values": [
                "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
                "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
                "Priv-house-serv", "Protective-serv", "Armed-Forces",
            ],
        },
    ],
}  # fmt: skip

_TREATED: Final = ["No", "Steady", "Up", "Down"]
DIABETES: Final[dict[str, Any]] = {
    "missing": ["?"],
    "patient": "patient_nbr",
    "label": {"column": "readmitted", "positive": ["<30"], "negative": [">30", "NO"]},
    "domain": [
        {
            "column": "race",
            "values": ["Caucasian", "AfricanAmerican", "Hispanic", "Other"],
            "names": ["Caucasian", "African American", "Hispanic", "other"],
        }
    ],
    "features": [
        {"column": "age", "kind": "category", "values": [f"[{age}-{age + 10})" for age in range(0, 100, 10)]},
        {"column": "gender", "kind": "category", "values": ["Female", "Male"]},
        {"column": "time_in_hospital", "kind": "number", "minimum": 1, "maximum": 14},
        {"column": "num_lab_procedures", "kind": "number", "minimum": 0, "maximum": 120, "outside": "clip"},
        {"column": "num_procedures", "kind": "number", "minimum": 0, "maximum": 6, "outside": "clip"},
        {"column": "num_medications", "kind": "number", "minimum": 0, "maximum": 60, "outside": "clip"},
        *(
            {"column": f"number_{what}", "kind": "number", "minimum": 0, "maximum": 20, "scale": "log1p",
             "outside": "clip"}
            for what in ("outpatient", "emergency", "inpatient")
        ),
        {"column": "number_diagnoses", "kind": "number", "minimum": 1, "maximum": 16, "outside": "clip"},
        {"column": "insulin", "kind": "category", "values": _TREATED},
        {"column": "metformin", "kind": "category", "values": _TREATED},
        {"column": "A1Cresult", "kind": "category", "values": ["None", "Norm", ">7", ">8"]},
        {"column": "change", "kind": "category", "values": ["No", "Ch"]},
        {"column": "diabetesMed", "kind": "category", "values": ["No", "Yes"]},
    ],
}  # fmt: skip


def heart_data() -> dict[str, Any]:
    """The schema of the demo's study on the four hospitals."""
    study = DEMO / "heart-disease" / "study.yaml"
    return dict(yaml.safe_load(study.read_text(encoding="utf-8"))["data"])


@cache
def heart() -> Mapping[str, Records]:
    """The records of the four hospitals."""
    schema = DataSchema.model_validate(heart_data())
    folder = DATA / "heart_disease"
    return {silo: read_records(folder / f"processed.{silo}.data", schema).records for silo in HEART}


@cache
def adult() -> Records:
    """The training file of Adult."""
    return read_records(DATA / "adult" / "adult.data", DataSchema.model_validate(ADULT)).records


@cache
def diabetes() -> Records:
    """All encounters of diabetes-130, with their patients."""
    with tempfile.TemporaryDirectory(prefix="fedward-bench-") as folder:
        with zipfile.ZipFile(DATA / "diabetes130" / "dataset_diabetes.zip") as archive:
            file = Path(archive.extract("dataset_diabetes/diabetic_data.csv", folder))
        return read_records(file, DataSchema.model_validate(DIABETES), ["patient_nbr"]).records


def dealt(records: Records, sizes: tuple[int, ...], seed: int) -> Mapping[str, Records]:
    """So many patients by chance to each hospital."""
    order = np.random.default_rng(seed).permutation(records.patient_count)
    by_silo, start = {}, 0
    for number, size in enumerate(sizes):
        chosen = np.zeros(records.patient_count, np.bool_)
        chosen[order[start : start + size]] = True
        by_silo[f"hospital-{number}"] = records.of_patients(chosen)
        start += size
    return by_silo
