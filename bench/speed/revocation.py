"""How long a revoked silo goes on: from `fedward-authority revoke` to the coordinator's first refusal.

A real issuing authority and a real coordinator, each a process, on loopback. A silo calls every tenth of a second. It
is revoked, and the seconds until a call is refused are counted.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import grpc
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from bench.table import Criterion, judge
from crypto.pki.authority import issuing, root
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.joining.enrol import enrol
from crypto.pki.joining.renewal import Files, load
from crypto.pki.known_keys import PEERS_FILE
from crypto.pki.reading import key_fingerprint, parse_certificate
from crypto.pki.tls import channel_credentials
from deploy.local.processes import run, script
from protos.messages import PROTOCOL
from protos.v1 import silo_pb2, silo_pb2_grpc

WANTED = 5.0
RUNS = 5
SECRET = {"FEDWARD_AUTHORITY_PASSPHRASE": ""}


def main() -> int:
    """Revoke some silos, and judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=RUNS)
    runs = arguments.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="fedward-revocation-") as folder:
        seconds = measure(Path(folder), runs)
    worst = max(seconds)
    figures = [Criterion(f"slowest of {runs} revocations", f"< {WANTED:g} s", f"{worst:.1f} s", worst < WANTED)]
    return judge("revocation", figures, {"seconds": seconds})


def measure(folder: Path, runs: int) -> list[float]:
    """Seconds of each revocation."""
    root.init(folder / "root", "Root", 30)
    request = issuing.prepare(folder / "issuing", "Online")
    bundle = root.delegate(folder / "root", request, days=20, hosts=["localhost"])
    (folder / "issuing" / issuing.BUNDLE_FILE).write_bytes(bundle)
    (folder / "issuing" / issuing.ROOT_LISTS_FILE).write_bytes(root.publish(folder / "root", 20))
    ports = {name: _free_port() for name in ("authority", "coordinator")}
    url = f"https://localhost:{ports['authority']}"
    with ExitStack() as ends:
        listen = f"127.0.0.1:{ports['authority']}"
        online = ("serve", str(folder / "issuing"), "--host", "localhost", "--listen", listen)
        _start(ends, folder / "authority.log", "fedward-authority", *online)
        hub = folder / "hub"
        _enrol(folder, hub, Subject(Identity(Role.COORDINATOR, "hub")), url)
        config = {name: f"{name}.pem" for name in ("certificate", "key", "authority")} | {
            "port": ports["coordinator"],
            "metrics_port": 0,
            "data": "data",
            "authority_url": url,
        }
        (hub / "coordinator.yaml").write_text(yaml.safe_dump(config))
        words = ("serve", "-c", str(hub / "coordinator.yaml"))
        _start(ends, folder / "coordinator.log", "fedward-coordinator", *words)
        return [_revoked(folder, f"ward-{number}", url, ports["coordinator"]) for number in range(runs)]


def _revoked(folder: Path, name: str, url: str, port: int) -> float:
    home = folder / name
    _enrol(folder, home, Subject(Identity(Role.SILO, name), name), url)
    credential = load(Files.of(home / "certificate.pem", home / "key.pem", home / "authority.pem", None), None)
    with grpc.secure_channel(f"localhost:{port}", channel_credentials(credential)) as channel:
        silo = silo_pb2_grpc.SiloServiceStub(channel)
        ask = silo_pb2.JoinRequest(protocol=PROTOCOL, agent_version="bench")
        silo.Join(ask, timeout=30)
        run("fedward-authority", "revoke", folder / "issuing", "--role", "silo", "--name", name, "--reason", "bench",
            env=SECRET)  # fmt: skip
        began = time.monotonic()
        while time.monotonic() < began + 60:
            try:
                silo.Join(ask, timeout=30)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.PERMISSION_DENIED or "revoked" not in (error.details() or ""):
                    raise
                return time.monotonic() - began
            time.sleep(0.1)
    return float("inf")


def _enrol(folder: Path, home: Path, subject: Subject, url: str) -> None:
    hosts = ["localhost"] if subject.identity.role is Role.COORDINATOR else []
    enrol(home, root.admit(folder / "root", subject, days=10, redeem_days=1, hosts=hosts, url=url))
    # What a person does who has compared the fingerprints: the admission does not name the key that it was used for.
    key = parse_certificate((home / "certificate.pem").read_bytes()).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # noqa: S101  # our own certificates have no other
    with (folder / "hub" / PEERS_FILE).open("a", encoding="ascii") as peers:
        peers.write(f"{subject.identity.uri} {key_fingerprint(key)}\n")


def _start(ends: ExitStack, log: Path, program: str, *words: str) -> None:
    """Start a service and wait until it says that it serves. It is stopped at the end, by its own id."""
    with log.open("wb") as file:
        process = subprocess.Popen([script(program), *words], stderr=file, stdout=file, env={**os.environ, **SECRET})
    ends.callback(process.wait)
    ends.callback(process.send_signal, signal.SIGTERM)
    until = time.monotonic() + 60
    while not re.search('"event": "serving"', log.read_text()):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(log.read_text())
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    raise SystemExit(main())
