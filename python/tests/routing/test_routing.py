# SPDX-License-Identifier: BSD-3-Clause
"""Routings as values: made alone, used several times, of exact size, and what they show."""

import pytest
import torch
from dense import expert_rows, first_expert, num_tokens, rank_rows, slab_rows, tokens_of
from torch.utils.checkpoint import checkpoint

import epx
import epx.torch as ep
from epx import Code

MAX_TOKENS, H, K, E = 16, 6, 3, 5
ROOM = 40  # of a slab: more than any expert gets


def every_rank(comm):
    return [tokens_of(rank, (num_tokens(rank), H, K, E)) for rank in range(comm.size)]


def locals_of(comm):
    return range(first_expert(comm.rank, E, comm.size), first_expert(comm.rank + 1, E, comm.size))


@pytest.fixture(params=["expert", "rank", "slab"])
def route(request, make_route):
    more = {"slab": {"rows_per_expert": ROOM}, "expert": {"alignment": 4}}.get(request.param, {})
    return make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=request.param, **more)


def expected_rows(comm, route):
    """Of each row of the buffer (rank, token, choice or experts), or None."""
    every, local = every_rank(comm), locals_of(comm)
    if route.layout == "expert":
        return expert_rows(every, local, 4)[0]
    if route.layout == "rank":
        return rank_rows(every, local)[0]
    slabs = slab_rows(every, local, ROOM)[0]
    return [row for slab in slabs for row in slab + [None] * (ROOM - len(slab))]


def used_of(routing, rows):
    mask = routing.used()
    return rows[mask]


def test_a_routing_alone_sends_rows_as_dispatch_does(comm, route):
    mine = every_rank(comm)[comm.rank]
    wanted, wanted_weights, there = ep.dispatch(mine.x, mine.ids, mine.weights, route)
    routing = ep.route(mine.ids.int(), route)
    assert torch.equal(routing.counts, there.counts)
    assert torch.equal(routing.offsets, there.offsets)
    assert torch.equal(routing.row_experts, there.row_experts)
    for factor in (1, 2, -3):
        rows, row_weights, routing = ep.dispatch_by(factor * mine.x, routing, mine.weights)
        assert torch.equal(used_of(routing, rows), factor * used_of(there, wanted))
        assert torch.equal(used_of(routing, row_weights), used_of(there, wanted_weights))
    if route.layout != "rank":
        assert torch.equal(
            ep.combine(rows, routing, row_weights), -3 * ep.combine(wanted, there, wanted_weights)
        )


def test_dispatch_by_routes_only_if_another_routing_came_between(comm, route):
    mine = every_rank(comm)[comm.rank]
    first = ep.route(mine.ids, route)
    second = ep.route(mine.ids.flip(1), route)
    x, y = mine.x, mine.x + 1
    for _ in range(2):
        mine_first, _, _ = ep.dispatch_by(x, first)
        mine_second, _, _ = ep.dispatch_by(y, second)
    wanted_first, _, there = ep.dispatch(x, mine.ids, None, route)
    assert torch.equal(used_of(first, mine_first), used_of(there, wanted_first))
    wanted_second, _, there = ep.dispatch(y, mine.ids.flip(1), None, route)
    assert torch.equal(used_of(second, mine_second), used_of(there, wanted_second))


def test_an_exact_routing_has_no_unused_rows(comm, route):
    mine = every_rank(comm)[comm.rank]
    before = comm.stats().host_syncs
    routing = ep.route(mine.ids, route, exact=True)
    assert comm.stats().host_syncs == before + int(comm.on_device)
    wanted = expected_rows(comm, route)
    assert routing.capacity == len(wanted)
    assert routing.sizes == (routing.counts.tolist(), routing.offsets.tolist())
    rows, row_weights, routing = ep.dispatch_by(mine.x, routing, mine.weights)
    assert rows.shape == (len(wanted), H)
    every = every_rank(comm)
    for row, made in zip(wanted, rows):
        if row is not None:
            assert torch.equal(made, every[row[0]].x[row[1]])
    again, _, _ = ep.dispatch_by(mine.x, routing)
    assert torch.equal(used_of(routing, again), used_of(routing, rows))
    ep.combine(rows, routing)
    assert len(row_weights) == len(wanted)
    experts = ep.route(mine.ids, route).row_experts[: len(wanted)]
    assert routing.row_experts.shape == (len(wanted) if route.layout == "rank" else 0, K)
    assert routing.row_experts.dtype == torch.int32 and torch.equal(routing.row_experts, experts)


