"""A state folder that an agent has used, and what can become of its files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from crypto.pki.at_rest import FormerKey, KeyHolder
from crypto.pki.identity import Identity, Role
from crypto.pki.key_files import new_key
from policies.ledger.anchors import Anchors
from policies.ledger.ledger import Debit, Ledger
from policies.plan.cost import Cost
from protos.messages import Place, Tensor
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.opening import open_state
from silo_agent.storage.rows import Withdrawals
from silo_agent.storage.state import State
from support.entropy import SeededEntropy
from support.ledgers import NORTH

KEY: Final = FormerKey(Identity(Role.SILO, "north"), new_key()[1])
STUDY: Final = "5" * 64
PLACE: Final = Place(STUDY, 2, 3)
INTEGERS: Final = np.array([5, -7, 2**30], np.int64)
LABEL: Final = "a" * 64


def opened(folder: Path, seed: int = 1, key: KeyHolder = KEY) -> State:
    return open_state(folder, key, SeededEntropy(seed))[0]


def charge(folder: Path) -> None:
    debit = Debit(STUDY, "d" * 64, 2, 3, {"heads": Cost("training", 1.0, 10.0, 1)})
    with Ledger.open(StateFolder(folder).ledger, NORTH, budget_epsilon=10.0) as ledger:
        ledger.charge(debit)


def used(folder: Path, seed: int, key: KeyHolder = KEY) -> dict[str, bytes]:
    """A folder whose agent has drawn for a charge, and of whose patients two have withdrawn. Returns older files."""
    folder.mkdir()
    Ledger.create(StateFolder(folder).ledger, NORTH)
    state = opened(folder, seed, key)
    charge(folder)
    state.anchored.bind(Anchors(state.files.ledger))
    state.keep_release(PLACE, Tensor.HEADS, 3, INTEGERS, LABEL)
    withdrawals = Withdrawals(state.files, key, SeededEntropy(seed))
    withdrawals.add("one")
    older = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    state.promises.sign(PLACE, Tensor.HEADS, ("north", "south"))
    withdrawals.add("two")
    state.close()
    opened(folder, seed, key).close()
    return older


def _damaged(_folder: Path, path: Path, _older: Mapping[str, bytes]) -> None:
    content = bytearray(path.read_bytes())
    middle = slice(len(content) // 4, -len(content) // 4)
    content[middle] = bytes(len(content[middle]))
    path.write_bytes(bytes(content))


def _foreign(folder: Path, path: Path, _older: Mapping[str, bytes]) -> None:
    other = folder.with_name("other")
    used(other, 77)
    shutil.copy(other / path.name, path)


Mishap = Callable[[Path, Path, Mapping[str, bytes]], object]
MISHAPS: dict[str, Mishap] = {
    "damaged": _damaged,
    "cut": lambda _folder, path, _older: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda _folder, path, _older: path.write_bytes(b""),
    "gone": lambda _folder, path, _older: path.unlink(),
    "older": lambda _folder, path, older: path.write_bytes(older[path.name]),
    "foreign": _foreign,
}
