"""What is written is read as the same study."""

from pathlib import Path

import pytest

from policies.documents import writing
from policies.documents.document import DocumentError, parse_document
from policies.documents.sections.encoder import EncoderPlan
from policies.documents.sections.evaluation import Evaluation
from policies.documents.sections.expected import Expected
from policies.documents.sections.heads import HeadPlan
from policies.documents.sections.model import Model
from policies.documents.sections.privacy import Privacy
from policies.documents.study import Study, load_study
from policies.documents.writing import _COMMENTS, write_study
from support.studies import tiny_study

ROOT = Path(__file__).parents[3]
STUDIES = sorted((ROOT / "deploy" / "demo").glob("*/study.yaml"))


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.parent.name)
def test_a_written_study_has_the_same_digest(file):
    study = load_study(file)
    assert parse_document(write_study(study, head=["by hand"]), Study, "again").digest == study.digest


def test_texts_that_yaml_would_read_otherwise_survive():
    document = tiny_study().model_dump(mode="json")
    codes = ["no", "1:30", "010", "2001-01-01", "x # y", "a: b", "1e3", "<30", "é", 2.5, True]
    document["data"]["features"].append({"kind": "category", "column": "null", "values": codes})
    document["purpose"] = "A line: with # marks\nand another, " + "long " * 60
    document["model"]["representation"] = 3
    study = Study.model_validate(document)
    text = write_study(study, notes={"null": "in mg/dl"})
    assert parse_document(text, Study, "again").digest == study.digest
    assert "# in mg/dl" in text
    assert f"\nname: {study.name}\n" in text


def test_a_feature_stands_on_one_line_however_long():
    document = tiny_study().model_dump(mode="json")
    values = ["a code of many words " * 9, "another: " * 20]
    document["data"]["features"].append({"kind": "category", "column": "long names " * 10, "values": values})
    study = Study.model_validate(document)
    text = write_study(study, notes={"long names " * 10: "in words"})
    lines = [line for line in text.splitlines() if line.startswith("    - {kind: ")]
    assert len(lines) == len(study.data.features)
    assert lines[-1].endswith("]}  # in words")
    assert parse_document(text, Study, "again").digest == study.digest


def test_every_field_of_the_sections_has_a_comment():
    sections = {
        "model": Model,
        "heads": HeadPlan,
        "encoder": EncoderPlan,
        "evaluation": Evaluation,
        "privacy": Privacy,
        "expected": Expected,
    }
    fields = {f"{name}.{field}" for name, section in sections.items() for field in section.model_fields}
    assert fields - set(_COMMENTS) == {"encoder.learning_rate"}
    assert all(name.partition(".")[2] == "" or name in fields for name in _COMMENTS)


def test_a_text_that_nobody_would_read_is_not_written(monkeypatch):
    monkeypatch.setattr(writing, "MAX_BYTES", 1000)
    with pytest.raises(DocumentError, match="list fewer columns or codes"):
        write_study(tiny_study())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.0, "5"),
        (-3.0, "-3"),
        (0.25, "0.25"),
        (999_999.0, "999999"),
        (1e6, "1000000.0"),
        (1e7, "10000000.0"),
        ([1.0], "[1]"),
    ],
)
def test_numbers_are_written_without_a_needless_fraction_up_to_a_million(value, text):
    assert writing._flow(value) == text