def test_rows_know_where_they_come_from(comm, route):
    mine = every_rank(comm)[comm.rank]
    _, _, routing = ep.dispatch(mine.x, mine.ids, None, route)
    shown, wanted = ep.view(routing), expected_rows(comm, route)
    for at, row in enumerate(wanted):
        came = (int(shown.row_ranks[at]), int(shown.row_tokens[at]))
        assert came == ((-1, -1) if row is None else row[:2])
        if route.layout != "rank":
            assert int(shown.row_choices[at]) == (-1 if row is None else row[2])
    assert (shown.row_choices is None) == (route.layout == "rank")
    assert int(shown.overflow) == 0
    every, local = every_rank(comm), locals_of(comm)
    came = [sum(any(e in local for e in row) for row in t.ids.tolist()) for t in every]
    assert shown.rank_counts.tolist() == came
    assert torch.equal(shown.slots >= 0, mine.ids >= 0)
    assert int(shown.required_rows) >= (0 if route.layout == "slab" else len(wanted))


def test_rows_know_their_expert(comm, route):
    mine = every_rank(comm)[comm.rank]
    _, _, routing = ep.dispatch(mine.x, mine.ids, None, route)
    wanted = expected_rows(comm, route)
    used = [row is not None for row in wanted] + [False] * (route.capacity - len(wanted))
    assert routing.used().tolist() == used
    if route.layout == "rank":
        with pytest.raises(epx.EPXError, match="row_experts") as caught:
            routing.row_expert()
        assert caught.value.code == Code.ROUTE
        return
    experts, every, first = routing.row_expert().tolist(), every_rank(comm), route.first_expert
    for row, expert in zip(wanted, experts):
        assert expert == (-1 if row is None else every[row[0]].ids[row[1], row[2]] - first)
    assert all(expert == -1 for expert in experts[len(wanted) :])


def test_a_view_is_of_the_latest_routing(comm, route):
    mine = every_rank(comm)[comm.rank]
    first = ep.route(mine.ids, route)
    ep.route(mine.ids, route)
    with pytest.raises(epx.EPXError, match="another routing") as caught:
        ep.view(first)
    assert caught.value.code == Code.ROUTE
    ep.dispatch_by(mine.x, first)
    assert ep.view(first).slots.shape == mine.ids.shape


def test_ids_that_were_written_to_are_refused(comm, route):
    mine = every_rank(comm)[comm.rank]
    ids = mine.ids.clone()
    rows, _, routing = ep.dispatch(mine.x, ids, None, route)
    ids.add_(0)  # a write, on ranks without tokens too
    for call in (
        lambda: ep.combine(rows, routing),
        lambda: ep.combine_start(rows, routing),
        lambda: ep.dispatch_by(mine.x, routing),
        lambda: ep.dispatch_backward(rows, routing),
        lambda: ep.combine_backward(mine.grad, routing),
        lambda: ep.view(routing),
    ):
        with pytest.raises(epx.EPXError, match="written to") as caught:
            call()
        assert caught.value.code == Code.ARG
    _, _, routing = ep.dispatch(mine.x, ids, None, route)
    ep.combine(rows, routing._replace(ids=ids.clone()))  # which nobody has written to
    with torch.inference_mode():  # where torch does not count writes
        ids = mine.ids.clone()
        _, _, routing = ep.dispatch(mine.x, ids, None, route)
        ids.add_(0)
        ep.combine(rows, routing)


