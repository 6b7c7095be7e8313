"""Each check of the report to share, where it fails."""

import re
import shutil
import socket
import ssl
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import grpc
import pytest
from cryptography.hazmat.primitives import serialization

from crypto.errors import CertificateError
from crypto.pki.chain import Bundle
from crypto.pki.revocation import RevocationLists
from crypto.pki.standing import CertificateStanding
from policies.documents.study import load_study
from policies.ledger.chain import genesis_row, next_entry
from policies.ledger.cosign import CosignatureFile, checkpoint
from policies.ledger.events import Debit, EntryRef
from policies.ledger.ledger import Ledger
from policies.plan.cost import Cost
from policies.plan.release import plan
from silo_agent.cli.preflight import public_checks
from silo_agent.cli.preflight.findings import Finding, Status
from silo_agent.config import AgentConfig
from silo_agent.learning.device import describe_device
from silo_agent.protocol.calls.client import CallRefused, CoordinatorGreeting
from support.cosigners import cosigned
from support.ledgers import NORTH
from support.online import Online
from support.online import serving as serving_authority


@pytest.fixture
def subject(study_file, configure):
    def make(**changes):
        settings = AgentConfig.load(configure(**changes))
        return public_checks.CheckedSilo(load_study(study_file), settings, public_checks.load_credential(settings)[0])

    return make


def found(subject):
    return {one.check: one for one in public_checks.network(subject)}


def test_the_way_to_a_coordinator_that_serves_is_free(subject, serving):
    checks = found(subject())
    assert {one.status for one in checks.values()} == {Status.OK}
    assert f"localhost:{serving.port} is 127.0.0.1 port {serving.port}" in checks["reachability"].text
    assert "coordinator/serving-hub" in checks["TLS"].text


def test_a_name_that_nobody_knows_is_said(subject):
    checks = found(subject(coordinator="no-such-host.invalid:443"))
    assert "the name no-such-host.invalid is not known here" in checks.pop("reachability").text
    assert {(one.status, one.text) for one in checks.values()} == {(Status.SKIPPED, "the coordinator is not reached")}
    assert list(checks) == ["TLS", "coordinator", "clock"]


def test_the_time_that_the_connection_takes_is_told(subject, monkeypatch):
    clock = SimpleNamespace(monotonic=iter([10.0, 12.5]).__next__)
    monkeypatch.setattr(public_checks, "time", clock)
    assert public_checks._reach(subject().settings).text.endswith(", reached in 2500 ms")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (OSError(111, "Connection refused"), "Connection refused"),
        (TimeoutError("timed out"), "timed out"),
        (OverflowError("too large"), "too large"),
    ],
)
def test_why_an_address_cannot_be_reached_is_said(monkeypatch, fault, why):
    def fail(*_):
        raise fault

    monkeypatch.setattr(public_checks.socket, "create_connection", fail)
    with pytest.raises(OSError, match="cannot be reached") as refused:
        public_checks._connect("localhost:1", "coordinator")
    assert str(refused.value).startswith(f"localhost:1 cannot be reached ({why}); check that the coordinator runs")


@pytest.mark.parametrize("fault", [TimeoutError, OSError, KeyboardInterrupt])
def test_a_proxy_that_does_not_connect_leaves_no_connection(monkeypatch, fault):
    def fail(*_):
        raise fault

    here, there = socket.socketpair()
    monkeypatch.setattr(public_checks, "_connect", lambda *_: here)
    monkeypatch.setattr(public_checks, "_ask_proxy", fail)
    with there, pytest.raises((OSError, KeyboardInterrupt)):
        public_checks._dial(SimpleNamespace(proxy="http://here:1", coordinator="there:2"))
    assert here.fileno() == -1


def test_another_consortiums_coordinator_is_refused_by_its_certificate(subject, foreign_authority, tmp_path):
    home = foreign_authority.credential("silo", "far")
    files = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
    checks = found(subject(**files))
    assert checks["TLS"].status is Status.FAILS
    assert "compare authority.pem with the coordinator's" in checks["TLS"].text
    assert {checks[name].text for name in ("coordinator", "clock")} == {"TLS fails"}


