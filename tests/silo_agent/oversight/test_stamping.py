"""The ledger's head and exports are timestamped over real HTTPS, and what the stamps show years later."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from crypto.errors import CertificateError
from crypto.pki.authority import root
from crypto.pki.joining.link import Link
from crypto.pki.joining.renewal import link_for
from policies.errors import LedgerRolledBackError
from policies.ledger.cosign import CosignatureFile
from policies.ledger.ledger import Ledger, read_history
from silo_agent.cli import main
from silo_agent.config import AgentConfig
from silo_agent.oversight.audit import audit
from silo_agent.oversight.signing import read_signed, stamp_beside
from silo_agent.oversight.stamping import Stamping, stamped_heads, time_of
from silo_agent.storage.folders import StateFolder
from support.cosigners import cosigned
from support.ledgers import NORTH
from support.online import Online, serving, stamping
from support.small_cohort import policy_document, write_yaml

TODAY = datetime.now(UTC).date()


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    return Online(tmp_path_factory.mktemp("online"), days=4000)


@pytest.fixture(scope="module")
def url(online):
    with serving(online, stamping(online)) as url:
        yield url


@pytest.fixture
def agent(online, url, tmp_path):
    home = online.enrol("silo", "north", home=tmp_path / "silo", data_set="north-ward")
    online.bring_lists(home)
    write_yaml(home / "policy.yaml", policy_document("north-ward"))
    (home / "state").mkdir()
    Ledger.create(home / "state" / "ledger.sqlite3", NORTH)
    pems = {name: f"{name}.pem" for name in ("certificate", "key", "authority")}
    config = {"coordinator": "localhost:1", "authority_url": url, **pems, "policy": "policy.yaml", "state": "state"}
    return write_yaml(home / "agent.yaml", {**config, "data": {}})


@pytest.fixture
def parts(agent):
    settings = AgentConfig.load(agent)
    credential = settings.credential()
    return StateFolder(settings.state), credential.trust, link_for(credential, settings.authority_url)


def ledger(*arguments):
    return CliRunner().invoke(main.app, ["ledger", *map(str, arguments)])


def test_a_head_that_others_know_is_stamped_once_a_day_and_verify_says_up_to_where(agent, parts, coordinator):
    files, trust, link = parts
    today, asked = [TODAY], []
    stamping = Stamping(files, trust, lambda: asked.append(1) or link(), clock=lambda: today[0])
    for _ in range(3):
        stamping.look()
    assert (len(asked), len(files.stamps())) == (1, 1)
    with Ledger.open(files.ledger, NORTH, budget_epsilon=4.0) as opened:
        opened.note("refresh", "case 1")
        stated = opened.checkpoint("north")
        opened.note("refresh", "case 2")
    today[0] += timedelta(days=1)
    stamping.look()
    given = cosigned(stated, coordinator, AgentConfig.load(agent).credential())
    CosignatureFile(files.ledger).keep([replace(given, signer="fedward://coordinator/hub")])
    today[0] += timedelta(days=1)
    stamping.look()
    heads = stamped_heads(files, *read_history(files.ledger), trust)
    assert [one.head.sequence for one in heads] == [0, 0, 1], "not what the hospital alone knows"
    said = ledger("verify", "-c", agent).output
    assert f"up to entry 1 timestamped by the authority on {TODAY}" in said


def test_a_stamp_that_is_not_of_this_ledger_is_found(agent, parts):
    files, trust, link = parts
    Stamping(files, trust, link).look()
    (path,) = files.stamps()
    content = json.loads(path.read_text())
    genesis, entries = read_history(files.ledger)
    path.write_text(json.dumps({**content, "hash": "0" * 64}))
    with pytest.raises(CertificateError, match="not of these bytes"):
        stamped_heads(files, genesis, entries, trust)
    path.write_text("{}")
    with pytest.raises(CertificateError, match="is no stamp of a head; move it away"):
        stamped_heads(files, genesis, entries, trust)
    path.write_text(json.dumps(content))
    files.ledger.unlink()
    other = replace(NORTH, delta=1e-6)
    Ledger.create(files.ledger, other)
    with pytest.raises(LedgerRolledBackError):
        stamped_heads(files, *read_history(files.ledger), trust)


def test_a_stamp_of_a_root_that_was_taken_out_binds_the_ledger_and_is_told(agent, parts, tmp_path):
    files, trust, link = parts
    Stamping(files, trust, link).look()
    other = tmp_path / "other"
    root.init(other, "Another", 10)
    said = ledger("verify", "-c", agent, "--authority", other / "authority.pem")
    assert "1 timestamps are of a root that authority.pem does not hold, and are not checked" in said.output
    files.ledger.unlink()
    Ledger.create(files.ledger, replace(NORTH, delta=1e-6))
    refused = ledger("verify", "-c", agent, "--authority", other / "authority.pem")
    assert isinstance(refused.exception, LedgerRolledBackError)


def test_an_authority_that_does_not_stamp_stops_nothing_and_is_told_once(online, parts):
    files, trust, _ = parts
    with serving(online) as without, capture_logs() as logs:
        credential = Stamping(files, trust, lambda: link_of(without, trust), clock=lambda: date(2026, 1, 1))
        for _ in range(2):
            credential.look()
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert "makes no timestamps" in logs[0]["why"]
    assert not files.stamps()
    Stamping(files, trust, None).look()


def link_of(url, trust):
    return Link(url, trust.bundle.roots_pem)


def test_a_stamped_export_shows_how_old_it_is_after_its_certificate_has_ended(agent, tmp_path):
    out, home = tmp_path / "ledger.json", agent.parent
    done = ledger("export", "-c", agent, "--format", "json", "--out", out)
    assert "ledger.json.sig.tsr: timestamped on" in done.output
    verify = ("verify", "--export", out, "--authority", home / "authority.pem")
    assert "timestamped by the authority on" in ledger(*verify).output
    content, detached, trust = read_signed(out, home / "authority.pem")
    beside = stamp_beside(tmp_path / "ledger.json.sig")
    known = time_of(beside.read_bytes(), (tmp_path / "ledger.json.sig").read_bytes(), trust)
    ends, later = known + timedelta(days=8), known + timedelta(days=9)
    found = audit(content, detached, trust, now=later, known=known)
    assert (found.signer.known, found.signer.expired < later) == (known, True)
    decade = known + timedelta(days=3650)
    assert audit(content, detached, trust, now=decade, known=known).signer == found.signer, "whatever has ended since"
    assert audit(content, detached, trust, now=later).signer.known is None
    assert audit(content, detached, trust, now=later, known=ends).signer.known is None, "stamped when it had ended"
    with pytest.raises(CertificateError, match=r"but its timestamp is of .*, before"):
        audit(content, detached, trust, now=later, known=known - timedelta(days=1))


def test_a_stamp_that_was_changed_refuses_the_export(agent, tmp_path):
    out = tmp_path / "ledger.csv"
    ledger("export", "-c", agent, "--format", "csv", "--out", out)
    beside = tmp_path / "ledger.csv.sig.tsr"
    beside.write_bytes(beside.read_bytes()[:-1])
    done = ledger("verify", "--export", out, "--authority", agent.parent / "authority.pem")
    assert isinstance(done.exception, CertificateError)


def test_a_fault_that_nobody_foresaw_does_not_end_the_stamps(parts):
    files, trust, link = parts
    stop, looks = threading.Event(), Stamping(files, trust, link)
    looks.look = lambda: stop.set() or 1 / 0
    with capture_logs() as logs:
        looks.run(stop)
    assert [one["fault"] for one in logs] == ["ZeroDivisionError"]