def test_gradients_of_rows_that_are_sent_by_a_routing(comm, make_route):
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm)[comm.rank]

    def grads(send):
        x, weights = (t.clone().requires_grad_() for t in (mine.x, mine.weights))
        rows, row_weights, routing = send(x, weights)
        y = torch.where(routing.used()[:, None], torch.tanh(rows), 0)
        ep.combine(y, routing, row_weights).backward(mine.grad)
        return x.grad, weights.grad

    wanted = grads(lambda x, w: ep.dispatch(x, mine.ids, w, route))
    for exact in (False, True):
        routing = ep.route(mine.ids, route, exact=exact)
        ours = grads(lambda x, w, by=routing: ep.dispatch_by(x, by, w))
        assert all(torch.equal(a, b) for a, b in zip(ours, wanted))
    by = ep.route(mine.ids, route)
    x = mine.x.clone().requires_grad_()

    def layer(x):
        rows, _, routing = ep.dispatch_by(x, by)
        y = torch.where(routing.used()[:, None], torch.tanh(rows), 0)
        return ep.combine(y, routing)

    checkpoint(layer, x, use_reentrant=False).backward(mine.grad)
    direct = mine.x.clone().requires_grad_()
    layer(direct).backward(mine.grad)
    assert torch.equal(x.grad, direct.grad)


@pytest.mark.parametrize("send", ["dispatch", "dispatch_by", "dispatch_start"])
def test_up_to_three_fields_travel_beside_the_rows(comm, route, send):
    mine = every_rank(comm)[comm.rank]
    numbers = torch.arange(len(mine.x), device=mine.x.device)
    fields = (
        numbers[:, None].int() - (1 << 30),
        torch.stack([numbers, -numbers], 1),
        mine.x[:, :3].to(torch.float8_e4m3fn),
    )
    if send == "dispatch_by":
        given = ep.dispatch_by(mine.x, ep.route(mine.ids, route), scales=fields)
    elif send == "dispatch":
        given = ep.dispatch(mine.x, mine.ids, None, route, scales=fields)
    else:
        given = ep.dispatch_start(mine.x, mine.ids, None, route, scales=fields).wait()
    (rows, *row_fields), _, routing = given
    shown, used = ep.view(routing), routing.used()
    tokens = shown.row_tokens[used].long()
    wanted, _, there = ep.dispatch(mine.x, mine.ids, None, route)
    assert torch.equal(rows[used], used_of(there, wanted))
    assert [field.dtype for field in row_fields] == [field.dtype for field in fields]
    assert torch.equal(row_fields[0][used][:, 0].long(), tokens - (1 << 30))
    assert torch.equal(row_fields[1][used], torch.stack([tokens, -tokens], 1))
    assert torch.equal(row_fields[2][used].double(), rows[used][:, :3])


def test_rows_are_written_where_the_caller_wants_them(comm, route):
    mine = every_rank(comm)[comm.rank]
    field = mine.x[:, :2].to(torch.float8_e4m3fn)
    (rows, scales), weights, routing = ep.dispatch(
        mine.x, mine.ids, mine.weights, route, scales=field
    )
    out = tuple(torch.full_like(made, 7) for made in (rows, weights, scales))
    given = ep.dispatch_by(mine.x, routing, mine.weights, scales=field, out=out)
    assert given[0][0] is out[0] and given[1] is out[1] and given[0][1] is out[2]
    for ours, wanted in zip(out, (rows, weights, scales)):
        assert torch.equal(used_of(routing, ours).float(), used_of(routing, wanted).float())


