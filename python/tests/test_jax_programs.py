# SPDX-License-Identifier: BSD-3-Clause
"""Programs of JAX: loops, checkpoints, several microbatches in flight, shard_map, and their HLO."""

import hashlib
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from jax_here import (
    MAX_TOKENS,
    H,
    K,
    apply_experts,
    arrays,
    dense_layer,
    every_rank,
    local_of,
    matrices_of,
    near,
    sparse_layer,
    tokens_of,
)

import epx.jax as ep
from epx import _core

E, LAYERS, BATCHES = 5, 3, 4
WIDE = 64  # rows of 256 bytes: XLA runs calls on the host in several threads


def local_matrices(route, hidden=H):
    local = local_of(route)
    return jnp.asarray(matrices_of(E, hidden)[local.start : local.stop], jnp.float32)


def make_routes(make_route, number=1):
    return [make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS) for _ in range(number)]


def batches_of(comm, hidden=H, num=None):
    """For each microbatch the tokens of all ranks."""
    return [every_rank(comm, E, seed, num, hidden) for seed in range(1, BATCHES + 1)]


def check_batches(comm, outs, grads, batches, hidden=H):
    matrices = matrices_of(E, hidden)
    for out, grad, every in zip(outs, grads, batches):
        wanted = dense_layer(every[comm.rank], matrices)
        near(out, wanted.out)
        near(grad, wanted.x)


@pytest.mark.parametrize("hidden", [H, WIDE])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("is_interleaved", [False, True])
def test_microbatches_in_flight(comm, make_route, is_interleaved, number, hidden):
    routes = make_routes(make_route, number)
    batches = batches_of(comm, hidden, 16)
    matrices = local_matrices(routes[0], hidden)
    given = [arrays(every[comm.rank]) for every in batches]

    def one(x, at):
        return sparse_layer(x, *given[at][1:3], routes[at % number], matrices)

    def layers(xs):
        if not is_interleaved:
            return [one(x, at) for at, x in enumerate(xs)]
        sent = [ep.dispatch(x, *given[at][1:3], routes[at % number]) for at, x in enumerate(xs)]
        ys = [apply_experts(*each, matrices) for each in sent]
        return [ep.combine(y, each[2], each[1]) for y, each in zip(ys, sent)]

    def loss(xs):
        outs = layers(xs)
        return sum((out * each[3]).sum() for out, each in zip(outs, given)), outs

    gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))
    for _ in range(3):
        (_, outs), grads = gradients([each[0] for each in given])
        check_batches(comm, outs, grads, batches, hidden)


@pytest.mark.parametrize("number", [1, 2])
def test_calls_that_need_nothing_of_each_other_run_in_one_order(comm, make_route, number):
    """On the host XLA may run several at once: what they return is kept, in memory of its own."""
    num, hidden, batches = 64, 256, 12
    attributes = dict(experts=E, top_k=K, max_tokens=num, zero_unused=True)
    routes = [make_route(**attributes) for _ in range(number)]
    every = [tokens_of(comm.rank, E, seed, num, hidden) for seed in range(batches)]
    given = [arrays(tokens) for tokens in every]

    def loss(xs, weights):
        sent = [
            ep.dispatch(x, ids, w, routes[at % number])
            for at, (x, (_, ids, _, _), w) in enumerate(zip(xs, given, weights))
        ]
        outs = [ep.combine(rows, routing, w) for rows, w, routing in sent]
        total = sum((out * each[3]).sum() for out, each in zip(outs, given))
        return total, (outs, sent)

    gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    for _ in range(5):
        xs, weights = [each[0] for each in given], [each[2] for each in given]
        (_, (outs, _)), (grad_xs, grad_weights) = gradients(xs, weights)
        for at, tokens in enumerate(every):
            used = tokens.ids >= 0
            total = np.where(used, tokens.weights, 0).sum(1, keepdims=True)
            near(outs[at], tokens.x * total)
            near(grad_xs[at], tokens.grad * total)
            products = (tokens.x * tokens.grad).sum(1, keepdims=True)
            near(grad_weights[at], np.where(used, products, 0))


