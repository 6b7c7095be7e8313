"""Three hospitals whose files differ in all that a policy can say: they train what clean files would have trained.

Real processes, the same draws: models, results, ledgers' charges and training logs are the same, bit for bit, and so
are the reports that each hospital makes for its board.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from policies.documents.study import Study
from silo_agent.cli.main import app
from support.certificates import data_set_of, make_authority
from support.party_federation import PartyFederation, credentials_of
from support.small_cohort import SILOS, policy_document, study_document, write_sites

pytestmark = pytest.mark.slow
NORTH, SOUTH, WEST = SILOS
BEGAN = date(2020, 1, 31)
FORMS = {
    NORTH: {
        "file": {"delimiter": ";", "columns": [], "encoding": "windows-1252"},
        "spelling": {
            "decimal": ",",
            "codes": {"ill": {"ja": 1, "nein": 0}, "group": {"männlich": "a", "weiblich": "b"}},
        },
    },
    SOUTH: {
        "file": {"delimiter": "\t", "columns": [], "encoding": "iso-8859-1"},
        "spelling": {
            "missing": ["", "k.A."],
            "dates": {"aufgenommen": "%d.%m.%Y", "entlassen": "%Y-%m-%d %H:%M:%S"},
            "between": {"stay": {"start": "aufgenommen", "end": "entlassen", "unit": "days"}},
        },
    },
    WEST: {
        "file": {"delimiter": "|", "columns": []},
        "spelling": {
            "absent": ["lab"],
            "units": {"lactate": {"unit": "half", "into": {"whole": {"factor": 0.5, "offset": -1.0}}}},
        },
    },
}


def study() -> Study:
    """One with a stay in days, a value that is often missing, and a unit."""
    document = study_document(name="dirty", publish=["auc"])
    units = {"lactate": {"unit": "whole"}}
    features = [{**one, **units.get(one["column"], {})} for one in document["data"]["features"]]
    stay = {"column": "stay", "kind": "number", "minimum": 0, "maximum": 60}
    lab = {"column": "lab", "kind": "number", "minimum": 0, "maximum": 8, "fill": 4}
    document["data"] = {**document["data"], "features": [*features, stay, lab]}
    document["encoder"] = {**document["encoder"], "sampling_rate": 1.0, "noise": 12.0}
    return Study.model_validate(document)


@dataclass
class Clean(PartyFederation):
    """Files as the study asks for them; identifiers have letters beyond ASCII."""

    dirty: bool = field(default=False, kw_only=True)

    def _files(self) -> dict[str, Path]:
        files = write_sites(self.root / "data", patients=40, silos=self.study.silos)
        for silo, path in files.items():
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            for number, row in enumerate(rows):
                row["patient"] = f"Ü-{row['patient']}"
                row["stay"] = str(number * 7 % 50)
                row["lab"] = "" if silo == WEST or number % 3 == 0 else str(number % 8)
                if silo == WEST:  # what is halved without rounding
                    row["lactate"] = str(round(float(row["lactate"]) * 4) / 4)
            written = list(map(SPELT[silo], rows)) if self.dirty else rows
            form = FORMS[silo]["file"] if self.dirty else {"delimiter": ",", "encoding": "utf-8"}
            lines = [written[0].keys(), *(row.values() for row in written)]
            text = "\r\n".join(form["delimiter"].join(line) for line in lines)
            path.write_bytes(text.encode(form.get("encoding", "utf-8")))
        return files

    def _policy(self, silo: str) -> str:
        document = policy_document(data_set_of(silo))
        form = FORMS[silo] if self.dirty else {"file": {"delimiter": ",", "columns": []}, "spelling": {}}
        document |= {
            "version": 4,
            "data_set": {**document["data_set"], "file": form["file"]},
            "limits": {**document["limits"], "memory_mib": 16_384},
            "spelling": form["spelling"],
        }
        return yaml.safe_dump(document)


def with_commas(row):
    numbers = {name: cell.replace(".", ",") for name, cell in row.items() if name not in {"patient", "ill", "group"}}
    group = {"a": "männlich", "b": "weiblich"}[row["group"]]
    return {**row, **numbers, "group": group, "ill": {"1": "ja", "0": "nein"}[row["ill"]]}


def with_dates(row):
    left = BEGAN + timedelta(int(row["stay"]))
    dates = {"aufgenommen": BEGAN.strftime("%d.%m.%Y"), "entlassen": f"{left} 23:30:00"}
    kept = {name: cell for name, cell in row.items() if name != "stay"}
    return {**dates, **kept, "lab": row["lab"] or "k.A."}


def in_another_unit(row):
    return {name: cell for name, cell in row.items() if name != "lab"} | {
        "lactate": str((float(row["lactate"]) + 1.0) * 2.0)
    }


SPELT = {NORTH: with_commas, SOUTH: with_dates, WEST: in_another_unit}


def test_dirty_files_train_what_clean_ones_would(tmp_path):
    credentials = credentials_of(make_authority(tmp_path), study())
    clean = Clean(tmp_path / "clean", study(), credentials)
    dirty = Clean(tmp_path / "dirty", study(), credentials, dirty=True)
    for federation in (clean, dirty):
        federation.root.mkdir()
        assert federation.run().state == "finished"
    files = [(federation.root / "data" / f"{WEST}.csv").read_bytes() for federation in (clean, dirty)]
    assert files[0] != files[1]
    assert dirty.difference(clean.outcome()) == {}
    assert len(clean.outcome()) >= 5 * len(SILOS)
    for silo in SILOS:
        page, paper = ((dirty.root / f"{silo}-report" / name) for name in ("dirty.html", "dirty.pdf"))
        for federation in (clean, dirty):
            out = federation.root / f"{silo}-report"
            config = str(federation.root / silo / "agent.yaml")
            done = CliRunner().invoke(app, ["report", "dirty", "--out", str(out), "-c", config])
            assert done.exit_code == 0, done.output
        assert "Exact figures of" in page.read_text()
        assert page.read_bytes() == (clean.root / f"{silo}-report" / page.name).read_bytes()
        assert paper.read_bytes() == (clean.root / f"{silo}-report" / paper.name).read_bytes()
