# SPDX-License-Identifier: BSD-3-Clause
"""Operations that return a Work: several in flight, waited for in any order."""

import re
from concurrent.futures import ThreadPoolExecutor

import dense
import pytest
import torch
from sparse import leaf

import epx
import epx.torch as ep
from epx import Code, EPXError

H, K, E, MAX_TOKENS = 6, 3, 5, 20


def given_of(comm, seed=1):
    return dense.tokens_of(comm.rank, (dense.num_tokens(comm.rank), H, K, E), seed)


def experts_of(rows, routing):
    """Something of each row that is used; zeros elsewhere."""
    used = torch.arange(len(rows)) < routing.offsets[-1]
    return torch.where(used[:, None], torch.tanh(rows / 4), 0)


def at_once(given, route):
    x, weights = leaf(given.x), leaf(given.weights)
    rows, row_weights, routing = ep.dispatch(x, given.ids, weights, route)
    out = ep.combine(experts_of(rows, routing), routing, row_weights)
    out.backward(given.grad)
    return out.detach(), x.grad, weights.grad


@pytest.mark.parametrize("layout", ["expert", "rank"])
@pytest.mark.parametrize("num_routes", [1, 2])
@pytest.mark.parametrize("backwards", [False, True])
def test_many_in_flight_give_the_same_bytes(comm, make_route, layout, num_routes, backwards):
    attributes = dict(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=layout)
    routes = [make_route(**attributes) for _ in range(num_routes)]
    batches = [given_of(comm, seed) for seed in range(1, 5)]
    route_of = [routes[i % num_routes] for i in range(len(batches))]
    wanted = [ep.dispatch(g.x, g.ids, g.weights, r) for g, r in zip(batches, route_of)]
    works = [ep.dispatch_start(g.x, g.ids, g.weights, r) for g, r in zip(batches, route_of)]
    order = list(range(len(works)))
    order = order[::-1] if backwards else order
    results = {i: works[i].wait() for i in order}
    assert works[0].wait() is results[0], "a second wait returns the same"
    for i, (rows, row_weights, routing) in enumerate(wanted):
        ours, our_weights, our_routing = results[i]
        used = int(routing.offsets[-1])
        assert torch.equal(routing.offsets, our_routing.offsets)
        assert torch.equal(routing.counts, our_routing.counts)
        assert torch.equal(routing.row_experts, our_routing.row_experts)
        assert torch.equal(ours[:used], rows[:used])
        assert torch.equal(our_weights[:used], row_weights[:used])
    sums = [ep.combine_start(results[i][0], results[i][2]) for i in range(len(works))]
    for i, (rows, _, routing) in enumerate(wanted):
        assert torch.equal(sums[i].wait(), ep.combine(rows, routing))


def test_gradients_are_the_same(comm, make_route):
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    batches = [given_of(comm, seed) for seed in (1, 2)]
    wanted = [at_once(given, route) for given in batches]
    leaves = [(leaf(given.x), leaf(given.weights)) for given in batches]
    works = [ep.dispatch_start(x, g.ids, w, route) for g, (x, w) in zip(batches, leaves)]
    sums = []
    for work in works:
        rows, row_weights, routing = work.wait()
        sums.append(ep.combine_start(experts_of(rows, routing), routing, row_weights))
    for given, work, (x, weights), (out, grad_x, grad_weights) in zip(
        batches, sums, leaves, wanted
    ):
        assert torch.equal(work.wait().detach(), out)
        work.wait().backward(given.grad)
        assert torch.equal(x.grad, grad_x) and torch.equal(weights.grad, grad_weights)


def test_a_wrong_shape_is_refused_before_anything_begins(comm, make_route):
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    given = given_of(comm)
    with pytest.raises(EPXError, match="ids is") as caught:
        ep.dispatch_start(given.x, given.ids[:, :1], given.weights, route)
    assert caught.value.code == Code.COUNT
    assert not comm.works
    ep.dispatch_start(given.x, given.ids, given.weights, route).wait()


def test_wait_tells_what_failed(comm, make_route):
    if comm.on_device:
        pytest.skip("on a GPU Comm.check() tells it")
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS, capacity=1)
    given = dense.tokens_of(comm.rank, (6, H, K, E))
    first = ep.dispatch_start(given.x, given.ids, given.weights, route)
    none = torch.full_like(given.ids, -1)
    second = ep.dispatch_start(given.x, none, given.weights, route)
    assert int(second.wait()[2].offsets[-1]) == 0
    for text in "capacity", "first wait":
        with pytest.raises(EPXError) as caught:
            first.wait()
        assert re.search(text, str(caught.value))
    assert not comm.works


def test_closing_ends_what_began(make_route, comm):
    given = given_of(comm)
    with epx.Comm() as other:
        route = epx.Route(other, experts=E, top_k=K, max_tokens=MAX_TOKENS)
        work = ep.dispatch_start(given.x, given.ids, given.weights, route)
    assert not other.works
    assert len(work.wait()[0]) == route.capacity


def test_threads_wait_while_others_begin(comm, make_route):
    """A routing that a thread is waiting for is read before the route gets another one."""
    if comm.on_device:
        pytest.skip("on a GPU the stream copies what a routing shows")
    route = make_route(experts=2, top_k=1, max_tokens=16)
    x = torch.ones(16, 2)
    ids = [torch.full((16, 1), expert) for expert in (0, 1)]
    wanted = [ep.dispatch(x, each, None, route)[2].counts.tolist() for each in ids]
    with ThreadPoolExecutor(1) as pool:
        for _ in range(100):
            works = [ep.dispatch_start(x, ids[0], None, route)]
            waited = pool.submit(works[0].wait)
            works.append(ep.dispatch_start(x, ids[1], None, route))
            assert works[1].wait()[2].counts.tolist() == wanted[1]
            assert waited.result()[2].counts.tolist() == wanted[0]


def test_a_work_that_nobody_wants_does_not_keep_reserved_memory():
    comm = epx.Comm()
    comm.reserve(1 << 20)
    route = epx.Route(comm, experts=E, top_k=K, max_tokens=MAX_TOKENS)
    given = given_of(comm)
    ep.dispatch_start(given.x, given.ids, given.weights, route)
    comm.close()


def test_a_work_cannot_be_compiled(comm, make_route):
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    given = given_of(comm)

    def begin(x):
        return ep.dispatch_start(x, given.ids, given.weights, route).wait()[0]

    with pytest.raises(Exception, match="cannot be compiled"):
        torch.compile(begin, fullgraph=True, backend="eager")(given.x)
