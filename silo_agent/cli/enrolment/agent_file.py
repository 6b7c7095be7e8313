"""What `fedward-silo enrol` writes: an `agent.yaml` that lacks only the data."""

from __future__ import annotations

import re
from pathlib import Path

from crypto.errors import EnrolmentError
from crypto.pki.joining.enrol import Enrolled
from policies.documents.document import ADDRESS
from silo_agent.config import PROXY


def checked(coordinator: str | None, proxy: str | None) -> str:
    """Return the coordinator's address. Raises `EnrolmentError` unless it and the proxy are what agent.yaml takes."""
    faults = []
    if coordinator is None or not re.fullmatch(ADDRESS, coordinator):
        faults.append("give the coordinator with --coordinator host:port")
    if proxy is not None and not re.fullmatch(PROXY, proxy):
        faults.append("--proxy is written http://host:port")
    if faults or coordinator is None:
        raise EnrolmentError("; ".join(faults))
    return coordinator


def agent_text(coordinator: str, done: Enrolled, proxy: str | None, key_passphrase: Path | None = None) -> str:
    """Return the text of agent.yaml for a silo that was just certified."""
    secret = "" if key_passphrase is None else f"key_passphrase: {key_passphrase.absolute()}\n"
    through = "" if proxy is None else f"proxy: {proxy}\n"
    return f"""# The agent of {done.subject.identity.name}, for the data set {done.subject.data_set}.
coordinator: {coordinator}
{through}certificate: certificate.pem
key: key.pem
{secret}authority: authority.pem
authority_url: {done.url}    # certificate and revocation lists are renewed from here
policy: policy.yaml         # written by the data-protection officer: fedward-silo policy new
state: state                # ledger, models, outbox
data: {{}}                    # the file of each study, by the study's name: {{exam: /data/exam.csv}}; see docs/data.md
metrics_port: 9444
"""
