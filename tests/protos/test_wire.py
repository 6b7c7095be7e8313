"""The wire's vectors: product and independent checker agree on them, in both directions, from version to version."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from protos import codec
from protos.messages import StudyResults
from protos.v1 import common_pb2, operator_pb2, silo_pb2
from tests.protos import wire_checker
from tests.protos.wire_examples import EXAMPLES, FILE, text, to_wires

VECTORS = json.loads(FILE.read_text(encoding="utf-8"))["vectors"]
by_name = pytest.mark.parametrize("name", EXAMPLES)


def parsed(case):
    """The vector's bytes as the peer reads them."""
    found = [vars(of)[case["message"]] for of in (common_pb2, silo_pb2, operator_pb2) if case["message"] in vars(of)]
    return found[0].FromString(bytes.fromhex(case["bytes"]))


@by_name
def test_a_message_has_the_bytes_of_its_vector(name):
    expected = [(case["message"], case["bytes"]) for case in VECTORS if case["name"] == name]
    wires = to_wires(EXAMPLES[name])
    assert [(wire.DESCRIPTOR.name, wire.SerializeToString(deterministic=True).hex()) for wire in wires] == expected


@by_name
def test_the_bytes_of_a_vector_are_read_as_its_message(name):
    wires = [parsed(case) for case in VECTORS if case["name"] == name]
    kind = type(EXAMPLES[name])
    read = codec.results_from_wire(wires) if kind is StudyResults else codec.from_wire(kind, *wires)
    assert read == EXAMPLES[name]


def test_the_file_is_what_the_examples_give():
    assert FILE.read_text(encoding="utf-8") == text()


def test_the_checker_agrees_and_says_what_does_not_hold(tmp_path):
    checker = [sys.executable, "-I", wire_checker.__file__]
    assert subprocess.run(checker, check=False).returncode == 0
    copy = tmp_path / "wire.json"
    copy.write_text(FILE.read_text(encoding="utf-8").replace("TASK_WAIT", "TASK_SIGN"), encoding="utf-8")
    found = subprocess.run([*checker, copy], check=False, capture_output=True, text=True)
    assert (found.returncode, found.stdout.splitlines()) == (
        1,
        [f"{name} has other bytes" for name in ("nothing to do", "nothing to do, and why")],
    )
