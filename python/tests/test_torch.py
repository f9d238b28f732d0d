# SPDX-License-Identifier: BSD-3-Clause
"""The ops of torch beside a dense layer that shares no code with them."""

import re
from pathlib import Path

import dense
import pytest
import torch
from sparse import leaf
from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode

import epx.launch
import epx.torch as ep

H, K, MAX_TOKENS = 6, 3, 20
SUMMED = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
SENT = [*SUMMED, torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2]


def every_rank(comm, experts, seed=1):
    return [
        dense.tokens_of(rank, (dense.num_tokens(rank), H, K, experts), seed)
        for rank in range(comm.size)
    ]


def local_of(route):
    return range(route.first_expert, route.first_expert + route.local_experts)


def matrices_of(experts):
    made = torch.Generator().manual_seed(7)
    with torch.device("cpu"):
        matrices = torch.randn((experts, H, H), generator=made, dtype=torch.float64) / 4
    return matrices.to(torch.get_default_device())


def apply_experts(rows, row_weights, routing, matrices):
    """The local experts by the Routing alone; in rank-major they also weight the rows."""
    if routing.route.layout == "slab":
        room = routing.route.rows_per_expert
        y = torch.zeros_like(rows)
        for expert, (matrix, count) in enumerate(zip(matrices, routing.counts.tolist())):
            used = torch.tanh(rows[expert * room : expert * room + count] @ matrix)
            y = torch.cat([y[: expert * room], used, y[expert * room + count :]])
        return y
    if routing.route.layout == "expert":
        y = torch.zeros_like(rows)
        if not len(matrices):
            return y  # which does not depend on rows
        parts = []
        ends = routing.offsets.tolist()
        for expert, matrix in enumerate(matrices):
            parts.append(torch.tanh(rows[ends[expert] : ends[expert + 1]] @ matrix))
        used = torch.cat(parts)
        return torch.cat([used, y[len(used) :]])
    used = int(routing.offsets[-1])
    y = torch.zeros_like(rows[:used])
    for choice in range(K):
        for expert, matrix in enumerate(matrices):
            here = (routing.row_experts[:used, choice] == expert)[:, None]
            weight = row_weights[:used, choice : choice + 1].to(rows.dtype)
            y = y + torch.where(here, weight * torch.tanh(rows[:used] @ matrix), 0)
    return torch.cat([y, torch.zeros_like(rows[used:])])


def sparse_layer(x, ids, weights, route, matrices):
    rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    y = apply_experts(rows, row_weights, routing, matrices)
    return ep.combine(y, routing, None if route.layout == "rank" else row_weights)


@pytest.mark.parametrize("dtype", SENT, ids=str)
@pytest.mark.parametrize("alignment", [1, 4, 16])
@pytest.mark.parametrize("experts", [1, 2, 7])
def test_every_row_arrives_in_its_slot(comm, make_route, experts, alignment, dtype):
    route = make_route(experts=experts, top_k=K, max_tokens=MAX_TOKENS, alignment=alignment)
    every = every_rank(comm, experts)
    if dtype == torch.uint8:
        every = [tokens._replace(x=tokens.x.abs()) for tokens in every]
    mine = every[comm.rank]
    rows, row_weights, routing = ep.dispatch(mine.x.to(dtype), mine.ids, mine.weights, route)
    wanted, counts, offsets = dense.expert_rows(every, local_of(route), alignment)
    assert rows.dtype == dtype and rows.shape == (route.capacity, H)
    assert routing.counts.tolist() == counts and routing.offsets.tolist() == offsets
    for slot, pair in enumerate(wanted):
        row, weight = torch.zeros(H), 0.0
        if pair:
            rank, token, choice = pair
            row, weight = every[rank].x[token], every[rank].weights[token, choice]
        assert torch.equal(rows[slot].double(), row.double())
        assert row_weights[slot] == weight