def test_a_plain_forward_and_backward_route_once(comm, make_route):
    if comm.on_device:
        pytest.skip("on a GPU every call routes")
    (route,) = make_routes(make_route)
    x, ids, weights, grad = arrays(every_rank(comm, E)[comm.rank])
    matrices = local_matrices(route)

    @jax.jit
    @jax.grad
    def gradient(x):
        return (sparse_layer(x, ids, weights, route, matrices) * grad).sum()

    before = comm.stats().calls
    gradient(x).block_until_ready()
    assert comm.stats().calls - before == 4  # a routing goes with its dispatch


def test_scan_over_microbatches(comm, make_route):
    (route,) = make_routes(make_route)
    batches = batches_of(comm)
    matrices = local_matrices(route)
    xs, ids, weights, grads = (
        jnp.stack(part) for part in zip(*(arrays(every[comm.rank]) for every in batches))
    )

    def loss(xs):
        def body(total, batch):
            x, ids, weights, grad = batch
            out = sparse_layer(x, ids, weights, route, matrices)
            return total + (out * grad).sum(), out

        return jax.lax.scan(body, 0.0, (xs, ids, weights, grads))

    (_, outs), grad_xs = jax.jit(jax.value_and_grad(loss, has_aux=True))(xs)
    check_batches(comm, outs, grad_xs, batches)


def stacked_layers(tokens, matrices):
    """Layers one after the other on the same ids: sums, and the gradient of x."""
    inputs = [tokens.x]
    for _ in range(LAYERS):
        inputs.append(dense_layer(tokens._replace(x=inputs[-1]), matrices).out)
    grad = tokens.grad
    for x in reversed(inputs[:-1]):
        grad = dense_layer(tokens._replace(x=x, grad=grad), matrices).x
    return inputs[-1], grad


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("is_scan", [False, True])
def test_layers_with_and_without_checkpoint(comm, make_route, is_scan, has_checkpoint):
    (route,) = make_routes(make_route)
    mine = every_rank(comm, E)[comm.rank]
    x, ids, weights, grad = arrays(mine)
    matrices = local_matrices(route)

    def layer(x):
        return sparse_layer(x, ids, weights, route, matrices)

    step = jax.checkpoint(layer) if has_checkpoint else layer

    def loss(x):
        if is_scan:
            x, _ = jax.lax.scan(lambda x, _: (step(x), None), x, None, length=LAYERS)
        else:
            for _ in range(LAYERS):
                x = step(x)
        return (x * grad).sum(), x

    (_, out), grad_x = jax.jit(jax.value_and_grad(loss, has_aux=True))(x)
    wanted, wanted_grad = stacked_layers(mine, matrices_of(E))
    near(out, wanted)
    near(grad_x, wanted_grad)


def test_cond_and_while(comm, make_route):
    (route,) = make_routes(make_route)
    mine = every_rank(comm, E)[comm.rank]
    x, ids, weights, _ = arrays(mine)
    matrices = local_matrices(route)

    def layer(x):
        return sparse_layer(x, ids, weights, route, matrices)

    @jax.jit
    def program(x, number):
        x = jax.lax.fori_loop(0, number, lambda _, x: layer(x), x)
        return jax.lax.cond(number > 1, layer, lambda x: x, x)

    once = dense_layer(mine, matrices_of(E)).out
    twice = dense_layer(mine._replace(x=once), matrices_of(E)).out
    near(program(x, 1), once)
    near(program(x, 2), dense_layer(mine._replace(x=twice), matrices_of(E)).out)


def sharded(comm, route, check_vma, matrices):
    """The gradients of x and of weights, of a layer inside shard_map over one device."""
    mesh = jax.make_mesh((1,), ("ep",), axis_types=(AxisType.Auto,))

    def layer(x, ids, weights, grad):
        return jax.lax.psum((sparse_layer(x, ids, weights, route, matrices) * grad).sum(), "ep")

    over = P("ep")
    loss = jax.shard_map(layer, mesh=mesh, in_specs=(over,) * 4, out_specs=P(), check_vma=check_vma)
    return jax.jit(jax.grad(loss, (0, 2)))


