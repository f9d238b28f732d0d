# SPDX-License-Identifier: BSD-3-Clause
"""EPX: expert parallelism for mixture-of-experts models.

``epx.Comm``, ``epx.Route`` and ``epx.Graph`` need neither torch nor jax; ``epx.numpy`` imports
NumPy, ``epx.torch`` torch, and ``epx.jax`` jax, when they are asked for. Every error is an
``epx.EPXError``. ``epx.__version__`` is that of EPX.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from epx._arena import Reserved
from epx._comm import Comm, Stats
from epx._core import Code, EPXError
from epx._graph import Graph
from epx._route import Route

__all__ = ["Code", "Comm", "EPXError", "Graph", "Reserved", "Route", "Stats"]
__version__ = "0.3.0"

for _public in (Code, Comm, EPXError, Graph, Reserved, Route, Stats):
    _public.__module__ = __name__  # the name that tracebacks show, and that users catch

_MODULES = ("jax", "launch", "numpy", "torch")


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module 'epx' has no attribute {name!r}")
    try:
        return importlib.import_module(f"epx.{name}")
    except ModuleNotFoundError as error:
        raise ImportError(f"epx.{name} cannot be had: {error}", name=error.name) from error
