# SPDX-License-Identifier: BSD-3-Clause
"""What epx.perf measures of JAX: what another dispatch and combine add to a program."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epx import _perf, launch
from epx import jax as ep
from epx._comm import Comm
from epx._route import Route

_AT_MOST = 2.0  # us an op over C
_FEWER, _MORE = 8, 8  # pairs of the shorter program, and how many the longer one has more


def version() -> str:
    """The version of JAX."""
    return jax.__version__


def prepare(device: str) -> int | None:
    """Choose this rank's device, before JAX looks for any, and return the number of a GPU."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    config: Any = jax.config
    config.update("jax_platforms", device)
    config.update("jax_cpu_enable_async_dispatch", False)
    if device == "cpu":
        return None
    gpus = jax.local_devices()
    own = gpus[launch.local_rank() % len(gpus)]
    config.update("jax_default_device", own)
    number: int = own.local_hardware_id
    return number


def _backend(device: str) -> _perf.Backend:
    if device == "cpu":
        return _perf.host_backend()
    kept: list[Any] = []

    def place(data: bytes) -> int:
        kept.append(jnp.asarray(np.frombuffer(data or b"\0", np.uint8)))
        address: int = kept[-1].unsafe_buffer_pointer()
        return address

    return _perf.Backend(place, lambda size: place(bytes(size)), lambda: None)


def _program(pairs: int, route: Route) -> Callable[[], object]:
    def run(x: Any, ids: Any, weights: Any) -> Any:
        for _ in range(pairs):
            rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
            x = ep.combine(rows, routing, row_weights)
        return x

    x = jnp.ones((_perf.TOKENS, _perf.HIDDEN), jnp.float32)
    ids = jnp.asarray(_perf.SMALL.ids(route.comm.rank), jnp.int32)
    weights = jnp.ones((_perf.TOKENS, _perf.TOP_K), jnp.float32)
    compiled = jax.jit(run)
    compiled(x, ids, weights).block_until_ready()
    return lambda: compiled(x, ids, weights).block_until_ready()


def figures(comm: Comm, device: str, options: _perf.Options) -> list[_perf.Figure]:
    """The row of JAX."""
    backend = _backend(device)
    route = _perf.SMALL.make_route(comm)
    pair = _perf.Case(
        "another dispatch and combine",
        (_perf.DISPATCH, _perf.COMBINE),
        _program(_FEWER + _MORE, route),
        _AT_MOST,
        _program(_FEWER, route),
        _MORE,
    )
    return _perf.figures_of("jax", [pair], _perf.Layer(comm, backend), backend, options)
