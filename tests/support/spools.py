"""Spools of every kind: a folder, a folder with a URL behind it, and one with a local S3 server behind it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator.storage.mirrored_spool import MirroredSpool, SpoolObjects
from coordinator.storage.spool import Spool

KINDS = ("folder", "file", "s3")
_buckets = itertools.count(1)


@contextmanager
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A URL at an S3 server of this machine (moto), whose bucket is new."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415  # most tests need none

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "of-a-test",
        "AWS_SECRET_ACCESS_KEY": "of-a-test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"fedward-{next(_buckets)}"
    try:
        import fsspec  # noqa: PLC0415  # as above

        system = fsspec.filesystem("s3", skip_instance_cache=True)
        system.call_s3("create_bucket", Bucket=bucket)
        yield f"s3://{bucket}/spool"
    finally:
        server.stop()


@contextmanager
def spools(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Spool]]:
    """Opens the spool of a kind under an epoch, each time at another machine if a URL is behind it."""
    machines = itertools.count(1)
    if kind == "folder":
        yield lambda epoch: Spool(folder / "spool", epoch)
    elif kind == "file":
        (folder / "objects").mkdir()
        url = f"file://{folder}/objects"
        yield lambda epoch: MirroredSpool(folder / f"machine-{next(machines)}", epoch, SpoolObjects(url))
    else:
        with s3(monkeypatch) as url:
            yield lambda epoch: MirroredSpool(folder / f"machine-{next(machines)}", epoch, SpoolObjects(url))
