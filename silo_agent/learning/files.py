"""Model files: safetensors with the study inside, written completely or not at all.

Guarantees: after a crash a file is either the old or the new one. Only its owner can read it. It is never unpickled.
The caller checks the tensors' names and shapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
        if note["kind"] != kind:
            msg = f"this is a {note['kind']} model, not a {kind} one; give the other file"
            raise ModelFileError(msg)
        study = parse_study(note["study"].encode(), note["digest"])
        return study, int(note["round"]), tensors
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError, Refused):
        msg = "the model file is damaged, or FedWard did not write it; export it again"
        raise ModelFileError(msg) from None


def facts(blob: bytes) -> str:
    """The facts of a blob that `decode` has read. Raises ValueError or KeyError if it has none."""
    return str(_note(blob)["facts"])


def _note(blob: bytes) -> dict[str, str]:
    header = json.loads(blob[_LENGTH : _LENGTH + int.from_bytes(blob[:_LENGTH], "little")])
    note: dict[str, str] = json.loads(header["__metadata__"]["fedward"])
    return note


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


def write(path: Path, blob: bytes) -> None:
    """Replace `path` durably, mode 0600. Raises OSError."""
    write_whole(path, blob)
