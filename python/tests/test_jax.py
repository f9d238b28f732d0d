# SPDX-License-Identifier: BSD-3-Clause
"""The functions of JAX beside a dense layer that shares no code with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slots
from jax_here import (
    MAX_TOKENS,
    H,
    K,
    arrays,
    dense_layer,
    every_rank,
    local_of,
    matrices_of,
    near,
    same,
    sparse_layer,
    x64,
)

import epx.jax as ep

SENT = [jnp.float64, jnp.bfloat16, jnp.float16, jnp.uint8, jnp.float8_e4m3fn, jnp.float8_e5m2]
SUMMED = [jnp.float64, jnp.float32, jnp.bfloat16, jnp.float16]


def name_of(value):
    return np.dtype(value).name if isinstance(value, type) else str(value)


@pytest.mark.parametrize(
    "experts, alignment, dtype",
    [(e, a, jnp.float32) for e in (1, 2, 7) for a in (1, 4, 16)] + [(7, 4, kind) for kind in SENT],
    ids=name_of,
)
def test_every_row_arrives_in_its_slot(comm, make_route, experts, alignment, dtype):
    route = make_route(experts=experts, top_k=K, max_tokens=MAX_TOKENS, alignment=alignment)
    every = every_rank(comm, experts)
    if dtype == jnp.uint8:
        every = [tokens._replace(x=abs(tokens.x)) for tokens in every]
    with x64(dtype == jnp.float64):
        x, ids, weights, _ = arrays(every[comm.rank], dtype)
        rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    wanted, counts, offsets = slots.expert_rows(every, local_of(route), alignment)
    assert rows.dtype == dtype and rows.shape == (route.capacity, H)
    assert routing.counts.tolist() == counts and routing.offsets.tolist() == offsets
    assert ep.group_sizes(routing).tolist() == np.diff(offsets).tolist()
    rows = np.asarray(rows, np.float64)
    for slot, pair in enumerate(wanted):
        row, weight = np.zeros(H), 0.0
        if pair:
            rank, token, choice = pair
            row, weight = every[rank].x[token], every[rank].weights[token, choice]
        same(rows[slot], row)
        assert row_weights[slot] == weight


@pytest.mark.parametrize("zero_unused", [False, True])
@pytest.mark.parametrize("experts", [2, 7])
def test_every_row_arrives_in_its_slab(comm, make_route, experts, zero_unused):
    room = 3
    attributes = dict(experts=experts, top_k=K, max_tokens=MAX_TOKENS, overflow="drop")
    route = make_route(layout="slab", rows_per_expert=room, zero_unused=zero_unused, **attributes)
    every = every_rank(comm, experts)
    x, ids, weights, _ = arrays(every[comm.rank])
    rows, row_weights, routing = jax.jit(lambda *a: ep.dispatch(*a, route))(x, ids, weights)
    slabs, counts = slots.slab_rows(every, local_of(route), room)
    assert rows.shape == (route.local_experts * room, H)
    assert routing.counts.tolist() == [min(count, room) for count in counts]
    assert routing.offsets.tolist() == [room * e for e in range(route.local_experts + 1)]
    assert ep.group_sizes(routing).tolist() == [room] * route.local_experts
    rows = np.asarray(rows)
    for e, slab in enumerate(slabs):
        for slot, (rank, token, choice) in enumerate(slab, e * room):
            same(rows[slot], every[rank].x[token])
            assert row_weights[slot] == every[rank].weights[token, choice]
        if zero_unused:
            assert not rows[e * room + len(slab) : (e + 1) * room].any()


@pytest.mark.parametrize("experts", [1, 2, 7])
def test_every_row_arrives_in_rank_major(comm, make_route, experts):
    route = make_route(experts=experts, top_k=K, max_tokens=MAX_TOKENS, layout="rank")
    every = every_rank(comm, experts)
    x, ids, weights, _ = arrays(every[comm.rank])
    rows, row_weights, routing = jax.jit(lambda *a: ep.dispatch(*a, route))(x, ids, weights)
    wanted, counts, offsets = slots.rank_rows(every, local_of(route))
    assert routing.counts.tolist() == counts and routing.offsets.tolist() == offsets
    assert rows.shape == (route.capacity, H) and row_weights.shape == (route.capacity, K)
    rows, row_weights = np.asarray(rows), np.asarray(row_weights)
    for slot, (rank, token, experts_there) in enumerate(wanted):
        same(rows[slot], every[rank].x[token])
        assert routing.row_experts[slot].tolist() == experts_there
        for choice, expert in enumerate(experts_there):
            weight = every[rank].weights[token, choice] if expert >= 0 else 0
            assert row_weights[slot, choice] == weight
    assert (np.asarray(routing.row_experts)[len(wanted) :] == -1).all()


def test_rows_that_do_not_fit_are_in_no_range(comm, make_route):
    attributes = dict(experts=4, top_k=K, max_tokens=MAX_TOKENS, overflow="drop", layout="rank")
    route = make_route(**attributes)
    route.set_capacity(3)
    every = every_rank(comm, 4)
    x, ids, weights, _ = arrays(every[comm.rank])
    rows, _, routing = ep.dispatch(x, ids, weights, route)
    wanted, _, offsets = slots.rank_rows(every, local_of(route))
    assert len(wanted) > 3 and rows.shape == (3, H)
    assert routing.offsets.tolist() == np.minimum(offsets, 3).tolist()
    for slot, (rank, token, experts_there) in enumerate(wanted[:3]):
        same(rows[slot], every[rank].x[token])
        assert routing.row_experts[slot].tolist() == experts_there


@pytest.mark.parametrize(
    "experts, layout, dtype",
    [(7, layout, kind) for layout in ("expert", "rank", "slab") for kind in SUMMED]
    + [(1, "expert", jnp.float32), (1, "rank", jnp.float32)],
    ids=name_of,
)
def test_a_layer_and_its_gradients_are_those_of_the_dense_one(
    comm, make_route, experts, layout, dtype
):
    attributes = dict(experts=experts, top_k=K, max_tokens=MAX_TOKENS, layout=layout)
    room = comm.size * MAX_TOKENS * K if layout == "slab" else 0
    route = make_route(alignment=4 if layout == "expert" else 1, rows_per_expert=room, **attributes)
    every = every_rank(comm, experts)
    local = local_of(route)

    def loss(x, weights, matrices, ids, grad):
        out = sparse_layer(x, ids, weights, route, matrices)
        return (out * grad).sum(), out

    with x64(dtype == jnp.float64):
        x, ids, weights, grad = arrays(every[comm.rank], dtype)
        matrices = jnp.asarray(matrices_of(experts)[local.start : local.stop], dtype)
        gradients = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))
        (_, out), grads = gradients(x, weights, matrices, ids, grad)
    wanted = [dense_layer(tokens, matrices_of(experts)) for tokens in every]
    assert out.dtype == dtype and grads[0].dtype == dtype
    near(out, wanted[comm.rank].out, dtype)
    near(grads[0], wanted[comm.rank].x, dtype)
    near(grads[1], wanted[comm.rank].weights, dtype)
    total = sum(each.matrices for each in wanted)
    near(grads[2], total[local.start : local.stop], dtype)


def test_ragged_dot_takes_the_group_sizes(comm, make_route):
    route = make_route(experts=5, top_k=K, max_tokens=MAX_TOKENS, alignment=4)
    every = every_rank(comm, 5)
    mine, local = every[comm.rank], local_of(route)
    matrices = jnp.asarray(matrices_of(5)[local.start : local.stop], jnp.float32)
    x, ids, weights, grad = arrays(mine)

    @jax.jit
    @jax.grad
    def gradient(x, matrices):
        rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
        y = jnp.tanh(jax.lax.ragged_dot(rows, matrices, ep.group_sizes(routing)))
        return (ep.combine(y, routing, row_weights) * grad).sum()

    if not local:
        pytest.skip("ragged_dot wants a group")
    near(gradient(x, matrices), dense_layer(mine, matrices_of(5)).x)


def test_ids_of_64_bits_are_taken(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    x, ids, weights, _ = arrays(every_rank(comm, 4)[comm.rank])
    short = ep.dispatch(x, ids, weights, route)
    with x64(True):
        long = ep.dispatch(x, jnp.asarray(ids, jnp.int64), weights, route)
        assert long[2].ids.dtype == jnp.int64 and long[2].offsets.dtype == jnp.int32
        out = ep.combine(long[0], long[2], long[1])
    used = int(short[2].offsets[-1])
    same(long[0][:used], short[0][:used])
    same(long[2].offsets, short[2].offsets)
    same(ep.combine(short[0], short[2], short[1]), out)


def test_weights_may_be_missing(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x, ids, _, grad = arrays(mine)

    def layer(x):
        rows, row_weights, routing = ep.dispatch(x, ids, None, route)
        assert row_weights is None
        return ep.combine(rows, routing)

    out, backward = jax.vjp(layer, x)
    number = (mine.ids >= 0).sum(1, keepdims=True)
    same(out, mine.x * number)
    same(backward(grad)[0], mine.grad * number)


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.float8_e4m3fn], ids=name_of)
def test_weights_have_gradients_where_rows_have_none(comm, make_route, dtype):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x, ids, weights, _ = arrays(mine._replace(x=abs(mine.x)), dtype)

    @jax.jit
    @jax.grad
    def gradient(weights):
        rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
        return ep.combine(rows.astype(jnp.float32), routing, row_weights).sum()

    same(gradient(weights), np.where(mine.ids >= 0, abs(mine.x).sum(1, keepdims=True), 0))


def test_only_one_output_is_used(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x, ids, weights, _ = arrays(mine)

    @jax.grad
    def gradient(given):
        _, row_weights, routing = ep.dispatch(given[0], ids, given[1], route)
        used = jnp.arange(route.capacity) < routing.offsets[-1]
        return jnp.where(used, row_weights, 0).sum()

    grad_x, grad_weights = gradient((x, weights))
    same(grad_x, np.zeros(mine.x.shape))
    same(grad_weights, mine.ids >= 0)