def test_wrong_results_of_a_caller_are_refused(comm, route):
    mine = every_rank(comm)[comm.rank]
    routing = ep.route(mine.ids, route)
    rows = torch.zeros((routing.capacity, H), dtype=mine.x.dtype)

    def refused(code, out, x=mine.x, weights=None):
        with pytest.raises(epx.EPXError) as caught:
            ep.dispatch_by(x, routing, weights, out=out)
        assert caught.value.code == code

    refused(Code.ARG, (rows, rows))
    refused(Code.ARG, (rows,), weights=mine.weights)
    refused(Code.COUNT, (rows[1:],))
    refused(Code.TYPE, (rows.int(),))
    refused(Code.BUFFER, (rows.T.contiguous().T,))
    refused(Code.UNSUPPORTED, (rows,), x=mine.x.clone().requires_grad_())


def test_more_fields_are_refused(comm, route):
    mine = every_rank(comm)[comm.rank]
    with pytest.raises(epx.EPXError, match="4 scales") as caught:
        ep.dispatch(mine.x, mine.ids, None, route, scales=(mine.x,) * 4)
    assert caught.value.code == Code.ARG


def test_integers_are_rows_too(comm, route):
    mine = every_rank(comm)[comm.rank]
    for dtype in (torch.int32, torch.int64):
        rows, _, routing = ep.dispatch(mine.x.to(dtype), mine.ids, None, route)
        wanted, _, _ = ep.dispatch(mine.x, mine.ids, None, route)
        assert rows.dtype == dtype
        assert torch.equal(used_of(routing, rows), used_of(routing, wanted).to(dtype))


def test_backwards_are_public(comm, make_route):
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm)[comm.rank]
    x, weights = (t.clone().requires_grad_() for t in (mine.x, mine.weights))
    rows, row_weights, routing = ep.dispatch(x, mine.ids, weights, route)
    y, w = rows.detach().requires_grad_(), row_weights.detach().requires_grad_()
    with torch.no_grad():
        home, none = ep.dispatch_backward(y, routing)
        assert none is None and torch.equal(home, ep.combine(y, routing))
        nothing, home_weights = ep.dispatch_backward(y[:, :0], routing, w)
        assert nothing.shape == (len(x), 0)
        assert torch.equal(home_weights, torch.where(mine.ids >= 0, weights, 0))
        grad_y, grad_w = ep.combine_backward(mine.grad, routing, y, w)
        only, none = ep.combine_backward(mine.grad, routing, None, w)
        assert none is None and torch.equal(used_of(routing, only), used_of(routing, grad_y))
    routing = routing._replace(tie=routing.tie.detach().requires_grad_())
    ep.combine(y, routing, w).backward(mine.grad)
    assert torch.equal(used_of(routing, grad_y), used_of(routing, y.grad))
    assert torch.equal(used_of(routing, grad_w), used_of(routing, w.grad))
    with pytest.raises(epx.EPXError, match="no_grad") as caught:
        ep.dispatch_backward(y, routing)
    assert caught.value.code == Code.UNSUPPORTED


def test_a_work_has_its_results_before_they_are_written(comm, route):
    mine = every_rank(comm)[comm.rank]
    wanted, wanted_weights, there = ep.dispatch(mine.x, mine.ids, mine.weights, route)
    work = ep.dispatch_start(mine.x, mine.ids, mine.weights, route)
    rows, row_weights, routing = work.tensors
    made = work.wait()
    assert rows is made[0] and row_weights is made[1] and routing is made[2]
    assert torch.equal(routing.offsets, there.offsets)
    assert torch.equal(routing.row_experts, there.row_experts)
    assert torch.equal(used_of(routing, rows), used_of(there, wanted))
    weight = None if route.layout == "rank" else row_weights
    work = ep.combine_start(rows, routing, weight)
    out = work.tensors
    assert out is work.wait()
    assert torch.equal(out, ep.combine(wanted, there, None if weight is None else wanted_weights))


def test_all_ranks_know_the_largest(comm):
    assert comm.largest(comm.rank) == comm.size - 1
    assert comm.largest(-5 - comm.rank) == -5
    assert comm.largest(7) == 7