@pytest.mark.parametrize("check_vma", [False, True])
def test_gradients_inside_shard_map(comm, make_route, check_vma):
    (route,) = make_routes(make_route)
    mine = every_rank(comm, E)[comm.rank]
    grad_x, grad_weights = sharded(comm, route, check_vma, local_matrices(route))(*arrays(mine))
    wanted = dense_layer(mine, matrices_of(E))
    near(grad_x, wanted.x)
    near(grad_weights, wanted.weights)


RESHARDING = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)


def hlo_calls(text):
    """What the program calls, without the fusions that XLA makes of its own."""
    return sorted(re.findall(r'custom_call_target="(epx_\w+)"', text))


def test_hlo_has_the_calls_and_no_resharding(comm, make_route):
    experts = 2 * comm.size
    route = make_route(experts=experts, top_k=K, max_tokens=MAX_TOKENS)
    x, ids, weights, grad = arrays(every_rank(comm, experts, num=8)[comm.rank])
    matrices = jnp.ones((2, H, H), jnp.float32)
    over = P("ep")

    def forward(x, ids, weights):
        return sparse_layer(x, ids, weights, route, matrices)

    layer = jax.shard_map(
        forward,
        mesh=jax.make_mesh((1,), ("ep",), axis_types=(AxisType.Auto,)),
        in_specs=(over,) * 3,
        out_specs=over,
    )

    def loss(x, ids, weights, grad):
        return (layer(x, ids, weights) * grad).sum()

    programs = {
        ("epx_combine", "epx_dispatch"): jax.jit(layer).lower(x, ids, weights),
        (
            "epx_combine",
            "epx_combine_backward",
            "epx_dispatch",
            "epx_dispatch_backward",
        ): jax.jit(jax.value_and_grad(loss, (0, 2))).lower(x, ids, weights, grad),
    }
    for wanted, program in programs.items():
        lowered, compiled = program.as_text(), program.compile().as_text()
        assert hlo_calls(compiled) == list(wanted)
        for name in RESHARDING:
            assert name not in compiled and name.replace("-", "_") not in lowered
        for text in (
            (lowered,) if comm.on_device else (lowered, compiled)
        ):  # XLA tunes by time there
            mine = hashlib.sha256(text.encode()).digest()
            assert set(_core.gather(mine, comm.size)) == {mine}


NARROW = jnp.float8_e4m3fn


def quantize(x):
    """The rows by a scale that is another for each, and that; neither has a gradient."""
    scales = jnp.abs(x).max(1, keepdims=True) + 1 + jnp.arange(len(x))[:, None]
    scales = jax.lax.stop_gradient(scales)
    return jax.lax.stop_gradient((x / scales).astype(NARROW)), scales


def narrow_layer(x, ids, weights, route, matrices):
    """Experts for rows that travelled as fp8, with a scale each."""
    narrow, scales = quantize(x)
    (rows, row_scales), row_weights, routing = ep.dispatch(
        narrow, ids, weights, route, scales=scales
    )
    rows = rows.astype(jnp.float32) * row_scales
    return ep.combine(apply_experts(rows, row_weights, routing, matrices), routing, row_weights)


def narrowed(tokens):
    """The tokens whose rows the experts see."""
    narrow, scales = quantize(jnp.asarray(tokens.x, jnp.float32))
    return tokens._replace(x=np.asarray(narrow.astype(jnp.float32) * scales, np.float64))


