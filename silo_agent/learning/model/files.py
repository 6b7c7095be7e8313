"""Model files: safetensors with the study inside, written completely or not at all.

Guarantees: after a crash a file is either the old or the new one. Only its owner can read it. It is never unpickled.
A file holds a digest of all that is in it, so a bit that has changed since is found whenever the file is read, wherever
it lies now. The models of finished rounds are also compared with the digest that stands beside them. Files of version
0.6 hold no digest; they are read as they are. The caller checks the tensors' names and shapes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from policies.documents.study import Study, parse_study
from policies.refusals import Refused
from silo_agent.learning.errors import ModelFileError
from silo_agent.storage.durable import write_whole
from silo_agent.storage.errors import ShortageError
from silo_agent.storage.own_files import own_files

Tensors = Mapping[str, NDArray[np.generic]]
_LENGTH = 8
_NOTE = ("kind", "study", "digest", "round")
"""The entries of every note."""


def encode(kind: str, study: Study, round_number: int, tensors: Tensors, *, facts: str = "") -> bytes:
    """Tensors with their study, round and whatever `facts` says, as one safetensors blob.

    Equal content gives equal bytes.
    """
    note = {
        "kind": kind,
        "study": study.canonical().decode(),
        "digest": study.digest,
        "round": str(round_number),
        **({"facts": facts} if facts else {}),
    }
    note["sha256"] = _sha256(note, tensors)
    # One metadata entry: safetensors writes several in no fixed order.
    blob: bytes = save({name: np.ascontiguousarray(tensors[name]) for name in tensors}, {"fedward": json.dumps(note)})
    return blob


def decode(kind: str, blob: bytes) -> tuple[Study, int, dict[str, NDArray[np.generic]]]:
    """Inverse of `encode`.

    Raises `ModelFileError` if the bytes are damaged, of another kind, or hold a study that does not fit its digest.
    """
    try:
        tensors: dict[str, NDArray[np.generic]] = load(blob)
        note = _note(blob)
        _require_undamaged(note, tensors)
        if note["kind"] != kind:
            msg = f"this is a {note['kind']} model, not a {kind} one; give the other file"
            raise ModelFileError(msg)
        study = parse_study(note["study"].encode(), note["digest"])
        return study, int(note["round"]), tensors
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError, Refused):
        msg = "the model file is damaged, or FedWard did not write it; export it again"
        raise ModelFileError(msg) from None


def _sha256(note: Mapping[str, str], tensors: Tensors) -> str:
    """The digest of a note and of its tensors, in any order; it is no part of the note then."""
    content = hashlib.sha256(json.dumps(sorted(note.items())).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        content.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        content.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return content.hexdigest()


def _require_undamaged(note: Mapping[str, str], tensors: Tensors) -> None:
    """Raise ValueError if the note is not complete, or not that of these tensors."""
    rest = {name: text for name, text in note.items() if name != "sha256"}
    if not {*_NOTE} <= set(rest) <= {*_NOTE, "facts"}:
        msg = "the note has other entries than those that are written"
        raise ValueError(msg)
    if "sha256" in note and note["sha256"] != _sha256(rest, tensors):
        msg = "the digest does not fit"
        raise ValueError(msg)


def facts(blob: bytes) -> str:
    """The facts of a blob that `decode` has read. Raises ValueError or KeyError if it has none."""
    return str(_note(blob)["facts"])


def _note(blob: bytes) -> dict[str, str]:
    header = json.loads(blob[_LENGTH : _LENGTH + int.from_bytes(blob[:_LENGTH], "little")])
    note: dict[str, str] = json.loads(header["__metadata__"]["fedward"])
    return note


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have every `ModelFileError` name this file."""
    try:
        yield
    except ModelFileError as fault:
        msg = str(fault) if path.name in str(fault) else f"{path}: {fault}"
        raise ModelFileError(msg) from None


def read(path: Path) -> bytes:
    """The bytes of a model file. Raises `ModelFileError` if it cannot be read, `ShortageError` if not just now."""
    try:
        with own_files():
            return path.read_bytes()
    except ShortageError:
        raise
    except OSError as error:
        msg = f"the model file {path.name} cannot be read ({type(error).__name__}); give the path of a model file"
        raise ModelFileError(msg) from None


def require_kept(path: Path, digest: str) -> None:
    """Raise `ModelFileError` if a line beside the model says that another model was kept here, or cannot be read.

    `digest` is that of the content that was read. Only models of finished rounds have such a line; without one this
    does nothing.
    """
    beside = path.with_suffix(".digest")
    if path.suffix != ".safetensors" or not beside.exists():
        return
    try:
        kept = beside.read_text(encoding="ascii").split()[1]
    except (OSError, ValueError, IndexError):
        kept = ""
    if kept != digest:
        msg = (
            f"{path} is not the model that was kept there, as {beside.name} says; restore both from a backup, or take"
            " the model from another silo of the study with `fedward-silo import`"
        )
        raise ModelFileError(msg)


def write(path: Path, blob: bytes) -> None:
    """Replace `path` durably, mode 0600. Raises OSError."""
    write_whole(path, blob)