def test_empty_tensors_lie_in_reserved_memory(make_comm):
    with_room = make_comm(1 << 22)
    for comm, there in ((make_comm(None), False), (with_room, True)):
        made = comm.empty((2, 3, 8), torch.bfloat16)
        assert made.shape == (2, 3, 8) and made.dtype == torch.bfloat16 and made.is_contiguous()
        assert comm.is_reserved(made.data_ptr(), made.nbytes) == there
        assert comm.empty(5, torch.int32).shape == (5,)
        assert comm.empty((), torch.float32).shape == ()
        assert made.is_cuda == comm.on_device
        large = comm.empty((1 << 22,), torch.float64)
        assert not comm.is_reserved(large.data_ptr(), large.nbytes)
    del made, large


def test_distinct_experts_want_less_room(comm, make_route):
    local = len(locals_of(comm))
    more = {"experts": E, "top_k": K, "max_tokens": MAX_TOKENS, "alignment": 4}
    route, large = make_route(distinct=True, **more), make_route(**more)
    assert route.max_capacity == comm.size * MAX_TOKENS * min(K, local) + 3 * local
    assert large.max_capacity == (comm.size * MAX_TOKENS * K + 3 * local if local else 0)
    ids = torch.rand(num_tokens(comm.rank), E).argsort(1)[:, :K]
    x = torch.randn(len(ids), H)
    rows, _, routing = ep.dispatch(x, ids, None, route)
    wanted, _, there = ep.dispatch(x, ids, None, large)
    assert torch.equal(used_of(routing, rows), used_of(there, wanted))


def test_counts_of_a_routing_on_its_way_are_added(comm, route):
    mine = every_rank(comm)[comm.rank]
    work = ep.dispatch_start(mine.x, mine.ids, None, route)
    sums = torch.zeros(route.local_experts, dtype=torch.int64)
    ep.dispatch_by(mine.x, work.tensors[2], add_counts_to=sums)
    routing = work.wait()[2]
    assert torch.equal(sums, routing.counts.to(torch.int64))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_counts_are_added_to_a_tensor_of_the_caller(comm, route, dtype):
    mine = every_rank(comm)[comm.rank]
    before = torch.arange(route.local_experts, dtype=dtype)
    sums = before.clone()
    routing = ep.route(mine.ids, route, add_counts_to=sums)
    assert torch.equal(sums, before + routing.counts)
    ep.route(mine.ids, route, exact=True, add_counts_to=sums)
    ep.dispatch(mine.x, mine.ids, mine.weights, route, add_counts_to=sums)
    ep.dispatch_by(mine.x, routing, add_counts_to=sums)
    assert torch.equal(sums, before + 4 * routing.counts)
    work = ep.dispatch_start(mine.x, mine.ids, None, route, add_counts_to=sums)
    for _ in range(2):
        work.wait()
    assert torch.equal(sums, before + 5 * routing.counts)


@pytest.mark.parametrize(
    "code, change",
    [
        (Code.TYPE, lambda sums: sums.float()),
        (Code.COUNT, lambda sums: torch.cat([sums, sums[:1]])),
        (Code.COUNT, lambda sums: sums[:, None]),
        (Code.BUFFER, lambda sums: torch.inference_mode()(torch.clone)(sums)),
    ],
)
def test_what_counts_cannot_be_added_to_is_refused(comm, route, code, change):
    mine = every_rank(comm)[comm.rank]
    routing = ep.route(mine.ids, route)
    wrong = change(torch.zeros_like(routing.counts))
    for call in (
        lambda: ep.route(mine.ids, route, add_counts_to=wrong),
        lambda: ep.dispatch(mine.x, mine.ids, None, route, add_counts_to=wrong),
        lambda: ep.dispatch_by(mine.x, routing, add_counts_to=wrong),
        lambda: ep.dispatch_start(mine.x, mine.ids, None, route, add_counts_to=wrong),
    ):
        with pytest.raises(epx.EPXError, match="add_counts_to is") as caught:
            call()
        assert caught.value.code == code