def test_an_address_that_the_certificate_does_not_name_is_refused(subject, serving):
    checks = found(subject(coordinator=f"127.0.0.2:{serving.port}"))
    assert "127.0.0.2" in checks["TLS"].text or checks["reachability"].status is Status.FAILS


def test_a_proxy_is_used_for_every_step(subject, serving, proxy):
    checks = found(subject(proxy=proxy.url))
    assert {one.status for one in checks.values()} == {Status.OK}
    assert f"behind the proxy {proxy.url}" in checks["reachability"].text
    assert len(proxy.asked) == 3
    assert {line.split()[0] for line in proxy.asked} == {"CONNECT"}


def test_only_agent_yaml_names_a_proxy(subject, proxy, monkeypatch):
    proxy.refusal = b"HTTP/1.1 403 Forbidden\r\n\r\n"
    monkeypatch.setenv("https_proxy", proxy.url)
    assert {one.status for one in found(subject()).values()} == {Status.OK}
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "HTTP/1.1 403 Forbidden"),
        (b"HTTP/1.1 200", "HTTP/1.1 200"),
        (b"\r\n\r\n", "no answer"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "HTTP/1.1 407 Proxy Authentication Required"),
    ],
)
def test_a_proxy_that_does_not_connect_is_quoted(subject, proxy, answer, said):
    proxy.refusal = answer
    finding = found(subject(proxy=proxy.url))["reachability"]
    assert finding.status is Status.FAILS
    assert f" ({said}); ask its administrators" in finding.text
    assert ("without a password" in finding.text) == ("407" in said)


def test_a_proxy_that_never_answers_is_named(subject, monkeypatch):
    monkeypatch.setattr(public_checks, "SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert f"the proxy {url} does not answer" in found(subject(proxy=url))["reachability"].text


def test_a_proxy_that_answers_without_end_is_not_heard_out():
    answer = Mock(recv=Mock(return_value=b"x"))
    with pytest.raises(OSError, match=r"the proxy does not connect to there:2 \(x{100}\); ask"):
        public_checks._ask_proxy(answer, "there:2")
    assert answer.recv.call_count == 16_384


def test_nothing_is_read_of_what_follows_the_proxys_answer():
    """It is the coordinator's, and belongs to TLS."""
    answer = b"HTTP/1.1 200 OK\r\nVia: you\r\n\r\n"
    assert len(answer) % 2
    here, there = socket.socketpair()
    with here, there:
        there.sendall(answer + b"\x16rest")
        public_checks._ask_proxy(here, "there:2")
        assert here.recv(5) == b"\x16rest"


def test_a_coordinator_that_refuses_this_silo_is_the_finding(subject, monkeypatch):
    def refuse(*_, **__):
        raise CallRefused(grpc.StatusCode.PERMISSION_DENIED, "unknown here")

    monkeypatch.setattr(public_checks, "greet", refuse)
    checks = found(subject())
    assert checks["coordinator"].status is Status.FAILS
    assert "unknown here" in checks["coordinator"].text
    assert (checks["clock"].status, checks["clock"].text) == (Status.SKIPPED, "the coordinator does not answer")


def test_a_proxy_that_is_not_there_is_named(subject):
    finding = found(subject(proxy="http://localhost:1"))["reachability"]
    assert "localhost:1 cannot be reached" in finding.text
    assert "check that the proxy runs" in finding.text


@pytest.fixture
def listener(authority):
    """A port that answers otherwise than a coordinator: not at all in TLS, or without HTTP/2."""
    made = []

    def listen(kind):
        context, open_ones = None, []
        if kind == "no HTTP/2":
            home = authority.credential("coordinator", "plain")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(home / "certificate.pem", home / "key.pem")
        server = socket.create_server(("127.0.0.1", 0))
        made.append(server)

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                try:
                    if kind == "silent":
                        open_ones.append(connection)
                        continue
                    with connection:
                        if context is None:
                            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        else:
                            context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    continue

        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1]

    yield listen
    for server in made:
        server.close()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("no TLS", r"the TLS handshake fails \([A-Z_]+\); something on the way may answer"),
        ("silent", r"the TLS handshake fails \(.*timed out\); something on the way may answer"),
        ("no HTTP/2", "a proxy that opens TLS may be on the way"),
    ],
)
def test_what_stands_in_the_coordinators_place_is_noticed(subject, listener, monkeypatch, kind, text):
    monkeypatch.setattr(public_checks, "SECONDS", 2.0)
    checks = found(subject(coordinator=f"localhost:{listener(kind)}"))
    assert checks["TLS"].status is Status.FAILS
    assert re.search(text, checks["TLS"].text)
    assert checks["coordinator"].status is Status.SKIPPED