@pytest.mark.parametrize("zero_unused", [False, True])
@pytest.mark.parametrize("overflow", ["error", "drop"])
@pytest.mark.parametrize("experts", [1, 2, 7])
def test_every_row_arrives_in_its_slab(comm, make_route, experts, overflow, zero_unused):
    room = comm.size * MAX_TOKENS * K if overflow == "error" else 3
    attributes = dict(experts=experts, top_k=K, max_tokens=MAX_TOKENS, overflow=overflow)
    route = make_route(layout="slab", rows_per_expert=room, zero_unused=zero_unused, **attributes)
    every = every_rank(comm, experts)
    mine = every[comm.rank]
    rows, row_weights, routing = ep.dispatch(mine.x, mine.ids, mine.weights, route)
    slabs, counts = dense.slab_rows(every, local_of(route), room)
    assert rows.shape == (route.local_experts * room, H)
    assert routing.counts.tolist() == [min(count, room) for count in counts]
    assert routing.offsets.tolist() == [room * e for e in range(route.local_experts + 1)]
    for e, slab in enumerate(slabs):
        for slot, (rank, token, choice) in enumerate(slab, e * room):
            assert torch.equal(rows[slot], every[rank].x[token])
            assert row_weights[slot] == every[rank].weights[token, choice]
        if zero_unused:
            assert not rows[e * room + len(slab) : (e + 1) * room].any()


@pytest.mark.parametrize("experts", [1, 2, 7])
def test_every_row_arrives_in_rank_major(comm, make_route, experts):
    route = make_route(experts=experts, top_k=K, max_tokens=MAX_TOKENS, layout="rank")
    every = every_rank(comm, experts)
    mine = every[comm.rank]
    rows, row_weights, routing = ep.dispatch(mine.x, mine.ids, mine.weights, route)
    wanted, counts, offsets = dense.rank_rows(every, local_of(route))
    assert routing.counts.tolist() == counts and routing.offsets.tolist() == offsets
    assert rows.shape == (route.capacity, H) and row_weights.shape == (route.capacity, K)
    for slot, (rank, token, experts_there) in enumerate(wanted):
        assert torch.equal(rows[slot], every[rank].x[token])
        assert routing.row_experts[slot].tolist() == experts_there
        for choice, expert in enumerate(experts_there):
            weight = every[rank].weights[token, choice] if expert >= 0 else 0
            assert row_weights[slot, choice] == weight
    assert (routing.row_experts[len(wanted) :] == -1).all()


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
@pytest.mark.parametrize("layout", ["expert", "rank", "slab"])
@pytest.mark.parametrize("experts", [1, 7])
def test_a_layer_and_its_gradients_are_those_of_the_dense_one(
    comm, make_route, experts, layout, dtype
):
    attributes = dict(experts=experts, top_k=K, max_tokens=MAX_TOKENS, layout=layout)
    room = comm.size * MAX_TOKENS * K if layout == "slab" else 0
    route = make_route(alignment=4 if layout == "expert" else 1, rows_per_expert=room, **attributes)
    every = every_rank(comm, experts)
    mine = every[comm.rank]
    local = local_of(route)
    matrices = matrices_of(experts)[local.start : local.stop].to(dtype).requires_grad_()
    x, weights = leaf(mine.x.to(dtype)), leaf(mine.weights)
    out = sparse_layer(x, mine.ids, weights, route, matrices)
    assert out.dtype == dtype and out.shape == x.shape
    out.backward(mine.grad.to(dtype))

    all_matrices = leaf(matrices_of(experts))
    xs, ws = [leaf(t.x) for t in every], [leaf(t.weights.double()) for t in every]
    for t, x_of, w_of in zip(every, xs, ws):
        sums = dense.layer(x_of, t.ids, w_of, all_matrices)
        sums.backward(t.grad)
        if t is mine:
            wanted = sums
    near = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 0.15}
    close = dict(rtol=near[dtype], atol=near[dtype] * 3, check_dtype=False)
    torch.testing.assert_close(out.double(), wanted.detach(), **close)
    torch.testing.assert_close(x.grad.double(), xs[comm.rank].grad, **close)
    torch.testing.assert_close(weights.grad.double(), ws[comm.rank].grad, **close)
    if local:
        grad = all_matrices.grad[local.start : local.stop]
        torch.testing.assert_close(matrices.grad.double(), grad, **close)


