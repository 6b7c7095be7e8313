"""gRPC's own lines become log entries; everything else that is written to stderr comes out as it was."""

import os
import subprocess
import sys

import pytest

from protos.core_log import CoreLine, parse

FAILED = (
    "I1123 15:21:21.236763   23376 ssl_transport_security.cc:2563] Handshake failed with error SSL_ERROR_SSL:"
    " error:100000c0:SSL routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE"
)
PROGRAM = """
import os, sys
from protos.core_log import diverted

print("before", file=sys.stderr, flush=True)
with diverted() as lines:
    if sys.argv[1] == "told":
        lines.tell(lambda line: print("told", line.level, line.where, file=sys.stderr))
    os.write(2, b"I1123 15:21:21.236763   23376 ssl.cc:2563] Handshake failed with x\\n")
    os.write(2, b"another library, \\xff\\n")
    print("own", file=sys.stderr)
print("after", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (FAILED, CoreLine("info", "ssl_transport_security.cc:2563", FAILED.partition("] ")[2])),
        ("E0101 00:00:00.000001 1 a.cc:1] x", CoreLine("error", "a.cc:1", "x")),
        ("W0101 00:00:00.000001 1 a.cc:1] " + "x" * 600, CoreLine("warning", "a.cc:1", "x" * 500)),
        ('{"event": "charged"}', None),
        ("Traceback (most recent call last):", None),
    ],
)
def test_a_line_is_grpcs_or_somebody_elses(line, wanted):
    found = parse(line)
    assert found == wanted
    assert found is None or found.failed_handshake == ("Handshake" in line)


@pytest.mark.parametrize("way", ["told", "untold"])
def test_the_process_loses_no_line(way):
    done = subprocess.run([sys.executable, "-c", PROGRAM, way], capture_output=True, check=True, env=os.environ)
    lines = done.stderr.splitlines()
    assert (lines[0], lines[-1]) == (b"before", b"after")
    told = [b"told info ssl.cc:2563"] if way == "told" else []
    assert sorted(lines[1:-1]) == sorted([*told, b"own", b"another library, \xff"])
