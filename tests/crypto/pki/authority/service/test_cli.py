"""`fedward-authority serve` as a process: it answers, says so, and ends when it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from crypto.pki.authority.asking import PASSPHRASE_VARIABLE
from crypto.pki.joining.link import unverified
from support.online import Online, stamping


@pytest.fixture
def online(tmp_path):
    return Online(tmp_path)


def started(folder, *words):
    program = Path(sys.executable).parent / "fedward-authority"
    environment = {**os.environ, PASSPHRASE_VARIABLE: ""}
    return subprocess.Popen(
        [program, "serve", folder, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_it_serves_until_it_is_told_to_stop(online):
    stamping(online)
    online.publish(days=9)
    process = started(online.issuing, "--host", "localhost", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    try:
        said = json.loads(process.stderr.readline())
        assert (said["event"], said["authority"], said["timestamps"]) == ("serving", "Issuing of tests", True)
        assert unverified(f"https://localhost:{said['port']}") == online.pem
        warned = json.loads(process.stderr.readline())
        assert (warned["level"], "of the authority 'Root of tests' is fresh until" in warned["why"]) == (
            "warning",
            True,
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{said['metrics_port']}/metrics", timeout=60) as page:
            shown = page.read().decode()
        ends = online.authority.certificate.not_valid_after_utc.timestamp()
        assert re.search(r"^fedward_authority_concerns ([0-9.]+)$", shown, re.MULTILINE)[1] == "1.0"
        told = re.search(r"^fedward_authority_certificate_expires_timestamp_seconds (\S+)$", shown, re.MULTILINE)
        assert float(told[1]) == ends
        assert 'fedward_authority_requests_total{path="/authority.pem",status="200"} 1.0' in shown
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert json.loads(process.stderr.read().splitlines()[-1])["event"] == "stopped"
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--host", "localhost", "--listen", "8443"), "--listen is written address:port"),
        (("--host", "localhost", "--metrics", "9445"), "--metrics is written address:port"),
        (("--host", "localhost", "--listen", "127.0.0.1:0", "--metrics", "256.0.0.1:0"), "give another --metrics"),
        (("--host", "localhost", "--listen", "256.0.0.1:0"), "256.0.0.1:0 cannot be served"),
        (("--host", "other.example", "--listen", "127.0.0.1:0"), "for localhost, not for other.example"),
    ],
)
def test_what_cannot_be_served_is_one_line(online, words, why):
    process = started(online.issuing, *words)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert why in said.splitlines()[-1]
