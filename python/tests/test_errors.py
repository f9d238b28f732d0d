# SPDX-License-Identifier: BSD-3-Clause
"""What is wrong is an EPXError with a code and EPX's text, on the ranks that the text promises."""

import contextlib
import re

import dense
import pytest
import torch

import epx
import epx.torch as ep
from epx import Code, EPXError

H, K, E = 4, 2, 5


@pytest.fixture
def route(make_route):
    return make_route(experts=E, top_k=K, max_tokens=8)


@pytest.fixture
def given(comm):
    return dense.tokens_of(comm.rank, (6, H, K, E), 1)


def expect(code, text, call, *arguments):
    with pytest.raises(EPXError) as caught:
        call(*arguments)
    assert caught.value.code == code
    assert re.search(text, str(caught.value))


def still_works(route, given):
    rows, row_weights, routing = ep.dispatch(given.x, given.ids, given.weights, route)
    ep.combine(rows, routing, row_weights)


@pytest.mark.parametrize(
    "change, code, text",
    [
        ({"x": lambda x: x[0]}, Code.COUNT, "x has 1 dimensions"),
        ({"x": lambda x: x[:3]}, Code.COUNT, r"x is \[3, 4\], want \[6, 4\]"),
        ({"x": lambda x: x.to(torch.complex64)}, Code.TYPE, "x is of type unknown"),
        ({"x": lambda x: x.bool()}, Code.TYPE, "x is of type unknown"),
        ({"x": lambda x: x.cfloat()}, Code.TYPE, "x is of type unknown"),
        ({"ids": lambda ids: ids[:, :1]}, Code.COUNT, r"ids is \[6, 1\], want \[6, 2\]"),
        ({"ids": lambda ids: ids[0]}, Code.COUNT, r"ids is \[2, 1\]"),
        ({"ids": lambda ids: ids.double()}, Code.TYPE, "ids is of type float64, want int64"),
        ({"ids": lambda ids: ids[None]}, Code.COUNT, "ids has 3 dimensions"),
        ({"weights": lambda w: w[:3]}, Code.COUNT, r"weights is \[3, 2\], want \[6, 2\]"),
        ({"weights": lambda w: w[:, :1]}, Code.COUNT, r"weights is \[6, 1\], want \[6, 2\]"),
        ({"weights": lambda w: w.double()}, Code.TYPE, "weights is of type float64, want float32"),
        (
            {"weights": lambda w: w.to("meta")},
            Code.BUFFER,
            "x is on (cpu|cuda:.), weights is on meta",
        ),
    ],
)
def test_what_dispatch_refuses(route, given, change, code, text):
    arguments = {"x": given.x, "ids": given.ids, "weights": given.weights}
    for name, function in change.items():
        arguments[name] = function(arguments[name])
    expect(code, text, ep.dispatch, *arguments.values(), route)
    still_works(route, given)


@pytest.mark.parametrize(
    "change, code, text",
    [
        (lambda s: s[:-1], Code.COUNT, "scales is"),
        (lambda s: s[:, 0], Code.COUNT, "scales has 1 dimensions"),
        (lambda s: s.to(torch.complex64), Code.TYPE, "scales are of type unknown"),
        (lambda s: s.requires_grad_(), Code.TYPE, "scales require a gradient"),
    ],
)
def test_what_dispatch_refuses_of_scales(route, given, change, code, text):
    scales = change(given.x[:, :2].float())

    def call():
        ep.dispatch(given.x, given.ids, None, route, scales=scales)

    expect(code, text, call)
    still_works(route, given)


def test_too_many_tokens_are_refused(route, given):
    many = [torch.cat([each, each]) for each in (given.x, given.ids, given.weights)]
    expect(Code.COUNT, "12", ep.dispatch, *many, route)
    still_works(route, given)


@pytest.mark.parametrize(
    "change, code, text",
    [
        ({"y": lambda y: y[0]}, Code.COUNT, "y has 1 dimensions"),
        ({"y": lambda y: y.to(torch.uint8)}, Code.TYPE, "uint8, which cannot be added"),
        ({"y": lambda y: y.to(torch.float8_e5m2)}, Code.TYPE, "which cannot be added"),
        ({"row_weights": lambda w: w.double()}, Code.TYPE, "row_weights is of type float64"),
    ],
)
def test_what_combine_refuses(route, given, change, code, text):
    rows, row_weights, routing = ep.dispatch(given.x, given.ids, given.weights, route)
    arguments = {"y": rows, "routing": routing, "row_weights": row_weights}
    for name, function in change.items():
        arguments[name] = function(arguments[name])
    expect(code, text, ep.combine, *arguments.values())
    still_works(route, given)


def test_a_routing_of_other_extents_is_refused(route, given):
    rows, _, routing = ep.dispatch(given.x, given.ids, None, route)
    few = routing._replace(ids=routing.ids[:3])
    expect(Code.COUNT, "3 tokens", ep.combine, rows, few)
    small = routing._replace(capacity=2)
    expect(Code.COUNT, "capacity 2", ep.combine, rows[:2], small)
    still_works(route, given)


def test_a_key_that_no_dispatch_gave_is_refused_or_routes(route, given):
    rows, row_weights, routing = ep.dispatch(given.x, given.ids, given.weights, route)
    wanted = ep.combine(rows, routing, row_weights)
    for key in routing.key[:0], routing.key.int(), routing.key.double():
        expect(Code.BUFFER, "routing.key", ep.combine, rows, routing._replace(key=key))
    none = routing._replace(key=torch.zeros(1, dtype=torch.int64, device="cpu"))
    ep.dispatch(given.x, torch.full_like(given.ids, -1), None, route)
    assert torch.equal(ep.combine(rows, none, row_weights), wanted)