def test_ids_of_32_bits_are_taken(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    long = ep.dispatch(mine.x, mine.ids, mine.weights, route)
    short = ep.dispatch(mine.x, mine.ids.int(), mine.weights, route)
    used = int(long[2].offsets[-1])
    assert torch.equal(long[0][:used], short[0][:used])
    assert torch.equal(long[2].offsets, short[2].offsets)


def test_inputs_and_gradients_with_gaps_are_taken(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    count = len(mine.x)
    x = leaf(mine.x)
    weights = leaf(mine.weights)
    gaps = x.t().contiguous().t(), mine.ids.t().contiguous().t(), weights.t().contiguous().t()
    rows, row_weights, routing = ep.dispatch(*gaps, route)
    wide = torch.stack([rows, rows], dim=2)[:, :, 0]
    out = ep.combine(wide, routing, torch.stack([row_weights, row_weights], dim=1)[:, 0])
    total = torch.where(mine.ids >= 0, mine.weights, 0).sum(1, keepdim=True).double()
    assert torch.equal(out, mine.x * total)
    out.sum().backward()  # an expanded gradient, with strides of 0
    assert torch.equal(x.grad, total.expand(count, H))
    wanted = torch.where(mine.ids >= 0, mine.x.sum(1, keepdim=True).float(), 0.0)
    assert torch.equal(weights.grad, wanted)


def test_weights_may_be_missing(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x = leaf(mine.x)
    rows, row_weights, routing = ep.dispatch(x, mine.ids, None, route)
    assert row_weights is None
    out = ep.combine(rows, routing)
    out.backward(mine.grad)
    number = (mine.ids >= 0).sum(1, keepdim=True)
    assert torch.equal(out, mine.x * number)
    assert torch.equal(x.grad, mine.grad * number)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e4m3fn, torch.float32], ids=str)
def test_weights_have_gradients_where_rows_have_none(comm, make_route, dtype):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    weights = leaf(mine.weights)
    rows, row_weights, routing = ep.dispatch(mine.x.abs().to(dtype), mine.ids, weights, route)
    assert not rows.requires_grad
    ep.combine(rows.double(), routing, row_weights).sum().backward()
    wanted = torch.where(mine.ids >= 0, mine.x.abs().sum(1, keepdim=True).float(), 0.0)
    assert torch.equal(weights.grad, wanted)


def same_bytes(a, b):
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.mark.parametrize("layout", ["expert", "rank"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16], ids=str)
def test_scales_arrive_beside_their_rows(comm, make_route, dtype, layout):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS, layout=layout)
    mine = every_rank(comm, 4)[comm.rank]
    weights = leaf(mine.weights)
    x, scales = mine.x.to(dtype), mine.x[:, :2].abs().float()
    together = ep.dispatch(x, mine.ids, weights, route, scales=scales)
    (rows, row_scales), row_weights, routing = together
    used = int(routing.offsets[-1])
    wanted_rows, wanted_weights, _ = ep.dispatch(x, mine.ids, weights, route)
    wanted_scales, _, _ = ep.dispatch(scales, mine.ids, None, route)
    assert row_scales.shape == (route.capacity, 2) and not row_scales.requires_grad
    assert same_bytes(rows[:used], wanted_rows[:used])
    assert torch.equal(row_scales[:used], wanted_scales[:used])
    assert torch.equal(row_weights[:used], wanted_weights[:used])
    row_weights[:used].sum().backward()
    assert torch.equal(weights.grad, torch.where(mine.ids >= 0, 1.0, 0.0))