def slab_route(comm, make_route):
    room = comm.size * MAX_TOKENS * K
    attributes = dict(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout="slab")
    return make_route(rows_per_expert=room, zero_unused=True, **attributes)


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_scales_in_a_scan_over_microbatches(comm, make_route, has_checkpoint):
    """fp8 rows in slabs: outputs, and the gradients of weights and matrices."""
    route = slab_route(comm, make_route)
    batches = batches_of(comm)
    matrices = local_matrices(route)
    xs, ids, weights, grads = (
        jnp.stack(part) for part in zip(*(arrays(every[comm.rank]) for every in batches))
    )

    def layer(x, ids, weights, matrices):
        return narrow_layer(x, ids, weights, route, matrices)

    step = jax.checkpoint(layer) if has_checkpoint else layer

    def loss(weights, matrices):
        def body(total, batch):
            x, ids, weights, grad = batch
            out = step(x, ids, weights, matrices)
            return total + (out * grad).sum(), out

        return jax.lax.scan(body, 0.0, (xs, ids, weights, grads))

    gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, outs), (grad_weights, grad_matrices) = gradients(weights, matrices)
    total = np.zeros(matrices_of(E).shape)
    for at, every in enumerate(batches):
        wanted = [dense_layer(narrowed(tokens), matrices_of(E)) for tokens in every]
        near(outs[at], wanted[comm.rank].out)
        near(grad_weights[at], wanted[comm.rank].weights)
        total += sum(each.matrices for each in wanted)
    local = local_of(route)
    near(grad_matrices, total[local.start : local.stop])


def test_scales_in_cond_and_while(comm, make_route):
    route = slab_route(comm, make_route)
    mine = every_rank(comm, E)[comm.rank]
    x, ids, weights, _ = arrays(mine)
    matrices = local_matrices(route)

    def layer(x):
        return narrow_layer(x, ids, weights, route, matrices)

    @jax.jit
    def program(x, number):
        _, x = jax.lax.while_loop(
            lambda at: at[0] < number, lambda at: (at[0] + 1, layer(at[1])), (0, x)
        )
        return jax.lax.cond(number > 1, layer, lambda x: x, x)

    def dense(x):
        return dense_layer(narrowed(mine._replace(x=x)), matrices_of(E)).out

    near(program(x, 0), mine.x)
    near(program(x, 1), dense(mine.x))
    # What differs in the last bit may be rounded to another fp8 value: the bound is that of half.
    near(program(x, 2), dense(dense(dense(mine.x))), jnp.float16)


@pytest.mark.parametrize("check_vma", [False, True])
def test_scales_inside_shard_map(comm, make_route, check_vma):
    route = slab_route(comm, make_route)
    mine = every_rank(comm, E)[comm.rank]
    x, ids, weights, grad = arrays(mine)
    matrices = local_matrices(route)
    mesh = jax.make_mesh((1,), ("ep",), axis_types=(AxisType.Auto,))

    def layer(x, ids, weights, grad):
        out = narrow_layer(x, ids, weights, route, matrices)
        return jax.lax.psum((out * grad).sum(), "ep"), out

    over = P("ep")
    spread = jax.shard_map(
        layer, mesh=mesh, in_specs=(over,) * 4, out_specs=(P(), over), check_vma=check_vma
    )
    gradient = jax.jit(jax.grad(spread, 2, has_aux=True))
    grad_weights, out = gradient(x, ids, weights, grad)
    wanted = dense_layer(narrowed(mine), matrices_of(E))
    near(out, wanted.out)
    near(grad_weights, wanted.weights)


def test_a_routing_is_a_pytree(comm, make_route):
    (route,) = make_routes(make_route)
    mine = every_rank(comm, E)[comm.rank]
    x, ids, weights, _ = arrays(mine)
    first = jax.jit(lambda *given: ep.dispatch(*given, route))
    second = jax.jit(ep.combine)
    rows, row_weights, routing = first(x, ids, weights)
    assert routing.route is route
    assert len(jax.tree.leaves(routing)) == 5
    other = first(-x, ids, weights)
    total = np.where(mine.ids >= 0, mine.weights, 0).sum(1, keepdims=True)
    near(second(rows, routing, row_weights), mine.x * total)
    near(second(other[0], other[2], other[1]), -mine.x * total)


def test_the_layer_of_the_documentation_runs():
    page = Path(__file__).resolve().parents[2] / "docs/python.md"
    programs = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (program,) = (each for each in programs if "epx.jax" in each)
    names = {}
    exec(program, names)
    router, matrices = names["grads"]
    assert jnp.isfinite(router).all() and router.any()
    assert not len(matrices) or (jnp.isfinite(matrices).all() and matrices.any())
