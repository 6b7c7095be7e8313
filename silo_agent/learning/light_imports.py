"""Loads torch and Opacus without the parts that FedWard does not use: 1,200 modules, two CPU seconds in every silo.

Opacus: noise, sampling and accounting are FedWard's own code. So Opacus' privacy engine is left out, with its three
accountants (which load scipy.stats and scipy.signal) and its data loaders. The tensors of distributed training are left
out too; Opacus names them only in annotations and in an optimizer for several machines. Per-sample gradients need none
of this, but those of a convolution ask whether the layer lies on several machines; then that part is loaded whole.
torch: at its first call an optimizer loads the compiler `torch._dynamo`, although it is not compiled. Nothing is
compiled here. What an optimizer computes stays the same. torch.optim.optimizer._use_grad_for_differentiable turns
gradients off for a step; this module does the same. torch._compile looks for the attribute that this module sets.
"""

from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType
from typing import Final

import torch
from torch.optim import SGD, Optimizer

_ENGINE: Final = "opacus.privacy_engine"
_SHARDS: Final = "fsdp"
_UNUSED: Final = {
    _ENGINE: ("PrivacyEngine",),
    "torch.distributed.tensor": ("DTensor",),
    "torch.distributed._tensor": (),
    "torch.distributed._tensor.experimental": ("implicit_replication",),
}
"""Modules that Opacus imports by name while it is loaded, and the names that it takes from each."""


def load_lean() -> None:
    """Load Opacus, if it is not loaded yet. Code that later imports a module that was left out gets the real one."""
    if "opacus" not in sys.modules:
        _load_opacus()
    if _SHARDS not in torch.distributed.__dict__:
        torch.distributed.__dict__["__getattr__"] = _asked_for_shards
    for method in (Optimizer.add_param_group, Optimizer.zero_grad, Optimizer.state_dict, Optimizer.load_state_dict):
        _leave_uncompiled(method)
    step = getattr(SGD.step, "__wrapped__", None)
    if step is not None:
        SGD.step = torch.no_grad()(step)  # type: ignore[method-assign]  # the same step without the compiler around it


def _load_opacus() -> None:
    before = list(logging.root.handlers)
    try:
        _load_parts()
    finally:
        # Opacus sets up logging while it is loaded, and from then on every library's notes would be on the console.
        logging.root.handlers[:] = before


def _load_parts() -> None:
    absent = {name: parts for name, parts in _UNUSED.items() if name not in sys.modules}
    for name, parts in absent.items():
        module = ModuleType(name)
        module.__dict__.update(dict.fromkeys(parts))
        sys.modules[name] = module
    try:
        opacus = importlib.import_module("opacus")
        importlib.import_module("opacus.optimizers")
    except ImportError:
        # Another version of torch or Opacus may need more of the parts that were left out. Then everything is loaded.
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


def _asked_for_shards(name: str) -> object:
    if name == _SHARDS:
        return importlib.import_module(f"torch.distributed.{_SHARDS}")
    msg = f"module 'torch.distributed' has no attribute {name!r}"
    raise AttributeError(msg)


def _leave_uncompiled(method: object) -> None:
    plain = getattr(method, "__wrapped__", None)
    if plain is not None:
        plain.__dict__["__dynamo_disable"] = plain
