# SPDX-License-Identifier: BSD-3-Clause
"""The device that the tests of JAX run on, and a layer to run there.

EPX_MEMORY=cuda:device puts all arrays on a GPU: this rank's, if there are several.
"""

import os
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import slots

from epx import _core, launch

ON_GPU = os.environ.get("EPX_MEMORY", "").startswith("cuda")
if ON_GPU:  # The own GPU is number 0 of the process, which sees the others too, as ipc wants it.
    here = [str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))] or ["0"]
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    gpus = (visible or here)[: _core.world()[1]]
    own = launch.local_rank() % len(gpus)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[own:] + gpus[:own])
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

import epx.jax as ep

jax.config.update("jax_cuda_visible_devices", "0")
jax.config.update("jax_platforms", "cuda,cpu" if ON_GPU else "cpu")
jax.config.update("jax_default_matmul_precision", "highest")  # no TF32

H, K, MAX_TOKENS = 6, 3, 20


class Tokens(NamedTuple):
    x: np.ndarray  # [T, H] float64
    ids: np.ndarray  # [T, K] int32
    weights: np.ndarray  # [T, K] float32
    grad: np.ndarray  # [T, H] float64, that of the sums


class Dense(NamedTuple):
    out: np.ndarray
    x: np.ndarray  # these three are gradients
    weights: np.ndarray
    matrices: np.ndarray


def tokens_of(rank, experts, seed=1, num=None, hidden=H):
    """The tokens of a rank, small integers; some ids are -1, and token 1 names one expert."""
    num = slots.num_tokens(rank) if num is None else num
    made = np.random.default_rng(1000 * seed + rank)
    ids = made.integers(0, experts, (num, K)).astype(np.int32)
    ids[made.random((num, K)) < 0.15] = -1
    if num > 1:
        ids[1, :] = ids[1, 0]
    x = made.integers(-4, 5, (num, hidden)).astype(np.float64)
    weights = made.integers(1, 5, (num, K)).astype(np.float32) / 4
    return Tokens(x, ids, weights, made.integers(-2, 3, (num, hidden)).astype(np.float64))


def every_rank(comm, experts, seed=1, num=None, hidden=H):
    return [tokens_of(rank, experts, seed, num, hidden) for rank in range(comm.size)]


def local_of(route):
    return range(route.first_expert, route.first_expert + route.local_experts)


def matrices_of(experts, hidden=H):
    return np.random.default_rng(7).normal(size=(experts, hidden, hidden)) / 4


def dense_layer(tokens, matrices):
    """The sum over choices of weight * tanh(x @ matrix of the expert), and the gradients of
    sum(out * grad), by hand."""
    out, grad_x = np.zeros_like(tokens.x), np.zeros_like(tokens.x)
    grad_weights, grad_matrices = np.zeros(tokens.weights.shape), np.zeros_like(matrices)
    for token, choice in zip(*np.nonzero(tokens.ids >= 0)):
        expert, weight = tokens.ids[token, choice], float(tokens.weights[token, choice])
        y = np.tanh(tokens.x[token] @ matrices[expert])
        slope = weight * tokens.grad[token] * (1 - y * y)
        out[token] += weight * y
        grad_weights[token, choice] = tokens.grad[token] @ y
        grad_x[token] += matrices[expert] @ slope
        grad_matrices[expert] += np.outer(tokens.x[token], slope)
    return Dense(out, grad_x, grad_weights, grad_matrices)


def apply_experts(rows, row_weights, routing, matrices):
    """The local experts by the Routing alone; in rank-major they also weight the rows."""
    slot = jnp.arange(len(rows))[:, None]
    used = slot < routing.offsets[-1]
    if routing.route.layout == "slab":
        room = routing.route.rows_per_expert
        used = slot % room < jnp.repeat(routing.counts, room)[:, None]
    clean = jnp.where(used, rows, 0)
    y = jnp.zeros_like(rows)
    for expert in range(len(matrices)):
        made = jnp.tanh(clean @ matrices[expert])
        if routing.route.layout != "rank":
            here = (routing.offsets[expert] <= slot) & (slot < routing.offsets[expert + 1])
            y = y + jnp.where(here, made, 0)
            continue
        for choice in range(K):
            here = routing.row_experts[:, choice, None] == expert
            weight = jnp.where(here, row_weights[:, choice, None], 0).astype(rows.dtype)
            y = y + weight * made
    return jnp.where(used, y, 0)


def sparse_layer(x, ids, weights, route, matrices):
    rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    y = apply_experts(rows, row_weights, routing, matrices)
    return ep.combine(y, routing, None if route.layout == "rank" else row_weights)


def arrays(tokens, dtype=jnp.float32):
    return (
        jnp.asarray(tokens.x, dtype),
        jnp.asarray(tokens.ids),
        jnp.asarray(tokens.weights),
        jnp.asarray(tokens.grad, dtype),
    )


@contextmanager
def x64(is_on):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", is_on)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def near(got, wanted, dtype=jnp.float32):
    bound = {"float64": 1e-6, "float32": 1e-4, "float16": 2e-2, "bfloat16": 0.15}[
        np.dtype(dtype).name
    ]
    np.testing.assert_allclose(
        np.asarray(got, np.float64), wanted, rtol=bound, atol=3 * bound, strict=True
    )


def same(got, wanted):
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(wanted, np.float64))