def test_a_refused_dispatch_leaves_the_routing(route, given):
    rows, row_weights, routing = ep.dispatch(given.x, given.ids, given.weights, route)
    wanted = ep.combine(rows, routing, row_weights)
    route.set_capacity(route.max_capacity - 1)
    many = [torch.cat([each, each]) for each in (given.x, given.ids, given.weights)]
    expect(Code.COUNT, "12", ep.dispatch, *many, route)
    assert torch.equal(ep.combine(rows, routing, row_weights), wanted)


def test_a_wrong_gradient_is_refused(comm, route, given):
    rows, _, routing = ep.dispatch(given.x, given.ids, None, route)
    place = routing.ids, routing.key, route.index, route.capacity
    ops = torch.ops.epx
    expect(Code.COUNT, "grad of out", ops.combine_backward, given.grad[:3], None, None, *place)
    if not comm.on_device:  # where nobody waits to learn how many rows there are
        expect(Code.COUNT, "grad of rows", ops.dispatch_backward, rows[:3], None, *place)
    still_works(route, given)


def test_fp8_that_wants_a_gradient_is_refused(route, given):
    x = given.x.to(torch.float8_e4m3fn).requires_grad_()
    expect(Code.TYPE, "requires a gradient", ep.dispatch, x, given.ids, given.weights, route)
    still_works(route, given)


def test_a_bad_id_is_told_on_its_rank(comm, route, given, told):
    ids = given.ids.clone()
    if comm.rank == comm.size - 1:
        ids[2, 1] = E
        told(Code.ARG, f"{E}", ep.dispatch, given.x, ids, given.weights, route)
    else:
        ep.dispatch(given.x, ids, given.weights, route)
    still_works(route, given)


def test_overflow_is_told_on_all_ranks(comm, make_route, given, told):
    capacity = 1 if comm.rank == 0 else None
    route = make_route(experts=E, top_k=K, max_tokens=8, capacity=capacity)
    told(Code.TRUNCATE, "rank 0", ep.dispatch, given.x, given.ids, given.weights, route)
    none = torch.full_like(given.ids, -1)
    rows, _, routing = ep.dispatch(given.x, none, None, route)
    assert not ep.combine(rows, routing).any()


def test_a_mismatch_is_told_on_all_ranks(comm, route, given, told):
    if comm.size == 1:
        pytest.skip("there is no other rank")
    x = given.x[:, :3] if comm.rank == 0 else given.x
    told(Code.ARG, "rank 0", ep.dispatch, x, given.ids, given.weights, route)
    still_works(route, given)


def test_a_row_longer_than_the_route_allows_is_told(comm, given):
    row_bytes = given.x[0].nbytes
    for max_row_bytes, allowed in ((row_bytes, True), (row_bytes - 1, False)):
        route = epx.Route(comm, E, K, max_tokens=8, max_row_bytes=max_row_bytes)
        assert route.max_row_bytes == max_row_bytes
        if allowed:
            still_works(route, given)
        else:
            arguments = given.x, given.ids, given.weights, route
            expect(Code.COUNT, "max_row_bytes", ep.dispatch, *arguments)
        route.free()


def test_a_freed_route_is_told(comm, given):
    route = epx.Route(comm, experts=E, top_k=K, max_tokens=8)
    x = given.x.clone().requires_grad_()
    rows, row_weights, routing = ep.dispatch(x, given.ids, given.weights, route)
    out = ep.combine(rows, routing, row_weights)
    route.free()
    route.free()
    expect(Code.ROUTE, "freed", ep.dispatch, given.x, given.ids, given.weights, route)
    expect(Code.ROUTE, "freed", ep.combine, rows, routing)
    expect(Code.ROUTE, "freed", out.sum().backward)


def test_a_closed_communicator_is_told(given):
    comm = epx.Comm()
    route = epx.Route(comm, experts=E, top_k=K, max_tokens=8)
    comm.close()
    expect(Code.ROUTE, "freed", ep.dispatch, given.x, given.ids, given.weights, route)
    expect(Code.COMM, "closed", comm.check)


def test_a_rank_that_does_not_come_is_told(comm, given, told):
    if comm.size == 1:
        pytest.skip("there is no other rank")
    short = epx.Comm(timeout_ms=500)
    route = epx.Route(short, experts=E, top_k=K, max_tokens=8)
    if short.rank > 0:
        arguments = given.x, given.ids, given.weights, route
        told(Code.TIMEOUT, "rank 0", ep.dispatch, *arguments, by=short)
        expect(Code.TIMEOUT, "rank 0", ep.dispatch, *arguments)
    epx._core.gather(b".", comm.size)  # rank 0 is here already
    with contextlib.suppress(EPXError):  # it is closed all the same
        short.close()
    expect(Code.COMM, "closed", short.check)


def test_a_full_slab_is_told_by_its_expert(comm, make_route, given, told):
    attributes = dict(experts=E, top_k=K, max_tokens=8, layout="slab")
    route = make_route(rows_per_expert=1, **attributes)
    ids = torch.full_like(given.ids, E - 1)
    said = f"expert {E - 1} needs room for {comm.size * ids.numel()} rows, rows_per_expert is 1"
    told(Code.TRUNCATE, said, ep.dispatch, given.x, ids, given.weights, route)


def test_ranks_that_shrank_tell_each_other_numbers(comm):
    """They have nothing but EPX for that, on a GPU by memory of it."""
    whole = epx.Comm()
    made = whole.shrink()
    assert made.largest(10 * made.rank - 5) == 10 * made.size - 15
    made.reserve(4 << 20)  # on a GPU torch takes 2 MiB at a time
    kept = made.empty((4,), torch.float32)
    expect(Code.PENDING, "reserved", made.close)
    del kept
    made.close()
    whole.close()