def test_rows_with_scales_have_gradients_too(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x = leaf(mine.x)
    (rows, _), _, routing = ep.dispatch(x, mine.ids, None, route, scales=mine.x[:, :1].float())
    ep.combine(rows, routing).backward(mine.grad)
    assert torch.equal(x.grad, mine.grad * (mine.ids >= 0).sum(1, keepdim=True))


def test_only_one_output_is_used(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x, weights = leaf(mine.x), leaf(mine.weights)
    _, row_weights, routing = ep.dispatch(x, mine.ids, weights, route)
    row_weights[: int(routing.offsets[-1])].sum().backward()
    assert torch.equal(weights.grad, (mine.ids >= 0).float())
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_gradcheck(comm, make_route):
    """In lock-step: every rank has as many elements, and so makes as many calls."""
    route = make_route(experts=3, top_k=2, max_tokens=4, zero_unused=True)
    mine = dense.tokens_of(comm.rank, (3, 2, 2, 3))
    weights = mine.weights

    def layer(x):
        rows, row_weights, routing = ep.dispatch(x, mine.ids, weights, route)
        return ep.combine(torch.tanh(rows / 4), routing, row_weights)

    assert torch.autograd.gradcheck(layer, (leaf(mine.x),), fast_mode=False)


def accumulated(loss, x):
    x = leaf(x)
    loss(x).backward(create_graph=True)
    x.grad.sum().backward()


def differentiated_twice(loss, x):
    x = leaf(x)
    (grad,) = torch.autograd.grad(loss(x), x, create_graph=True)
    torch.autograd.grad(grad.sum(), x, allow_unused=True)


def vectorized(loss, x):
    torch.autograd.functional.hessian(loss, x, vectorize=True)


TWICE = {
    "backward": accumulated,
    "grad": differentiated_twice,
    "hessian": torch.autograd.functional.hessian,
    "vectorized": vectorized,
    "hvp": lambda loss, x: torch.autograd.functional.hvp(loss, x, x),
    "vhp": lambda loss, x: torch.autograd.functional.vhp(loss, x, x),
}


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("of", ["rows", "sums", "weights"])
@pytest.mark.parametrize("twice", TWICE)
def test_there_is_no_second_derivative(comm, make_route, twice, of):
    """Nobody takes it for zero, and no rank waits for another."""
    route = make_route(experts=3, top_k=2, max_tokens=4, zero_unused=True)
    mine = dense.tokens_of(comm.rank, (3, 2, 2, 3))

    def loss(x):
        weights = x[:, :2] if of == "weights" else mine.weights
        rows, row_weights, routing = ep.dispatch(x, mine.ids, weights, route)
        out = ep.combine(rows**3 if of == "rows" else rows, routing, row_weights)
        return (out**3 if of == "sums" else out).sum()

    with pytest.raises(epx.EPXError, match="no second derivatives") as caught:
        TWICE[twice](loss, mine.x.float())
    assert caught.value.code == epx.Code.UNSUPPORTED


def test_the_second_derivative_of_what_is_linear_is_zero(comm, make_route):
    route = make_route(experts=3, top_k=2, max_tokens=4, zero_unused=True)
    mine = dense.tokens_of(comm.rank, (3, 2, 2, 3))

    def loss(x):
        rows, row_weights, routing = ep.dispatch(x, mine.ids, mine.weights, route)
        return ep.combine(2 * rows, routing, row_weights).sum() + (x**3).sum()

    product = torch.autograd.functional.hvp(loss, mine.x, mine.x)[1]
    assert torch.equal(product, 6 * mine.x * mine.x)


@pytest.mark.parametrize("num_routes", [1, 2])
def test_microbatches_in_flight(comm, make_route, num_routes):
    """One forward, one backward: the routing follows the microbatch, not the route."""
    attributes = dict(experts=5, top_k=K, max_tokens=MAX_TOKENS, alignment=4)
    routes = [make_route(**attributes) for _ in range(num_routes)]
    matrices = matrices_of(5)[local_of(routes[0]).start : local_of(routes[0]).stop]
    batches = [every_rank(comm, 5, seed)[comm.rank] for seed in range(3)]
    calls = comm.stats().calls

    def alone(mine, route):
        x, weights = leaf(mine.x), leaf(mine.weights)
        out = sparse_layer(x, mine.ids, weights, route, matrices)
        out.backward(mine.grad)
        return out.detach(), x.grad, weights.grad

    wanted = [alone(mine, routes[i % num_routes]) for i, mine in enumerate(batches)]
    assert comm.stats().calls - calls == 3 * 4, "a routing goes with its dispatch"
    calls = comm.stats().calls
    dispatched = []
    for i, mine in enumerate(batches):
        x, weights = leaf(mine.x), leaf(mine.weights)
        dispatched.append((x, weights, ep.dispatch(x, mine.ids, weights, routes[i % num_routes])))
    outs = []
    for _, _, (rows, row_weights, routing) in dispatched:
        y = apply_experts(rows, row_weights, routing, matrices)
        outs.append(ep.combine(y, routing, row_weights))
    for out, mine in zip(outs, batches):
        out.backward(mine.grad)
    assert comm.stats().calls - calls > 3 * 4, "an operation routed again"
    for (x, weights, _), out, (out_alone, x_alone, weights_alone) in zip(dispatched, outs, wanted):
        assert torch.equal(out, out_alone)
        assert torch.equal(x.grad, x_alone)
        assert torch.equal(weights.grad, weights_alone)


def test_routes_of_other_shapes_live_side_by_side(comm, make_route):
    """A layer of 3 choices of 7 experts whose experts hold a layer of 1 choice of 2."""
    mine = every_rank(comm, 7)[comm.rank]
    outer = make_route(experts=7, top_k=K, max_tokens=MAX_TOKENS)
    inner = make_route(experts=2, top_k=1, max_tokens=outer.capacity, alignment=4)
    x = leaf(mine.x)
    rows, row_weights, routing = ep.dispatch(x, mine.ids, mine.weights, outer)
    used = int(routing.offsets[-1])
    ids = torch.arange(used)[:, None] % 2
    inner_rows, _, inner_routing = ep.dispatch(rows[:used], ids, None, inner)
    back = ep.combine(inner_rows * 2, inner_routing)
    y = torch.cat([back, torch.zeros_like(rows[used:])])
    out = ep.combine(y, routing, row_weights)
    out.backward(mine.grad)
    total = 2 * torch.where(mine.ids >= 0, mine.weights, 0).sum(1, keepdim=True).double()
    assert torch.equal(out, mine.x * total)
    assert torch.equal(x.grad, mine.grad * total)


def test_a_smaller_capacity_is_that_of_each_routing(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    first = ep.dispatch(mine.x, mine.ids, None, route)
    used = int(first[2].offsets[-1])
    route.set_capacity(used)
    second = ep.dispatch(mine.x, mine.ids, None, route)
    assert second[0].shape == (used, H)
    assert torch.equal(second[0], first[0][:used])
    again = ep.combine(first[0], first[2])  # routes again, with the capacity that it had
    assert torch.equal(again, ep.combine(second[0], second[2]))


def test_rows_without_room_are_dropped(comm, make_route):
    attributes = dict(experts=4, top_k=K, max_tokens=MAX_TOKENS, overflow="drop")
    for layout in "expert", "rank":
        route = make_route(capacity=3, layout=layout, **attributes)
        mine = every_rank(comm, 4)[comm.rank]
        rows, _, routing = ep.dispatch(mine.x, mine.ids, None, route)
        assert rows.shape == (3, H) and int(routing.offsets[-1]) <= 3
        assert ep.combine(rows, routing).shape == mine.x.shape
    if comm.on_device:
        torch.cuda.synchronize()
    assert comm.stats().dropped_rows > 0 or len(mine.x) == 0


def test_a_capacity_of_0_takes_no_row(comm, make_route):
    capacity = 0 if comm.rank == 0 else None
    route = make_route(
        experts=4, top_k=K, max_tokens=MAX_TOKENS, capacity=capacity, overflow="drop"
    )
    mine = every_rank(comm, 4)[comm.rank]
    rows, _, routing = ep.dispatch(mine.x, mine.ids, None, route)
    assert len(rows) == (0 if comm.rank == 0 else route.max_capacity)
    number = (mine.ids >= 4 // comm.size).sum(1, keepdim=True)
    assert torch.equal(ep.combine(rows, routing), mine.x * number)


def test_unused_rows_are_zero_if_asked_for(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS, zero_unused=True)
    mine = every_rank(comm, 4)[comm.rank]
    x = leaf(mine.x)
    rows, row_weights, routing = ep.dispatch(x, mine.ids, mine.weights, route)
    used = int(routing.offsets[-1])
    assert not rows[used:].any() and not row_weights[used:].any()
    y = leaf(rows)
    ep.combine(y, routing, row_weights).backward(mine.grad)
    assert not y.grad[used:].any()


def test_autocast_and_no_grad(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x = leaf(mine.x.float())
    with torch.no_grad():
        rows, _, _ = ep.dispatch(x, mine.ids, mine.weights, route)
    assert not rows.requires_grad
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        rows, _, _ = ep.dispatch(x, mine.ids, mine.weights, route)
    assert rows.dtype == torch.float32 and rows.requires_grad


class _Seen(TorchDispatchMode):
    """Keeps the names of the ops that PyTorch's dispatcher calls."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("layout", ["expert", "rank", "slab"])
def test_who_watches_ops_sees_them_and_gets_the_same_bytes(comm, make_route, layout):
    slabs = {"rows_per_expert": 4 * MAX_TOKENS * comm.size} if layout == "slab" else {}
    route = make_route(experts=5, top_k=K, max_tokens=MAX_TOKENS, layout=layout, **slabs)
    mine, matrices = every_rank(comm, 5)[comm.rank], matrices_of(5)[local_of(route)]

    def step():
        x, weights = leaf(mine.x), leaf(mine.weights)
        out = sparse_layer(x, mine.ids, weights, route, matrices)
        out.square().sum().backward()
        return out.detach(), x.grad, weights.grad

    alone = step()
    with _Seen() as seen:
        watched = step()
    with torch.profiler.profile() as profiler:
        profiled = step()
    for name in ("dispatch", "combine", "dispatch_backward", "combine_backward"):
        assert f"epx.{name}.default" in seen.names
        assert any(event.key == f"epx::{name}" for event in profiler.key_averages())
    for other in (watched, profiled):
        assert all(torch.equal(a, b) for a, b in zip(alone, other))


def test_several_gradients_at_once(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x, weights = leaf(mine.x), leaf(mine.weights)
    rows, row_weights, routing = ep.dispatch(x, mine.ids, weights, route)
    out = ep.combine(rows, routing, row_weights)
    gradients = torch.stack([torch.ones_like(out), 3 * torch.ones_like(out)])
    for leaves in ((x,), (x, weights)):
        kept = {"retain_graph": True}
        both = torch.autograd.grad(out, leaves, gradients, is_grads_batched=True, **kept)
        alone = [torch.autograd.grad(out, leaves, each, **kept) for each in gradients]
        for got, wanted in zip(both, zip(*alone)):
            assert torch.equal(got, torch.stack(wanted))


def test_sizes_may_be_integers_of_numpy(comm):
    numpy = pytest.importorskip("numpy")
    whole = numpy.int64
    route = epx.Route(comm, whole(4), whole(K), whole(MAX_TOKENS), alignment=whole(2))
    mine = every_rank(comm, 4)[comm.rank]
    most = route.capacity
    for capacity in (whole(most), most):
        route.set_capacity(capacity)
        rows, _, _ = ep.dispatch(mine.x, mine.ids, mine.weights, route)
        assert rows.shape == (most, H)
    with pytest.raises(TypeError):
        route.set_capacity(2.0)
    route.free()


def test_unwritten_rows_are_filled_where_torch_is_told_to(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    torch.use_deterministic_algorithms(True)  # fills what is empty with NaN
    try:
        rows, _, routing = ep.dispatch(mine.x, mine.ids, mine.weights, route)
    finally:
        torch.use_deterministic_algorithms(False)
    used = int(routing.offsets[-1])
    assert used < len(rows) and rows[used:].isnan().all() and not rows[:used].isnan().any()


def test_the_layer_of_the_documentation_runs(comm):
    page = Path(__file__).resolve().parents[2] / "docs/python.md"
    program = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    names = {}
    exec(program, names)
    assert names["out"].shape == (64, 16)
    assert not len(names["matrices"]) or names["matrices"].grad.any()


@pytest.mark.parametrize("alignment", [1, 4])
def test_a_bias_behind_grouped_mm_has_its_gradient(comm, make_route, alignment):
    """By the lines of the page, while torch fills what is unwritten with NaN."""
    if comm.on_device:
        pytest.skip("grouped_mm of float32 is for hosts")
    top = Path(__file__).resolve().parents[2]
    page = (top / "examples/python/switch_from_deepep.md").read_text()
    (lines,) = [
        each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "w2" in each
    ]
    width, experts = 16, 2 * comm.size
    route = make_route(experts=experts, top_k=K, max_tokens=MAX_TOKENS, alignment=alignment)
    mine = every_rank(comm, experts)[comm.rank]
    made = torch.Generator().manual_seed(comm.rank)
    x = torch.randn((len(mine.x), width), generator=made)
    w1, w2 = (torch.randn((2, width, width), generator=made) for _ in range(2))
    bias = torch.randn((2, width), generator=made).requires_grad_()
    torch.use_deterministic_algorithms(True)
    try:
        rows, _, routing = ep.dispatch(x, mine.ids, None, route)
        names = {"torch": torch, "routing": routing, "rows": rows, "w1": w1, "w2": w2, "bias": bias}
        exec(lines, names)
        ep.combine(names["y"], routing).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert int(routing.offsets[-1]) < len(rows)
    begins, counts = routing.offsets.tolist(), routing.counts.tolist()
    for expert in range(2):
        used = rows[begins[expert] : begins[expert] + counts[expert]]
        inner = torch.tanh(used @ w1[expert] + bias[expert].detach())
        wanted = ((1 - inner**2) * w2[expert].sum(1)).sum(0)
        torch.testing.assert_close(bias.grad[expert], wanted, rtol=1e-4, atol=1e-4)


def test_a_process_group_is_taken(comm, monkeypatch):
    for name in "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT":
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    epx.launch.environment()
    distributed.init_process_group("gloo")
    try:
        with epx.Comm(group=distributed.group.WORLD) as made:
            assert (made.rank, made.size) == (comm.rank, comm.size)
        alone = [distributed.new_group([rank]) for rank in range(comm.size)][comm.rank]
        if comm.rank == comm.size - 1:  # no other rank takes part
            with epx.Comm(group=alone) as made:
                assert (made.rank, made.size) == (0, 1)
        distributed.barrier()  # the store of rank 0 serves new_group of the others
    finally:
        distributed.destroy_process_group()
