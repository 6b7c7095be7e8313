"""Files that were written to be misread, given to the commands that read a policy, a study or the configuration.

Each is one sentence for each fault, with the file, the field or line and the fix, and exit code 1. What the reader
itself does is tested with it (tests/policies/documents/test_document.py). Here one command says all of the sentences,
and every other goes through the same reader.
"""

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from silo_agent.cli import main
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_document

PLACES = ("check", "explain", "diff old", "diff new", "study", "plan", "agent")
"""Which command reads the hostile file, and as what."""
NUMBERS = {"policy": "epsilon: 4.0", "study": "seed: 1", "agent": "metrics_port: 9444"}
"""A number of each document as it stands in its text."""


def kind_of(place):
    return {"study": "study", "plan": "study", "agent": "agent"}.get(place, "policy")


@pytest.fixture
def hospital(quick_path, homes):
    """Good files: a policy, a study, and a configuration that names them."""
    write_yaml(quick_path / "policy.yaml", policy_document("north-ward"))
    write_yaml(quick_path / "study.yaml", tiny_document())
    (quick_path / "north.csv").write_text("patient\n")
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    document = {"coordinator": "localhost:1", **credential, "policy": "policy.yaml", "state": "state"}
    write_yaml(quick_path / "agent.yaml", {**document, "data": {"tiny": "north.csv"}, "metrics_port": 9444})
    return quick_path


def command(place, hostile, hospital):
    good = {name: hospital / f"{name}.yaml" for name in ("policy", "study", "agent")}
    return {
        "check": ("policy", "check", hostile),
        "explain": ("policy", "explain", hostile),
        "diff old": ("policy", "diff", hostile, good["policy"]),
        "diff new": ("policy", "diff", good["policy"], hostile),
        "study": ("policy", "check", good["policy"], "--study", hostile),
        "plan": ("plan", hostile, "-c", good["agent"]),
        "agent": ("policy", "reload", "-c", hostile),
    }[place]


@pytest.fixture
def place(request):
    return getattr(request, "param", PLACES[0])


everywhere = pytest.mark.parametrize("place", PLACES, indirect=True)


@pytest.fixture
def said(place, hospital, monkeypatch, capsys):
    """What the command says of the file, which it must not take."""

    def run(hostile):
        monkeypatch.setattr(sys, "argv", ["fedward-silo", *map(str, command(place, hostile, hospital))])
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (1, "")
        assert "Traceback" not in err
        assert all(line.isprintable() and str(hostile) in line for line in err.splitlines())
        return err

    return run


@pytest.fixture
def good(place, hospital):
    """A file that the command would take."""
    return hospital / f"{kind_of(place)}.yaml"


def number(place, value):
    """A change of the document: one of its numbers is replaced."""
    old = NUMBERS[kind_of(place)]
    return lambda text: text.replace(old, f"{old.partition(':')[0]}: {value}", 1)


def appended(line):
    return lambda _place: lambda text: f"{text}{line}\n"


def replaced(value):
    return lambda place: number(place, value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (replaced(".nan"), "not a finite decimal number; write one"),
        (replaced(".inf"), "not a finite decimal number; write one"),
        (replaced("-.INF"), "not a finite decimal number; write one"),
        (replaced("1.0e+999"), "not a finite number; write one"),
        (replaced("'nan'"), "field "),
        (replaced("'inf'"), "field "),
        (replaced("-1"), "field "),
        (replaced("true"), "true is not a number; write one"),
        (replaced("[1]"), "field "),
        (replaced("{a: 1}"), "field "),
        (replaced("&a 1"), "anchors and aliases are not allowed; write the value out"),
        (replaced("*a"), "anchors and aliases are not allowed; write the value out"),
        (replaced("!!float 1"), "tags (!) are not allowed; remove it"),
        (replaced("!!python/object/apply:os.abort []"), "tags (!) are not allowed; remove it"),
        (replaced("0x10"), "not a plain decimal number; write one"),
        (replaced("1_0"), "write one"),
        (replaced("9" * 5000), "a number of 5000 digits is no value of any field; write a smaller one"),
        (appended("colour: red"), "field colour: unknown field; remove it or fix its spelling"),
        (appended('"\\e[2Jcolour": red'), "field \\x1b[2Jcolour: unknown field"),
        (appended("<<: {version: 1}"), "merge keys (<<) are not allowed; write the fields out"),
        (appended("version: 1\nversion: 1"), "stands twice; keep one"),
        (appended("\tcolour: red"), "line "),
        (appended("? [a]\n: b"), "a field's name must be a text"),
        (appended("colour: " + "[" * 5000), "nested too deeply; nest them less"),
        (appended("---\nversion: 1"), "another document"),
        (appended("#" * 10_000_000), "larger than 1048576 bytes"),
        (appended("\x00"), "special characters are not allowed"),
        (lambda _: lambda _: "", "must be a mapping of fields to values"),
        (lambda _: lambda _: "- a\n- b\n", "must be a mapping of fields to values"),
        (lambda _: lambda _: "42\n", "must be a mapping of fields to values"),
        (lambda _: lambda _: "{}\n", "this field is missing; add it"),
    ],
)
def test_a_document_that_could_be_misread_is_a_sentence(change, says, place, good, said):
    hostile = good.with_name("hostile.yaml")
    text = change(place)(good.read_text())
    assert text != good.read_text()
    hostile.write_text(text)
    assert says in said(hostile)


