"""Puts an agent together from its configuration. Only this module knows all of the agent's parts."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import start_http_server

from common.systemd import StatusLine, notified
from crypto.entropy import SystemEntropy
from crypto.pki.certificates import Credential
from crypto.pki.joining.renewal import Renewal, Times, link_for
from policies.documents.policy import Policy
from policies.documents.study import Study, parse_study
from policies.errors import LedgerError
from policies.refusals import Refused
from protos.tracing import Spans
from silo_agent.agent import Agent, UnknownDataError
from silo_agent.config import AgentConfig
from silo_agent.data.sources.data_set import DataSet
from silo_agent.data.sources.sql import is_missing
from silo_agent.data.table import Source
from silo_agent.gate import Gate
from silo_agent.learning.device import choose_device, limit_threads
from silo_agent.learning.learner import Learner
from silo_agent.learning.noise.draws import KeyedDraws
from silo_agent.learning.personal.process import Job, wanted_round
from silo_agent.learning.personal.starter import PersonalStarter
from silo_agent.metrics import AgentMetrics
from silo_agent.oversight.asking import Asking
from silo_agent.oversight.asking_figures import AskingFigures
from silo_agent.oversight.decisions import Decisions
from silo_agent.oversight.polling import Answering, Polling
from silo_agent.oversight.stamping import Stamping
from silo_agent.oversight.telling import Telling
from silo_agent.protocol.calls.client import AskedToStop, Client, Heartbeat
from silo_agent.protocol.calls.coordinator_watch import CoordinatorWatch
from silo_agent.protocol.calls.epochs import Epochs
from silo_agent.protocol.ledgers.audit_log import AuditFollower
from silo_agent.protocol.ledgers.known_studies import KnownStudies
from silo_agent.protocol.ledgers.witnessing import Witness, Witnessing
from silo_agent.protocol.session import Session, session_name
from silo_agent.storage.approvals import no_data, require_approved, source_of, upgrade_of
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.keyed.secret import draws_key
from silo_agent.storage.opening import open_state
from silo_agent.storage.retention import Retaining, Retention
from silo_agent.storage.rows import row_key, rows_of
from silo_agent.storage.state import State

log = structlog.get_logger()
HEARTBEAT_SECONDS = 10.0
RENEWAL_SECONDS = 30.0
"""How often the agent looks whether its certificate is to be renewed, and for newer revocation lists."""


def run_agent(config: AgentConfig, *, until_finished: bool = False) -> list[tuple[str, str]]:
    """Run until SIGTERM or SIGINT, or with `until_finished` until a study has ended.

    Returns the studies that ended, each with the reason. Raises what `Gate` raises if the agent cannot start.
    """
    limit_threads(config.threads)
    choose_device(config.device)
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)  # first: the memory of keys lies in it
    credential = config.credential(keeps=True)
    credential.tell_faults(lambda why: log.error("certificates not read", why=why))
    metrics, entropy = AgentMetrics(), SystemEntropy()
    spans = _spans(config, credential)
    state, secret = open_state(config.state, credential, entropy)
    _upgrade(config, state)
    gate = Gate(
        credential,
        config.policy,
        state.files.ledger,
        state,
        metrics,
        require_approved=lambda study, policy: _require_decided(config, decisions, study, policy),
    )
    decisions = Decisions(
        gate.ledger, state.files, credential, secret, lambda study: state.canonical(study) is not None
    )
    stop = _until_told()
    http, http_thread = _serve_metrics(config, metrics, state)
    session = session_name(config.state, credential, entropy)
    client = Client(
        config.coordinator,
        credential,
        session,
        stop,
        lambda up: metrics.connected.set(float(up)),
        epochs=Epochs(state.files.coordinator_epoch),
        proxy=config.proxy,
    )

    def learner(study: Study) -> Learner:
        kept = rows_of(state.files.study(study.digest), credential, entropy)  # before the key is made
        rows = row_key(state.files.study(study.digest), credential, entropy)
        return Learner(
            study,
            DataSet.of(gate.policy, _named(config, study, gate.policy)),
            state.study_folder(study.digest),
            draws=KeyedDraws(draws_key(secret, rows, study.digest)),
            device=config.device,
            kept=kept,
        )

    def job(study: Study) -> Job:
        return Job(
            str(state.study_folder(study.digest)),
            DataSet.of(gate.policy, _source(config, study, state, decisions, gate.policy)),
            config.device,
            config.threads,
            row_key(state.files.study(study.digest), credential, entropy),
        )

    apart = PersonalStarter(job)

    agent = Agent(
        client,
        gate,
        state,
        metrics,
        learners=learner,
        sessions=lambda study: Session.open(
            study, credential, entropy, state.study_folder(study), begun=state.attempt(study) is not None
        ),
        personal=apart.want,
        require_data=lambda study: _source(config, study, state, decisions, gate.policy),
        asking=Asking(state, credential.trust, Telling(state.files, config.notify, credential.identity.name).look),
        spans=spans,
        decided=lambda: _note(decisions, gate.policy),
        entropy=entropy,
        session=session,
        wait=lambda seconds: _wait(stop, seconds),
    )
    retention = Retention(state, gate.policy.retention_days, metrics)
    retention.look()
    retaining = Retaining(retention, stop)
    witnessing = Witnessing(client, Witness(config.state, credential, KnownStudies(state)), stop)
    Polling(
        client, Answering(state.files, credential.trust, credential.identity.name), lambda: gate.policy, stop
    ).start()
    Heartbeat(client, HEARTBEAT_SECONDS, stop, AuditFollower(client, state.files.audit_log, metrics).look).start()
    witnessing.start()
    retaining.start()
    _renew(config, credential, client, metrics, stop)
    log.info("agent starts", silo=credential.identity.name, version=version("fedward"), metrics_port=http.server_port)
    _resume(apart, state)
    try:
        with notified(), suppress(AskedToStop):
            agent.run(stop, until_finished=until_finished)
            if until_finished:
                apart.finish(stop)
    finally:
        log.info("agent stops")
        stop.set()
        apart.stop()
        witnessing.join()
        retaining.join()
        client.close()
        spans.close()
        gate.close()
        state.close()
        _close_metrics(http, http_thread)
    return agent.finished


def _spans(config: AgentConfig, credential: Credential) -> Spans:
    return Spans(config.traces, "fedward-silo", credential.identity.name, lambda why: log.warning("no traces", why=why))


def _until_told() -> threading.Event:
    """What SIGTERM and SIGINT set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _renew(
    config: AgentConfig, credential: Credential, client: Client, metrics: AgentMetrics, stop: threading.Event
) -> None:
    """Keep certificate and lists fresh, the ledger's head timestamped and the coordinator watched, until the stop."""
    watch = CoordinatorWatch(client, credential, config.files.lists, proxy=config.proxy)
    watch.try_to_look()  # before the first call: a coordinator whose key is not known gets nothing
    threading.Thread(target=watch.run, args=(stop,), name="watch", daemon=True).start()
    link = link_for(credential, config.authority_url, config.proxy)
    stamping = Stamping(StateFolder(config.state), credential.trust, link)
    threading.Thread(target=stamping.run, args=(stop,), name="stamping", daemon=True).start()
    line = StatusLine()

    def on_times(times: Times) -> None:
        metrics.tell_times(times)
        line.tell(str(times))

    renewal = Renewal(
        credential,
        config.files,
        link,
        tell=lambda level, text: log.log(getattr(logging, level.upper()), text),
        on_times=on_times,
    )
    if not credential.named:
        renewal.look()  # the root may have named the key since: nobody who has not met this silo accepts it without
    threading.Thread(target=renewal.run, args=(stop, RENEWAL_SECONDS), name="renewal", daemon=True).start()


