"""Loads torch and Opacus without what FedWard does not use of them: 1,200 modules, two CPU seconds in every silo.

Opacus: noise, sampling and accounts are FedWard's own, so its privacy engine (three accountants with scipy.stats and
scipy.signal, data loaders) stays out, and so do the tensors of distributed training, which it names in annotations and
in an optimizer for several machines. Per-sample gradients and the clipping optimizer need none of it.
torch: optimizers load the compiler `torch._dynamo` at their first call, only to be left uncompiled by it. Here nothing
is compiled. What an optimizer computes stays the same: torch.optim.optimizer._use_grad_for_differentiable turns
gradients off for a step, as it is done here, and torch._compile looks for the attribute that is set here.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

import torch
from torch.optim import SGD, Optimizer

_ENGINE: Final = "opacus.privacy_engine"
_UNUSED: Final = {
    _ENGINE: ("PrivacyEngine",),
    "torch.distributed.tensor": ("DTensor",),
    "torch.distributed._tensor": (),
    "torch.distributed._tensor.experimental": ("implicit_replication",),
}
"""Modules that Opacus imports by name while it is loaded, and what it wants of them."""


def load_lean() -> None:
    """Load Opacus, if nobody has. Whoever asks for a module that was left out gets the real one afterwards."""
    if "opacus" not in sys.modules:
        _load_opacus()
    for method in (Optimizer.add_param_group, Optimizer.zero_grad, Optimizer.state_dict, Optimizer.load_state_dict):
        _leave_uncompiled(method)
    step = getattr(SGD.step, "__wrapped__", None)
    if step is not None:
        SGD.step = torch.no_grad()(step)  # type: ignore[method-assign]  # the same step without the compiler around it


def _load_opacus() -> None:
    absent = {name: parts for name, parts in _UNUSED.items() if name not in sys.modules}
    for name, parts in absent.items():
        module = ModuleType(name)
        module.__dict__.update(dict.fromkeys(parts))
        sys.modules[name] = module
    try:
        opacus = importlib.import_module("opacus")
        importlib.import_module("opacus.optimizers")
    except ImportError:
        # Another version of torch or Opacus wants more of what was left out: then all of it is loaded, at full price.
        for name in [*absent, *(name for name in sys.modules if name.split(".")[0] == "opacus")]:
            sys.modules.pop(name, None)
        importlib.import_module("opacus")
        return
    for name in absent:
        sys.modules.pop(name, None)
    del opacus.__dict__["PrivacyEngine"]
    opacus.__dict__["__getattr__"] = _asked_for


def _asked_for(name: str) -> object:
    if name == "PrivacyEngine":
        return importlib.import_module(_ENGINE).PrivacyEngine
    msg = f"module 'opacus' has no attribute {name!r}"
    raise AttributeError(msg)


def _leave_uncompiled(method: object) -> None:
    plain = getattr(method, "__wrapped__", None)
    if plain is not None:
        plain.__dict__["__dynamo_disable"] = plain
