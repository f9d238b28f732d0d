# SPDX-License-Identifier: BSD-3-Clause
"""EPX: expert parallelism for mixture-of-experts models, over MPI.

``epx.Comm`` and ``epx.Route`` need neither torch nor jax; ``epx.torch`` imports torch, and
``epx.jax`` imports jax, when they are asked for. Every error is an ``epx.EPXError``.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from epx._core import Code, Comm, EPXError, Reserved, Route, Stats

__all__ = ["Code", "Comm", "EPXError", "Reserved", "Route", "Stats"]

_NEEDS = {"torch": "torch", "jax": "jax"}


def __getattr__(name: str) -> ModuleType:
    if name == "launch":
        return importlib.import_module("epx.launch")
    if name not in _NEEDS:
        raise AttributeError(f"module 'epx' has no attribute {name!r}")
    try:
        return importlib.import_module(f"epx.{name}")
    except ModuleNotFoundError as error:
        what = "EPX has no ops for it yet" if error.name == f"epx.{name}" else str(error)
        raise ImportError(f"epx.{name} cannot be had: {what}", name=error.name) from error
