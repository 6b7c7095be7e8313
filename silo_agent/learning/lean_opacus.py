"""Loads Opacus without its privacy engine, which FedWard does not use: noise, sampling and accounts are its own.

The engine is what Opacus' package loads first: three accountants with scipy.stats and scipy.signal, data loaders and
distributed training, a second of CPU time in every silo. Per-sample gradients and the clipping optimizer, which FedWard
takes from Opacus, need none of it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_ENGINE = "opacus.privacy_engine"


def load_opacus() -> None:
    """Load the package, if nobody has; `opacus.PrivacyEngine` is then loaded when it is first asked for."""
    if "opacus" in sys.modules:
        return
    absent = ModuleType(_ENGINE)
    absent.__dict__["PrivacyEngine"] = None
    sys.modules[_ENGINE] = absent
    try:
        opacus = importlib.import_module("opacus")
    finally:
        del sys.modules[_ENGINE]
    del opacus.__dict__["PrivacyEngine"]
    opacus.__dict__["__getattr__"] = _asked_for


def _asked_for(name: str) -> object:
    if name == "PrivacyEngine":
        return importlib.import_module(_ENGINE).PrivacyEngine
    msg = f"module 'opacus' has no attribute {name!r}"
    raise AttributeError(msg)
