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

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("weighted", [False, True])
def test_combine_takes_any_number_of_rows(comm, make_route, weighted):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    x, ids, weights, grad = arrays(every_rank(comm, 4)[comm.rank], jnp.float32)
    rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    used = int(routing.offsets[-1])

    def total(y, w):
        return (ep.combine(y, routing, w if weighted else None) * grad).sum()

    wanted, wanted_grads = jax.value_and_grad(total, (0, 1))(rows, row_weights)
    for num in used, used + 1, route.capacity + 5:
        y, w = (
            jnp.pad(each, [(0, 5), *[(0, 0)] * (each.ndim - 1)], constant_values=jnp.nan)[:num]
            for each in (rows, row_weights)
        )
        made, grads = jax.jit(jax.value_and_grad(total, (0, 1)))(y, w)
        same(made, wanted)
        for one, other in zip(grads, wanted_grads):
            assert len(one) == num
            same(one[:used], other[:used])


def bytes_of(value):
    return np.asarray(value).view(np.uint8)


@pytest.mark.parametrize("columns", [0, 1, 3])
@pytest.mark.parametrize("layout", ["expert", "rank", "slab"])
@pytest.mark.parametrize(
    "dtype, kind",
    [(jnp.float8_e4m3fn, jnp.float32), (jnp.bfloat16, jnp.uint8), (jnp.float32, jnp.float16)],
    ids=name_of,
)
def test_scales_arrive_beside_their_rows(comm, make_route, dtype, kind, layout, columns):
    """Every byte is that of two dispatches: in padding and in unused rows too, which are zero."""
    room = comm.size * MAX_TOKENS * K if layout == "slab" else 0
    attributes = dict(experts=7, top_k=K, max_tokens=MAX_TOKENS, layout=layout, zero_unused=True)
    alignment = 4 if layout == "expert" else 1
    route = make_route(alignment=alignment, rows_per_expert=room, **attributes)
    mine = every_rank(comm, 7)[comm.rank]
    x, ids, weights, _ = arrays(mine, dtype)
    scales = jnp.asarray(abs(mine.x[:, :columns]), kind)
    together = jax.jit(lambda x, s: ep.dispatch(x, ids, weights, route, scales=s))
    (rows, row_scales), row_weights, routing = together(x, scales)
    assert rows.dtype == dtype and row_scales.dtype == kind
    assert row_scales.shape == (route.capacity, columns)
    wanted, wanted_weights, wanted_routing = ep.dispatch(x, ids, weights, route)
    np.testing.assert_array_equal(bytes_of(rows), bytes_of(wanted))
    same(row_weights, wanted_weights)
    for name in ("counts", "offsets", "row_experts"):
        same(getattr(routing, name), getattr(wanted_routing, name))
    wanted_scales = ep.dispatch(scales, ids, None, route)[0]
    np.testing.assert_array_equal(bytes_of(row_scales), bytes_of(wanted_scales))


def test_scales_are_of_the_token_that_the_row_is_of(comm, make_route):
    """Beside lists: the slot of each row has the scales of its rank and token."""
    room = comm.size * MAX_TOKENS * K
    attributes = dict(experts=5, top_k=K, max_tokens=MAX_TOKENS, layout="slab")
    route = make_route(rows_per_expert=room, zero_unused=True, **attributes)
    every = every_rank(comm, 5)
    x, ids, _, _ = arrays(every[comm.rank], jnp.float8_e4m3fn)

    def scales_of(rank):
        return np.arange(len(every[rank].x))[:, None] + [100 * rank, 100 * rank + 0.5]

    scales = jnp.asarray(scales_of(comm.rank), jnp.float32)
    (rows, row_scales), row_weights, _ = ep.dispatch(x, ids, None, route, scales=scales)
    assert row_weights is None
    wanted = np.zeros((route.capacity, H)), np.zeros((route.capacity, 2))
    slabs, _ = slots.slab_rows(every, local_of(route), room)
    for e, slab in enumerate(slabs):
        for slot, (rank, token, _) in enumerate(slab, e * room):
            wanted[0][slot], wanted[1][slot] = every[rank].x[token], scales_of(rank)[token]
    same(rows, wanted[0])
    same(row_scales, wanted[1])


def test_rows_with_scales_have_gradients_too(comm, make_route):
    """Those of x and of weights are those without scales, to the byte; scales have none."""
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x, ids, weights, grad = arrays(mine)

    def loss(x, weights, has_scales):
        scales = jax.lax.stop_gradient(x[:, :1]) if has_scales else None
        rows, row_weights, routing = ep.dispatch(x, ids, weights, route, scales=scales)
        rows = rows[0] + 0 * jnp.nan_to_num(rows[1]) if has_scales else rows
        return (ep.combine(rows, routing, row_weights) * grad).sum()

    gradients = jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)
    for one, other in zip(gradients(x, weights, True), gradients(x, weights, False)):
        same(one, other)
    total = np.where(mine.ids >= 0, mine.weights, 0).sum(1, keepdims=True)
    same(gradients(x, weights, True)[0], mine.grad * total)


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