def test_a_server_of_the_consortium_that_is_no_coordinator_is_named_by_its_address(subject, monkeypatch):
    def identify(*_, role):
        msg = f"it is no {role}"
        raise CertificateError(msg)

    monkeypatch.setattr(public_checks.Trust, "identify", identify)
    made = subject()
    text = found(made)["TLS"].text
    assert f"what answers at {made.settings.coordinator[0]} is not the consortium's coordinator, or its" in text
    assert "(it is no" in text


@pytest.mark.parametrize(
    ("ahead", "within", "status"),
    [
        (0.0, 0.1, Status.OK),
        (-31.0, 2.0, Status.OK),
        (31.0, 0.5, Status.LOOK),
        (-301.0, 0.5, Status.FAILS),
        (301.0, 2.0, Status.LOOK),
        (None, 0.1, Status.LOOK),
        (0.0, None, Status.LOOK),
    ],
)
def test_clocks_are_judged_by_what_the_call_can_tell(ahead, within, status):
    assert public_checks._clock(CoordinatorGreeting("1", ahead, within)).status is status


def test_the_clock_says_which_way(monkeypatch):
    assert "400.0 s behind the coordinator's" in public_checks._clock(CoordinatorGreeting("1", 400.0, 0.1)).text
    assert "400.0 s ahead of the coordinator's" in public_checks._clock(CoordinatorGreeting("1", -400.0, 0.1)).text
    assert (
        "0.5 s behind the coordinator's, to within 0.10 s"
        in public_checks._clock(CoordinatorGreeting("1", 0.5, 0.1)).text
    )
    assert "0.5 s ahead of the" in public_checks._clock(CoordinatorGreeting("1", -0.5, 0.1)).text


def test_a_certificate_that_ends_soon_or_has_ended_is_said(configure, authority):
    for name, days, status in (("early", 20, Status.OK), ("soon", 5, Status.LOOK), ("over", -1, Status.FAILS)):
        home = authority.credential("silo", name, period=(timedelta(days=-30), timedelta(days=days)))
        files = {part: home / f"{part}.pem" for part in ("certificate", "key", "authority")}
        settings = AgentConfig.model_construct(**files, state=home)
        credential, finding = public_checks.load_credential(settings)
        assert finding.status is status, finding.text
        assert (credential is None) == (status is Status.FAILS)
        assert (" (4 days); have it renewed; key and authority fit" in finding.text) == (name == "soon")


@pytest.mark.parametrize(
    ("hours", "late", "fading"), [(1, False, False), (36, False, True), (111, False, True), (113, True, True)]
)
def test_a_certificate_or_a_list_that_should_have_been_made_anew_is_said(tmp_path, monkeypatch, hours, late, fading):
    """A certificate of a week is renewed after a third, and late after two; a list of two days is made daily."""
    online = Online(tmp_path)
    home = online.enrol("silo", "north")
    files = {part: home / f"{part}.pem" for part in ("certificate", "key", "authority")}
    settings = AgentConfig.model_construct(**files, state=home, authority_url="https://authority")
    now = datetime.now(UTC) + timedelta(hours=hours)
    monkeypatch.setattr(public_checks, "datetime", SimpleNamespace(now=lambda _: now))
    _, finding = public_checks.load_credential(settings)
    assert finding.status is (Status.LOOK if late or fading else Status.OK)
    assert ("; it should have been renewed, see that https://authority answers; key" in finding.text) == late
    assert ("; the keeper of 'Issuing of tests' should have made its next list" in finding.text) == fading


