# SPDX-License-Identifier: BSD-3-Clause
"""Combine and both backwards take any number of rows from that of the routing on."""

import contextlib

import pytest
import torch
from dense import num_tokens, tokens_of

import epx.torch as ep
from epx import Code, EPXError

MAX_TOKENS, H, K, E = 16, 6, 3, 5
ROOM = 40  # of a slab: more than any expert gets


@pytest.fixture
def given(comm):
    return tokens_of(comm.rank, (num_tokens(comm.rank), H, K, E))


@pytest.fixture(params=["expert", "rank"])
def route(request, make_route):
    return make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=request.param)


def resized(rows, num):
    """The first rows, or behind all of them more that are NaN and must not be read."""
    if num <= len(rows):
        return rows[:num].clone()
    return torch.cat([rows, rows.new_full((num - len(rows), *rows.shape[1:]), torch.nan)])


def sizes_of(routing):
    """Numbers of rows to try: just enough, the capacity, and more."""
    num = int(routing.offsets[-1])
    return num, num + 1, routing.capacity + 7


@contextlib.contextmanager
def refused(text):
    with pytest.raises(EPXError, match=text) as caught:
        yield
    assert caught.value.code == Code.COUNT


@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("is_current", [False, True])
def test_any_number_of_rows_is_taken(comm, route, given, is_exact, is_current):
    routing = ep.route(given.ids, route, exact=is_exact)
    rows, row_weights, routing = ep.dispatch_by(given.x, routing, given.weights)
    one = None if route.layout == "rank" else row_weights
    wanted = ep.combine(rows, routing, one)
    home, home_weights = ep.dispatch_backward(rows, routing, row_weights)
    for num in sizes_of(routing):
        y, w = resized(rows, num), resized(row_weights, num)
        others = None if one is None else row_weights, None if one is None else w
        for weights in others:
            if not is_current:
                ep.route(given.ids.flip(1), route)
            assert torch.equal(ep.combine(y, routing, weights), wanted)
        work = ep.combine_start(y, routing, others[1])
        assert torch.equal(work.wait(), wanted)
        if not is_current:
            ep.route(given.ids.flip(1), route)
        made, made_weights = ep.dispatch_backward(y, routing, w)
        assert torch.equal(made, home) and torch.equal(made_weights, home_weights)


@pytest.mark.parametrize("is_begun", ["combine", "dispatch"])
def test_a_routing_that_is_on_its_way_is_waited_for(comm, route, given, is_begun):
    rows, _, routing = ep.dispatch(given.x, given.ids, None, route)
    few, wanted = rows[: int(routing.offsets[-1])], ep.combine(rows, routing)
    ep.route(given.ids.flip(1), route)
    if is_begun == "combine":
        works = [ep.combine_start(rows, routing)]
    else:
        works = [ep.dispatch_start(given.x, given.ids, None, route)]
        routing = works[0].tensors[2]
    works.append(ep.combine_start(few, routing))
    assert torch.equal(works.pop().wait(), wanted)
    works.pop().wait()


@pytest.mark.parametrize("zero_unused", [False, True])
def test_gradients_have_as_many_rows_as_combine_had(comm, make_route, given, zero_unused):
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS, zero_unused=zero_unused)
    rows, row_weights, routing = ep.dispatch(given.x, given.ids, given.weights, route)
    rows, row_weights = rows.detach(), torch.arange(len(rows), dtype=torch.float32)
    used = int(routing.offsets[-1])
    wanted, wanted_weights = ep.combine_backward(given.grad, routing, rows, row_weights)
    for num in sizes_of(routing):
        y = resized(rows, num).requires_grad_()
        w = resized(row_weights, num + 2 if num > used else num).requires_grad_()
        ep.combine(y, routing, w).backward(given.grad)
        assert torch.equal(y.grad[:used], wanted[:used])
        assert torch.equal(w.grad[:used], wanted_weights[:used])
        assert y.grad.shape == y.shape and w.grad.shape == w.shape
        if zero_unused:
            assert not y.grad[used:].any() and not w.grad[used:].any()


@pytest.mark.parametrize("is_current", [False, True])
def test_fewer_rows_are_refused(comm, route, given, is_current):
    """On all ranks here: one that is refused alone would leave the others waiting."""
    if comm.on_device:
        pytest.skip("on a GPU the host does not know how many rows there are")
    ids = torch.arange(E)[:, None].expand(E, K).contiguous()  # rows for each expert
    x, weights = torch.ones(E, H), torch.ones(E, K)
    rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    wanted = ep.combine(rows, routing)
    num = int(routing.offsets[-1]) - 1
    few, w = rows[:num], row_weights[:num, 0] if route.layout == "rank" else row_weights[:num]
    for text, call in (
        ("combine: y has", lambda: ep.combine(few, routing)),
        ("combine: y has", lambda: ep.combine_start(few, routing)),
        ("row_weights has", lambda: ep.combine(rows, routing, w)),
        ("grad of rows has", lambda: ep.dispatch_backward(few, routing)),
        ("grad of row_weights has", lambda: ep.dispatch_backward(rows, routing, row_weights[:num])),
        ("y has", lambda: ep.combine_backward(x, routing, few)),
        ("row_weights has", lambda: ep.combine_backward(x, routing, rows, w)),
    ):
        if not is_current:
            ep.route(ids.flip(0), route)
        with refused(text):
            call()
    assert torch.equal(ep.combine(rows, routing), wanted)


def test_fewer_rows_than_an_exact_routing_has_are_refused_anywhere(comm, route):
    ids = torch.arange(E)[:, None].expand(E, K).contiguous()
    routing = ep.route(ids, route, exact=True)
    rows, _, routing = ep.dispatch_by(torch.ones(E, H), routing)
    for call in ep.combine, ep.dispatch_backward:
        with refused("rows"):
            call(rows[:-1], routing)


def test_slabs_take_more_rows_and_not_fewer(comm, make_route, given):
    route = make_route(experts=E, top_k=K, max_tokens=16, layout="slab", rows_per_expert=ROOM)
    rows, _, routing = ep.dispatch(given.x, given.ids, None, route)
    wanted = ep.combine(rows, routing)
    assert torch.equal(ep.combine(resized(rows, len(rows) + 3), routing), wanted)
    with refused("y has"):
        ep.combine(rows[:-1], routing)
