# SPDX-License-Identifier: BSD-3-Clause
"""usage: mpiexec -n RANKS python train_jax.py [--device cuda] [--steps N] [FILE]

The model of train_torch.py in JAX, one process and one device a rank. Tokens and experts are
sharded over the mesh axis "ep"; the other parameters are replicated.

At the end the first batch is run again. The program fails if the loss of that batch did not go
down, or if a gradient differs from that of a dense layer, which XLA computes without EPX.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import epx
import epx.jax as ep
import epx.launch

CONTEXT, HIDDEN, FFN, CHARACTERS = 4, 64, 128, 256
TOKENS, EXPERTS_PER_RANK, TOP_K = 256, 4, 2
RATE, MOMENTUM = 0.1, 0.9
BOUND = 1e-4
"""How far a gradient may be from the dense layer's, as a part of the parameter's largest one."""

Parameters = dict[str, Array]
EXPERTS, DENSE = ("up", "down"), ("embed", "router", "head")
"""Names of parameters: each rank has its own part of the experts, and all of the others."""
SPECS = {name: P("ep") for name in EXPERTS} | {name: P() for name in DENSE}


def make_parameters(experts: int, mesh: Mesh) -> Parameters:
    """All ranks draw the same numbers, and keep their part of them."""
    shapes = {
        "embed": (CHARACTERS, HIDDEN // CONTEXT),
        "router": (HIDDEN, experts),
        "up": (experts, HIDDEN, FFN),
        "down": (experts, FFN, HIDDEN),
        "head": (HIDDEN, CHARACTERS),
    }

    def draw() -> Parameters:
        keys = jax.random.split(jax.random.key(0), len(shapes))
        made = {}
        for key, (name, shape) in zip(keys, shapes.items()):
            scale = 1.0 if name == "embed" else shape[-2] ** -0.5
            made[name] = scale * jax.random.normal(key, shape)
        return made

    shardings = {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()}
    made: Parameters = jax.jit(draw, out_shardings=shardings)()
    return made


def hidden_of(p: Parameters, windows: Array) -> Array:
    """A token for each window, whose last character is the one to name."""
    return p["embed"][windows[:, :-1]].reshape(len(windows), HIDDEN)


def cross_entropy(p: Parameters, hidden: Array, windows: Array) -> Array:
    scores = jax.nn.log_softmax(hidden @ p["head"])
    return -jnp.take_along_axis(scores, windows[:, -1:], 1).mean()


def moe(p: Parameters, x: Array, route: epx.Route) -> tuple[Array, Array]:
    """The layer, on one rank's tokens and experts, and the ids of each token's experts."""
    weights, ids = jax.lax.top_k(jax.nn.softmax(x @ p["router"]), TOP_K)
    rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    sizes = ep.group_sizes(routing)
    hidden = jax.nn.silu(jax.lax.ragged_dot(rows, p["up"], sizes))
    y = jax.lax.ragged_dot(hidden, p["down"], sizes)
    return ep.combine(y, routing, row_weights), ids


def dense_loss(p: Parameters, windows: Array, ids: Array) -> Array:
    """The loss without EPX: every expert computes every token, then the chosen ones are added."""
    x = hidden_of(p, windows)
    weights = jnp.take_along_axis(jax.nn.softmax(x @ p["router"]), ids, 1)
    hidden = jax.nn.silu(jnp.einsum("th,ehf->tef", x, p["up"]))
    every = jnp.einsum("tef,efh->teh", hidden, p["down"])
    chosen = jnp.take_along_axis(every, ids[:, :, None], 1)
    return cross_entropy(p, x + (chosen * weights[:, :, None]).sum(1), windows)


def make_gradients(mesh: Mesh, route: epx.Route) -> Any:
    """A function of parameters and windows: the mean loss of all ranks, its gradients, the ids."""

    def local_loss(p: Parameters, windows: Array) -> tuple[Array, Array]:
        x = hidden_of(p, windows)
        y, ids = moe(p, x, route)
        return cross_entropy(p, x + y, windows), ids

    def local(p: Parameters, windows: Array) -> tuple[Array, Parameters, Array]:
        # Without pcast, JAX itself would add up the gradients of replicated parameters.
        p = p | {name: jax.lax.pcast(p[name], "ep", to="varying") for name in DENSE}
        (loss, ids), gradients = jax.value_and_grad(local_loss, has_aux=True)(p, windows)
        # The experts have computed the tokens of all ranks: their gradients are sums already.
        ranks = jax.lax.axis_size("ep")
        averages = {name: gradients[name] / ranks for name in EXPERTS}
        averages |= {name: jax.lax.pmean(gradients[name], "ep") for name in DENSE}
        return jax.lax.pmean(loss, "ep"), averages, ids

    given, made = (SPECS, P("ep")), (P(), SPECS, P("ep"))
    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=given, out_specs=made))


@jax.jit
def update(p: Parameters, velocity: Parameters, gradients: Parameters) -> tuple[Any, Any]:
    """Gradient descent with momentum."""
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradients)
    return jax.tree.map(lambda w, v: w - RATE * v, p, velocity), velocity


@jax.jit
def largest_difference(p: Parameters, gradients: Parameters, windows: Array, ids: Array) -> Array:
    """How far gradients are from those of dense_loss. XLA gathers what it needs."""
    dense = jax.grad(dense_loss)(p, windows, ids)
    pairs = [(gradients[name], dense[name]) for name in SPECS]
    return jnp.stack([abs(g - d).max() / abs(d).max() for g, d in pairs]).max()


def make_batches(file: Path, steps: int, mesh: Mesh) -> list[Array]:
    """For each step the windows of all ranks; each rank takes its own from anywhere in the text."""
    text = np.frombuffer(file.read_bytes(), np.uint8).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(text, CONTEXT + 1)
    draw = np.random.default_rng(jax.process_index())
    sharding = NamedSharding(mesh, P("ep"))
    chosen = [windows[draw.integers(len(windows), size=TOKENS)] for _ in range(steps)]
    return [jax.make_array_from_process_local_data(sharding, batch) for batch in chosen]


def train(comm: epx.Comm, mesh: Mesh, options: argparse.Namespace) -> bool:
    """Whether the loss of the first batch went down and its gradients are right."""
    experts = EXPERTS_PER_RANK * comm.size
    # Rows that nothing arrives in are zero: XLA may compute on all rows.
    route = epx.Route(comm, experts, TOP_K, TOKENS, alignment=16, zero_unused=True)
    gradients_of = make_gradients(mesh, route)
    p = make_parameters(experts, mesh)
    velocity = jax.tree.map(jnp.zeros_like, p)
    batches = make_batches(options.file, options.steps, mesh)
    losses = []
    for step, batch in enumerate(batches):
        loss, gradients, _ = gradients_of(p, batch)
        p, velocity = update(p, velocity, gradients)
        losses.append(float(loss))
        if comm.rank == 0:
            print(f"step {step}: loss {losses[-1]:.4f}")

    loss, gradients, ids = gradients_of(p, batches[0])
    difference = float(largest_difference(p, gradients, batches[0], ids))
    if comm.rank == 0:
        print(f"first batch: loss {losses[0]:.4f} before, {loss:.4f} after")
        print(f"gradients differ from the dense layer's by {difference:.1e}, bound {BOUND:.0e}")
    return bool(loss < losses[0]) and difference <= BOUND


def main() -> int:
    parser = argparse.ArgumentParser(description="see the top of this file")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    harbour = Path(__file__).resolve().parent.parent / "harbour.txt"
    parser.add_argument("file", type=Path, nargs="?", default=harbour)
    options = parser.parse_args()

    jax.config.update("jax_platforms", options.device)
    jax.config.update("jax_default_matmul_precision", "highest")  # a GPU would take TF32
    jax.distributed.initialize(**epx.launch.jax_arguments())
    memory, device = "system", None
    if options.device == "cuda":
        memory, device = "cuda:device", jax.local_devices()[0].local_hardware_id
    with epx.Comm(memory=memory, device=device, timeout_ms=60000) as comm:
        mesh = jax.make_mesh((comm.size,), ("ep",), axis_types=(AxisType.Auto,))
        passed = train(comm, mesh, options)
        if comm.rank == 0:
            print(" No Errors" if passed else "Found errors")
    jax.distributed.shutdown()
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