def test_a_key_of_another_certificate_skips_the_network_and_the_policy_is_judged_nevertheless(subject, homes):
    made = subject(key=str(homes["south"] / "key.pem"))
    assert (made.credential, made.silo) == (None, "")
    assert public_checks.policy(made).status is Status.OK
    checks = found(made)
    assert checks.pop("reachability").status is Status.OK
    assert {one.text for one in checks.values()} == {"the certificate fails"}


def test_a_key_may_have_a_passphrase(subject, homes, tmp_path):
    key = serialization.load_pem_private_key((homes["north"] / "key.pem").read_bytes(), None)
    secret, file = tmp_path / "passphrase", tmp_path / "key.pem"
    secret.write_text("one horse\n")
    protection = serialization.BestAvailableEncryption(b"one horse")
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection))
    for path in (secret, file):
        path.chmod(0o600)
    checks = found(subject(key=str(file), key_passphrase=str(secret)))
    assert {one.status for one in checks.values()} == {Status.OK}


@pytest.mark.parametrize("named", [True, False])
def test_the_authoritys_newest_list_counts_before_the_one_on_the_disk(tmp_path, named):
    """A hospital looks before the root has named its key, too: its own key is known to it."""
    online = Online(tmp_path)
    home = online.enrol("silo", "north", named=named)
    files = {part: home / f"{part}.pem" for part in ("certificate", "key", "authority")}
    kept = (home / "crls.pem").read_bytes()
    with serving_authority(online) as url:
        settings = AgentConfig.model_construct(**files, state=home, authority_url=url)
        newest, asked = public_checks.ask_authority(settings)
    _, refused = public_checks.ask_authority(settings)
    assert asked.status is Status.OK
    assert f"{url} cannot be reached" in refused.text
    assert public_checks.load_credential(settings, newest)[1].status is Status.OK
    online.authority.revoke("fedward://silo/north", None, datetime.now(UTC), "left")
    bundle = Bundle.read(online.pem)
    newest = CertificateStanding(bundle, RevocationLists.read(online.authority.lists_pem(None), bundle))
    assert public_checks.load_credential(settings)[1].status is Status.OK
    assert "was revoked" in public_checks.load_credential(settings, newest)[1].text
    assert (home / "crls.pem").read_bytes() == kept


def test_without_a_study_its_checks_are_skipped(subject):
    made = replace(subject(), given=None)
    with pytest.raises(public_checks.Skipped, match="the study fails"):
        _ = made.study


def test_a_study_that_cannot_be_read_is_the_finding(study_file, tmp_path):
    study_file.write_text("name: [tiny\n")
    for file, said in ((study_file, "study.yaml: line 2"), (tmp_path / "none.yaml", "none.yaml")):
        study, finding = public_checks.read_study(file)
        assert (study, finding.check, finding.status) == (None, "study", Status.FAILS)
        assert said in finding.text


def test_what_a_check_cannot_look_at_is_skipped_and_what_it_finds_is_said():
    def skip():
        raise public_checks.Skipped("the study fails")  # noqa: EM101, TRY003  # the whole text

    def fail():
        raise OSError(13, "Permission denied", "/here")

    assert public_checks.guarded("disk", skip) == Finding("disk", Status.SKIPPED, "the study fails")
    failed = public_checks.guarded("disk", fail)
    assert (failed.check, failed.status) == ("disk", Status.FAILS)
    assert "Permission denied" in failed.text


def test_an_authority_that_the_system_does_not_reach_is_said(monkeypatch):
    def fail(*_):
        raise OSError(113, "No route to host")

    monkeypatch.setattr(public_checks, "look", fail)
    settings = AgentConfig.model_construct(authority=None, authority_url="https://far", proxy=None)
    standing, finding = public_checks.ask_authority(settings)
    assert (standing, finding.check, finding.status) == (None, "authority", Status.FAILS)
    assert "No route to host" in finding.text


def test_without_a_ledger_nothing_was_charged(subject):
    made = subject()
    made.ledger.unlink()
    assert made.entries() == ()


