from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from policies.documents.document import MAX_BYTES, Closed, DocumentError, parse_document, read_document
from policies.errors import PolicyError


class Inner(Closed):
    rate: Annotated[float, Field(gt=0)] = 1.0


class Sample(Closed):
    number: float = 0.0
    count: int = 0
    maybe: float | None = None
    threads: Annotated[int, Field(ge=1)] | None = None
    flag: bool = False
    text: str = ""
    codes: tuple[str | int | float | bool, ...] = ()
    inner: Inner = Inner()


def fault(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        parse_document(text, Sample, "sample.yaml")
    message = str(caught.value)
    assert all(line.startswith("sample.yaml: ") for line in message.splitlines())
    return message


def test_a_plain_document_is_read():
    sample = parse_document("number: 1e-5\ncount: 3\ninner: {rate: 0.5}\ncodes: [a, 1, true, 1.5]", Sample, "x")
    assert (sample.number, sample.count, sample.inner.rate) == (1e-5, 3, 0.5)
    assert sample.codes == ("a", 1, True, 1.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("number: 1\nnumber: 2", "stands twice"),
        ("inner: {rate: 1, rate: 2}", "stands twice"),
        ("number: &a 1", "anchors and aliases"),
        ("inner: &a {rate: 1}", "anchors and aliases"),
        ("number: *a", "anchors and aliases"),
        ("inner: {<<: {rate: 1}}", "merge keys"),
        ("text: !!str 1", "tags"),
        ("text: !!python/object/apply:os.system ['true']", "tags"),
        ("text: !own x", "tags"),
        ("colour: red", "field colour: unknown field; remove it"),
        ("inner: {speed: 1}", "field inner.speed: unknown field"),
        ("number: .nan", "not a finite"),
        ("number: .NaN", "not a finite"),
        ("number: .inf", "not a finite"),
        ("number: -.inf", "not a finite"),
        ("number: nan", "field number"),
        ("number: inf", "field number"),
        ("number: '1e999'", "field number"),
        ("number: 1.0e+999", "not a finite number"),
        ("maybe: nan", "field maybe"),
        ("inner: {rate: nan}", "field inner.rate"),
        ("inner: {rate: 0}", "field inner.rate"),
        ("number: true", "true is not a number"),
        ("count: false", "false is not a number"),
        ("maybe: true", "true is not a number"),
        ("threads: true", "true is not a number"),
        ("count: 010", "not a plain decimal"),
        ("count: 0x10", "not a plain decimal"),
        ("count: 1:30", "not a plain decimal"),
        ("number: 1:30.5", "not a finite decimal"),
        ("count: 1_000", "not a plain decimal"),
        ("codes: [no]", "truth value"),
        ("flag: on", "truth value"),
        ("? [a, b]\n: 1", "must be a text"),
        ("1: 2", "field"),
        ("- a\n- b", "must be a mapping"),
        ("", "must be a mapping"),
        ("just words", "must be a mapping"),
        ("number: 1\n---\nnumber: 2", "another document"),
        ("number: [1]", "field number: no number; write one"),
        ("number: {a: 1}", "field number"),
        ("count: 1.5", "field count"),
        ("count: '1.5'", "field count"),
        ("flag: 7", "field flag"),
        ("text: 7", "field text"),
        ("codes: a", "field codes"),
        ("codes: [[a]]", "field codes"),
        ("inner: 7", "field inner: this field has fields of its own"),
        ("inner: [7]", "field inner: this field has fields of its own"),
        ("inner:", "field inner: this field has fields of its own"),
        ("null: 1", "field None: Keys should be strings"),
        ("count: " + "9" * 5000, "a number of 5000 digits is no value of any field"),
        ("count: " + "0" * 5000, f"{'0' * 60}... is not a plain decimal"),
        ('"a\\e[31mb": 1', "field a\\x1b[31mb: unknown field"),
        ('"a\\nsample.yaml: all is well": 1', "field a\\nsample.yaml: all is well: unknown field"),
        ("x" * 100 + ": 1", f"field {'x' * 60}...: unknown field"),
        ('"\\ud800": 1', "unicode"),
        ("text: " + "{a: " * 3000, "nested too deeply; nest them less"),
        ("%YAML 2.0\n---\nnumber: 1", "incompatible"),
        ("\tnumber: 1", "line 1"),
        ("number: [1", "line"),
        ("number: 1\n\tcount: 2", "line"),
        ("text: a\x00b", "special characters"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text, says):
    assert says in fault(text)


def test_dates_stay_text():
    assert parse_document("text: 2026-01-31", Sample, "x").text == "2026-01-31"


def test_faults_name_the_line():
    assert "line 3" in fault("number: 1\ncount: 2\nnumber: 3")


def test_all_schema_faults_are_told_at_once():
    assert len(fault("number: x\ncount: y\ncolour: z").splitlines()) == 3


def test_deep_nesting_is_a_fault_and_not_a_crash():
    assert "nest them less" in fault("text: " + "[" * 20_000)


def test_documents_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Sample().count = 3


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DocumentError, match="there is no such file; create it"):
        read_document(tmp_path / "absent.yaml", Sample)


def test_a_folder_is_named(tmp_path):
    with pytest.raises(DocumentError, match="cannot be read"):
        read_document(tmp_path, Sample)


def test_a_file_that_is_too_large_is_refused_unparsed(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" + "ä".encode() * (MAX_BYTES // 2) + b"\nnumber: 1")
    with pytest.raises(DocumentError, match="larger than"):
        read_document(path, Sample)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(DocumentError, match="is a pipe or a device; save the text as a file"):
            read_document(path, Sample)


@pytest.mark.parametrize(("target", "says"), [(".", "cannot be read"), ("link", "cannot be read"), ("no", "no such")])
def test_a_link_is_what_it_leads_to(tmp_path, target, says):
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(DocumentError, match=says):
        read_document(tmp_path / "link", Sample)
    (tmp_path / "real.yaml").write_text("number: 2")
    (tmp_path / "good").symlink_to("real.yaml")
    assert read_document(tmp_path / "good", Sample).number == 2


def test_a_file_of_the_largest_size_is_read(tmp_path):
    path = tmp_path / "large.yaml"
    text = "number: 1.5\n"
    path.write_text(text + "#" * (MAX_BYTES - len(text)))
    assert read_document(path, Sample).number == 1.5


def test_a_file_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"number: \xff")
    with pytest.raises(DocumentError, match="UTF-8"):
        read_document(path, Sample)


@given(st.text(max_size=60))
def test_no_text_raises_anything_but_the_named_error(text):
    try:
        parse_document(text, Sample, "x")
    except DocumentError as error:
        assert isinstance(error, PolicyError)  # noqa: PT017 - either outcome is right