def _serve_metrics(config: AgentConfig, metrics: AgentMetrics, state: State) -> tuple[WSGIServer, threading.Thread]:
    """Serve the metrics page. Raises OSError with host and port."""
    metrics.registry.register(AskingFigures(state))
    try:
        return start_http_server(config.metrics_port, addr=config.metrics_host, registry=metrics.registry)
    except OSError as error:
        msg = (
            f"the metrics page cannot be served on {config.metrics_host}:{config.metrics_port} ({error.strerror}); give"
            " another metrics_host or metrics_port, or stop the process that uses it"
        )
        raise OSError(msg) from None


def _close_metrics(server: WSGIServer, thread: threading.Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()


def _named(config: AgentConfig, study: Study, policy: Policy) -> Source:
    """Where a study's records should be. Raises `UnknownDataError` if neither an approval nor a rule says so."""
    try:
        source = source_of(config, study, policy)
    except StateError as fault:
        raise UnknownDataError(str(fault)) from None
    if source is None:
        raise UnknownDataError(no_data(study, config))
    return source


def _upgrade(config: AgentConfig, state: State) -> None:
    """Bind what version 0.6 approved to the studies that have begun, and say what is approved no more."""
    upgraded = upgrade_of(config, state, datetime.now(UTC))
    for word, data in upgraded.unbound.items():
        log.warning(
            "an approval of version 0.6 names no study that has begun, and gives nothing; read the study and approve it"
            " (fedward-silo study show, fedward-silo study approve)",
            approved=word,
            data=data,
        )


def _note(decisions: Decisions, policy: Policy) -> None:
    """Write what people decided into the ledger. Until that can be done, no new decision counts."""
    try:
        decisions.note(policy)
    except (StateError, LedgerError) as fault:
        log.error("decisions about studies are not in the ledger yet", why=str(fault))  # noqa: TRY400  # as above


def _require_decided(config: AgentConfig, decisions: Decisions, study: Study, policy: Policy) -> None:
    """Raise `Refused` unless people, or the policy's rule, let the study use data now."""
    require_approved(config, study, policy)
    decisions.require(study, policy)


def _source(config: AgentConfig, study: Study, state: State, decisions: Decisions, policy: Policy) -> Source:
    """Where a study's records are. Raises `UnknownDataError` also if they are not there and were not kept."""
    source = _named(config, study, policy)
    try:
        fault = decisions.fault(study, policy)
    except StateError as error:
        raise UnknownDataError(str(error)) from None
    if fault:
        raise UnknownDataError(fault)
    kept = study.data.image is None and state.files.study(study.digest).rows.exists()
    gone = None if kept else is_missing(source)
    if gone is not None:
        msg = f"the data of the study {study.name!r} are not there: {gone}; fix data or databases in agent.yaml"
        raise UnknownDataError(msg)
    return source


def _wait(stop: threading.Event, seconds: float) -> None:
    if stop.wait(seconds):
        raise AskedToStop


def _resume(apart: PersonalStarter, state: State) -> None:
    """Go on with the personal models that an agent before this one left untrained, also of studies that are over."""
    for digest, *_ in state.studies():
        wanted = wanted_round(state.files.study(digest))
        canonical = state.canonical(digest)
        if wanted and canonical is not None:
            try:
                apart.want(parse_study(canonical, digest), wanted)
            except (ValueError, Refused) as fault:
                log.warning("personal model: the study cannot be read", study=digest[:12], why=str(fault))