def test_a_policy_of_another_data_set_than_the_certificates_is_one_reason(subject, homes):
    files = {name: str(homes["south"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    finding = public_checks.policy(subject(**files))
    assert finding.status is Status.FAILS
    assert "not for the data set north-ward" in finding.text


def test_what_the_policy_refuses_is_the_finding_and_it_is_asked_for_this_silo(subject):
    made = subject()
    assert made.silo in made.study.silos
    others = replace(made, given=made.study.model_copy(update={"silos": ("east", "polar", "west")}))
    finding = public_checks.policy(others)
    assert finding.status is Status.FAILS
    assert re.search(rf"^- .*{made.silo}", finding.text)


def test_what_other_studies_spent_counts_and_what_this_one_spent_does_not(subject):
    made = subject()
    costs = plan(made.study).round_costs(0)
    with Ledger.open(made.ledger, NORTH, budget_epsilon=32.0) as ledger:
        ledger.put_into_force(made.policy().digest, 32.0)
        ledger.charge(Debit(made.study.digest, made.policy().digest, 0, 1, costs))
        assert list(public_checks._spent(made.entries(), made.study.digest)) == []
        assert len(list(public_checks._spent(made.entries(), "5" * 64))) == len(costs)
        ledger.charge(Debit("5" * 64, made.policy().digest, 0, 1, {"counts": Cost("training", 1.0, 400.0, 1)}))
    text = f"policy {made.policy().digest[:12]} takes the study; 1 charges of others stand"
    assert public_checks.policy(made) == Finding("policy", Status.OK, text)
    assert made.silo == "north"


def test_a_study_that_needs_more_than_the_machine_has_fails(subject, monkeypatch):
    made, text = subject(), "the study may need {:,} MiB; this machine (or its limit) has {:,} MiB"
    needs = public_checks.memory.needed(made.study).total
    for total, status in ((needs - 1, Status.FAILS), (needs, Status.OK), (needs + 1, Status.OK)):
        monkeypatch.setattr(public_checks, "machine_bytes", lambda total=total: total)
        finding = public_checks.machine_memory(made)
        assert (finding.check, finding.status) == ("memory", status)
        assert finding.text.startswith(text.format(-(-needs // 2**20), total // 2**20))


@pytest.mark.parametrize(("needs", "told"), [(1 << 20, "1"), ((1 << 20) + 1, "2"), (3000 << 20, "3,000")])
def test_what_the_study_takes_on_the_disk_is_told_in_whole_mebibytes(subject, monkeypatch, needs, told):
    monkeypatch.setattr(public_checks.disk, "needed", lambda _: needs)
    text = f"the study takes up to {told} MiB in the state folder"
    assert public_checks.disk_need(subject()) == Finding("disk needed", Status.OK, text)


def test_the_device_is_described(subject):
    made = subject(threads=1)
    assert public_checks.device(made) == Finding("device", Status.OK, describe_device("cpu"))


def test_a_machines_memory_is_its_pages(monkeypatch, tmp_path):
    monkeypatch.setattr(public_checks, "_CGROUP", tmp_path / "absent")
    monkeypatch.setattr(public_checks.os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.get)
    assert public_checks.machine_bytes() == 4_096_000


def test_a_control_groups_limit_counts(monkeypatch, tmp_path):
    whole = public_checks.machine_bytes()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(public_checks, "_CGROUP", limit)
    limit.write_text("1048576\n")
    assert public_checks.machine_bytes() == 1 << 20
    limit.write_text("max\n")
    assert public_checks.machine_bytes() >= whole


def test_a_ledger_that_lost_what_others_cosigned_fails(subject):
    made = subject()
    debit = Debit(made.study.digest, "5" * 64, 0, 1, {"heads": Cost("training", 1.0, 40.0, 1)})
    entry = next_entry(EntryRef(0, genesis_row(NORTH)[2]), debit, "2026-11-24T08:00:00+00:00", 0.1)
    witness = made.credential
    CosignatureFile(made.ledger).keep([cosigned(checkpoint("north", NORTH, [entry], entry.at), witness, witness)])
    finding = public_checks.guarded("ledger", lambda: public_checks.ledger(made))
    assert finding.status is Status.FAILS
    assert "older copy" in finding.text
    assert not any(letter.isdigit() for letter in finding.text)


def test_a_ledger_that_was_altered_fails(subject):
    made = subject()
    shutil.copy(made.settings.policy, made.ledger)
    assert public_checks.guarded("ledger", lambda: public_checks.ledger(made)).status is Status.FAILS