@everywhere
def test_every_command_reads_through_the_same_reader(place, good, said, hospital):
    hostile, text = good.with_name("hostile.yaml"), good.read_text()
    for change, says in (
        (number(place, ".nan"), "not a finite decimal number; write one"),
        (number(place, "true"), "true is not a number; write one"),
        (number(place, "!!python/object/apply:os.abort []"), "tags (!) are not allowed; remove it"),
        (appended("colour: red")(place), "field colour: unknown field; remove it or"),
        (appended("version: 1\nversion: 1")(place), "stands twice; keep one"),
        (appended("#" * 10_000_000)(place), "larger than 1048576 bytes"),
        (lambda _: "", "must be a mapping of fields to values"),
    ):
        hostile.write_text(change(text))
        assert says in said(hostile)
    hostile.write_bytes(b"\xff\xfe\x00")
    assert "it is not UTF-8 text; save it as UTF-8" in said(hostile)
    hostile.unlink()
    os.mkfifo(hostile)
    assert "is a pipe or a device; save the text as a file" in said(hostile)
    assert "there is no such file; create it or give its path" in said(hospital / "absent.yaml")


@pytest.mark.parametrize("value", ["0", "-0.0", "-1", "-1.0e-9", "33", "1.0e+308", "'-inf'", "null", "[]", "''"])
def test_no_budget_is_zero_negative_or_without_end(value, said, place, good):
    hostile = good.with_name("hostile.yaml")
    hostile.write_text(number(place, value)(good.read_text()))
    assert re.search(
        r"field budget\.epsilon: (too small; write more than 0|too large; write 32 or less|no (finite )?number)",
        said(hostile),
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe\x00", "it is not UTF-8 text; save it as UTF-8"),
        ("contact: München".encode("latin-1"), "it is not UTF-8 text; save it as UTF-8"),
        ("version: 2".encode("utf-16"), "it is not UTF-8 text; save it as UTF-8"),
        (b"x" * 10_000_000, "larger than 1048576 bytes"),
    ],
)
def test_bytes_that_are_no_text_are_a_sentence(content, says, said, hospital):
    hostile = hospital / "hostile.yaml"
    hostile.write_bytes(content)
    assert says in said(hostile)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Path.mkdir, "cannot be read: Is a directory; fix the path"),
        (lambda path: path.symlink_to(path.parent), "cannot be read: Is a directory; fix the path"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links; fix the path"),
        (lambda path: path.symlink_to("nowhere"), "there is no such file; create it or give its path"),
        (os.mkfifo, "is a pipe or a device; save the text as a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a pipe or a device; save the text as a file"),
        (lambda _: None, "there is no such file; create it or give its path"),
    ],
    ids=["folder", "link to a folder", "link to itself", "link to nothing", "pipe", "device", "nothing"],
)
def test_what_is_no_file_is_a_sentence(make, says, said, hospital):
    hostile = hospital / "hostile.yaml"
    make(hostile)
    assert says in said(hostile)


@everywhere
def test_each_field_of_a_wrong_type_is_named(said, good):
    document, hostile = yaml.safe_load(good.read_text()), good.with_name("hostile.yaml")
    for field in document:
        write_yaml(hostile, {**document, field: [{"a": {}}]})
        assert f"field {field}" in said(hostile), field
