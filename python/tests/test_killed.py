# SPDX-License-Identifier: BSD-3-Clause
"""The last rank is killed between two operations. Every other one gets an EPXError that names it,
within its time-out, closes the communicator and ends by itself. Without CASE they go on, too.

Run by mpiexec without pytest, because ranks cannot agree on verdicts after the death. CASE in the
environment: ops of torch or of jax with their backwards, else the operations alone. The survivors
leave their verdicts in a file that all of them map.
"""

from __future__ import annotations

import importlib
import mmap
import os
import signal
import sys
import tempfile
import time
import traceback

import epx
from epx import Code, EPXError, _core, _perf

TIMEOUT_MS, PATIENCE_S, DEATH = 2000, 60, 20
GOOD, BAD = ord("g"), ord("b")


def board():
    """Memory that all ranks map: a byte of each. Collective."""
    rank, size = _core.world()
    file, path = tempfile.mkstemp() if rank == 0 else (-1, "")
    path = _core.gather(path.encode().ljust(300, b"\0"), size)[0].rstrip(b"\0").decode()
    if rank == 0:
        os.write(file, bytes(size))
    _core.gather(b".", size)
    with open(path, "r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), size)
    _core.gather(b".", size)
    if rank == 0:
        os.close(file)
        os.unlink(path)
    return mapped


def layer_of_torch(comm):
    import torch

    import epx.torch as ep

    torch.set_num_threads(1)
    route = epx.Route(comm, experts=4, top_k=2, max_tokens=4)
    ids = torch.tensor(_perf.SMALL.ids(comm.rank))
    x, weights = torch.ones(4, 8, requires_grad=True), torch.ones(4, 2, requires_grad=True)

    def step():
        rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
        ep.combine(rows, routing, row_weights).sum().backward()

    return step


def layer_of_jax(comm):
    import jax
    import jax.numpy as jnp

    import epx.jax as ep

    route = epx.Route(comm, experts=4, top_k=2, max_tokens=4)
    ids = jnp.asarray(_perf.SMALL.ids(comm.rank))

    def loss(x, weights):
        rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
        return ep.combine(rows, routing, row_weights).sum()

    gradients = jax.jit(jax.grad(loss, (0, 1)))

    def step():
        try:
            jax.block_until_ready(gradients(jnp.ones((4, 8)), jnp.ones((4, 2))))
        except Exception as error:  # JAX's own, with EPX's text
            raise EPXError(ep.error_code(error), str(error)) from error

    return step


def layer_of_core(comm):
    layer = _perf.Layer(comm, _perf.host_backend())
    return lambda: layer.repeat(tuple(layer.operations), 1)


def expect_timeout(step, victim):
    """The step fails, within twice the time-out: a late rank may be the first to be waited for."""
    begin = time.monotonic()
    try:
        while time.monotonic() - begin < PATIENCE_S:
            begin = time.monotonic()
            step()
    except EPXError as error:
        spent = time.monotonic() - begin
        assert error.code == Code.TIMEOUT, error
        assert f"rank {victim} " in str(error), error
        assert spent < 2e-3 * TIMEOUT_MS + 1, f"took {spent} s"
        return
    raise AssertionError(f"no error within {PATIENCE_S} s")


def go_on(comm):
    """The communicator of the others works, and can be closed."""
    with comm.shrink() as smaller:
        assert smaller.ranks == tuple(range(comm.size - 1))
        step = layer_of_core(smaller)
        for _ in range(DEATH):
            step()


def survive(comm, step):
    victim = comm.size - 1
    expect_timeout(step, victim)
    if "CASE" not in os.environ:
        go_on(comm)
    begin = time.monotonic()
    expect_timeout(step, victim)
    comm.close()
    spent = time.monotonic() - begin
    assert spent < 1, f"what came after took {spent} s"


def collect(verdicts):
    """How many other survivors left no good verdict; one more if the last rank is alive."""
    last = len(verdicts) - 1
    begin = time.monotonic()
    while 0 in verdicts[1:last] and time.monotonic() - begin < PATIENCE_S:
        time.sleep(0.01)
    return sum(verdict != GOOD for verdict in verdicts[1:last]) + (verdicts[last] != 0)


def run(comm, step, verdicts):
    for _ in range(DEATH):
        step()
    if comm.rank == comm.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    survive(comm, step)


def main():
    case = os.environ.get("CASE")
    if case:
        importlib.import_module(f"epx.{case}")  # may take one rank longer than the time-out
    verdicts = board()
    comm = epx.Comm(timeout_ms=TIMEOUT_MS)
    layers = {"torch": layer_of_torch, "jax": layer_of_jax}
    step = layers.get(case, layer_of_core)(comm)
    verdict = GOOD
    try:
        run(comm, step, verdicts)
    except Exception:
        traceback.print_exc()
        verdict = BAD
    verdicts[comm.rank] = verdict
    if comm.rank == 0:
        bad = collect(verdicts) + (verdict != GOOD)
        time.sleep(1)  # mpiexec forwards errors by another pipe: the verdict is to be the last line
        print(f" Found {bad} errors" if bad else " No Errors", flush=True)


if __name__ == "__main__":
    sys.exit(main())
