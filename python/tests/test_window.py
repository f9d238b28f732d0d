# SPDX-License-Identifier: BSD-3-Clause
"""Tensors in reserved memory: where they lie, when it comes back; no byte depends on it."""

import contextlib
from pathlib import Path

import dense
import pytest
import torch
from windows import expect, take

import epx
import epx.torch as ep
from epx import Code, _core

H, K, E, MAX_TOKENS = 64, 3, 5, 20
SUMMED = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
ROUTE = dict(experts=E, top_k=K, max_tokens=MAX_TOKENS)


@pytest.fixture
def given(comm):
    return dense.tokens_of(comm.rank, (dense.num_tokens(comm.rank), H, K, E))


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()


@contextlib.contextmanager
def route_on(comm, **attributes):
    route = epx.Route(comm, **(ROUTE | attributes))
    yield route
    route.free()


def layer(route, given, dtype, microbatches=2):
    """All bytes that a layer makes, for some microbatches in flight on the route."""
    made, begun = [], []
    for _ in range(microbatches):
        x, weights = leaf(given.x.to(dtype)), leaf(given.weights)
        rows, row_weights, routing = ep.dispatch(x, given.ids, weights, route)
        begun.append((x, weights, rows, row_weights, routing))
    for x, weights, rows, row_weights, routing in begun:
        used = int(routing.offsets[-1])
        y = torch.tanh(torch.cat([rows[:used], torch.zeros_like(rows[used:])]))
        y.retain_grad()
        out = ep.combine(y, routing, row_weights if route.layout == "expert" else None)
        loss = (out * given.grad.to(dtype)).sum()
        if route.layout == "rank":
            loss = loss + row_weights[:used].sum()
        loss.backward()
        made += [rows.detach()[:used].clone(), row_weights.detach()[:used].clone()]
        made += [out.detach(), x.grad, weights.grad, y.grad[:used].clone()]
    return made


def assert_same_bytes(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def bytes_of_rows(route, dtype):
    return route.capacity * H * dtype.itemsize


@pytest.mark.parametrize("room", ["ample", "for one of two", "none", "on rank 0 alone"])
@pytest.mark.parametrize("layout", ["expert", "rank"])
@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_every_result_is_the_same_bytes(comm, make_comm, given, dtype, layout, room):
    alignment = 4 if layout == "expert" else 1
    with route_on(comm, layout=layout, alignment=alignment) as route:
        wanted = layer(route, given, dtype)
        one = bytes_of_rows(route, dtype)
    here = {"ample": 8 * one, "for one of two": one, "none": 512}
    other = make_comm(here.get(room, 8 * one if comm.rank == 0 else 0))
    with route_on(other, layout=layout, alignment=alignment) as route:
        made = layer(route, given, dtype)
    assert_same_bytes(made, wanted)
    has_room = room == "ample" or (room == "on rank 0 alone" and comm.rank == 0)
    refused = 0 if has_room else 1 if room == "for one of two" else 2
    assert other.reserved().refused == refused


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_rows_that_are_only_sent_are_the_same_bytes(comm, make_comm, given, dtype):
    x = given.x.abs().to(dtype)
    other = make_comm(1 << 18)
    with route_on(comm) as one, route_on(other) as two:
        wanted, _, routing = ep.dispatch(x, given.ids, None, one)
        rows, _, _ = ep.dispatch(x, given.ids, None, two)
        used = int(routing.offsets[-1])
        assert rows.dtype == dtype and other.reserved().parts == 1
        assert_same_bytes([rows[:used]], [wanted[:used]])
        del rows


def test_rows_lie_in_the_window(make_comm, given):
    comm = make_comm(1 << 18)
    whole = take(comm, 1 << 18)
    start, end = whole.data_ptr(), whole.data_ptr() + (1 << 18)
    assert comm.is_reserved(start, 1 << 18) and comm.is_reserved(end - 1, 1)
    assert not comm.is_reserved(start, (1 << 18) + 1) and not comm.is_reserved(start - 1, 1)
    assert not comm.is_reserved(end, 1) and not comm.is_reserved(start, -1)
    del whole
    with route_on(comm) as route:
        rows, _, _ = ep.dispatch(given.x, given.ids, None, route)
        last = rows.data_ptr() + rows.numel() * rows.element_size()
        assert start <= rows.data_ptr() and last <= end
        assert comm.is_reserved(rows.data_ptr(), rows.nbytes)
        assert rows.is_contiguous() and not rows._is_view()
        again, _, _ = ep.dispatch(given.x, given.ids, None, route)
        assert comm.reserved().parts == 2
        assert again.data_ptr() >= last or again.data_ptr() < rows.data_ptr()
        del rows, again
    assert comm.reserved()._replace(refused=0) == (1 << 18, 0, 0, 0, -1)


def pages_of_windows(but):
    """Bytes of the pages that this rank has touched in windows, without those of one address."""
    total, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            start, end = (int(word, 16) for word in words[0].split("-"))
            counts = "/epx-" in line and not start <= but < end
        elif counts and words[0] == "Rss:":
            total += int(words[1]) * 1024
    return total


def pages_of_a_dispatch(comm, wide, size):
    """How many bytes of the library's own windows a dispatch touched for the first time."""
    count = len(wide)
    ids = torch.full((count, 1), (comm.rank + 1) % size)
    with route_on(comm, experts=size, top_k=1, max_tokens=count) as route:
        ep.dispatch(wide[:, :1], ids, None, route)
        part = take(comm, 1)
        address = 0 if part is None else part.data_ptr()
        before = pages_of_windows(address)
        rows, _, _ = ep.dispatch(wide, ids, None, route)
        after = pages_of_windows(address)
        source = (comm.rank - 1) % size
        assert torch.equal(rows[:count], wide - comm.rank + source)
        del rows
    return after - before


def test_no_row_goes_through_a_stage(comm, make_comm):
    """The pages of the stages stay untouched: the other rank stored straight into the tensor."""
    if comm.size == 1 or comm.hint("transport") != "shm":
        pytest.skip("there is no other rank, or none that can store")
    wide = torch.arange(256 * 2048.0).reshape(256, 2048) + comm.rank
    staged = pages_of_a_dispatch(make_comm(None), wide, comm.size)
    room = comm.size * wide.numel() * 4 + 4096
    direct = pages_of_a_dispatch(make_comm(room), wide, comm.size)
    if b"0" in _core.gather(b"1" if staged else b"0", comm.size):
        pytest.skip("the pages of the stages were touched when they were made")
    assert staged >= 256 << 10
    assert direct == 0


def test_a_thousand_layers_fit_where_one_does(make_comm, given):
    comm = make_comm(None)
    with route_on(comm) as route:
        comm.reserve(bytes_of_rows(route, torch.float32) + 512)
        for _ in range(1000):
            x = leaf(given.x.float())
            rows, row_weights, routing = ep.dispatch(x, given.ids, given.weights, route)
            ep.combine(torch.tanh(rows), routing, row_weights).sum().backward()
            del rows, row_weights, routing
        assert comm.reserved()[1:4] == (0, 0, 0)


def test_a_routing_without_rows_takes_nothing(make_comm, given):
    comm = make_comm(1 << 18)
    with route_on(comm, overflow="drop") as route:
        route.set_capacity(0)
        rows, _, _ = ep.dispatch(given.x, given.ids, None, route)
        assert rows.shape == (0, H)
        route.set_capacity(route.max_capacity)
        rows, _, _ = ep.dispatch(given.x[:, :0], given.ids, None, route)
        assert rows.shape == (route.capacity, 0)
    assert comm.reserved()[1:4] == (0, 0, 0)


def test_communicators_have_their_own(make_comm, given):
    one, two = make_comm(1 << 18), make_comm(1 << 18)
    with route_on(one) as first, route_on(two) as second:
        rows, _, _ = ep.dispatch(given.x, given.ids, None, first)
        assert (one.reserved().parts, two.reserved().parts) == (1, 0)
        others, _, routing = ep.dispatch(given.x, given.ids, None, second)
        assert (one.reserved().parts, two.reserved().parts) == (1, 1)
        used = int(routing.offsets[-1])
        assert torch.equal(rows[:used], others[:used])
        del rows
        assert (one.reserved().parts, two.reserved().parts) == (0, 1)
        one.close()
        assert torch.equal(ep.combine(others, routing), ep.combine(others.clone(), routing))
        del others


def test_closing_waits_for_tensors_of_any_rank(given):
    made = epx.Comm()
    made.reserve(1 << 18)
    route = epx.Route(made, **ROUTE)
    last = made.size - 1
    rows, _, routing = ep.dispatch(given.x, given.ids, None, route)
    kept = rows if made.rank == last else None
    del rows
    for _ in range(2):
        expect(Code.PENDING, f"parts: 1 on rank {last}\\.", made.close)
    assert not route.is_freed
    rows, _, routing = ep.dispatch(given.x, given.ids, None, route)
    assert made.reserved().parts == 1 + (kept is not None), "it takes memory again"
    assert torch.equal(ep.combine(rows, routing), given.x * (given.ids >= 0).sum(1, keepdim=True))
    del rows, kept
    made.close()
    assert route.is_freed
    made.close()


def test_a_graph_of_autograd_holds_tensors(given):
    made = epx.Comm()
    made.reserve(1 << 18)
    route = epx.Route(made, **ROUTE)
    x, weights = leaf(given.x), leaf(given.weights)
    rows, row_weights, routing = ep.dispatch(x, given.ids, weights, route)
    out = ep.combine(rows, routing, row_weights)  # saved for the gradient of row_weights
    del rows, row_weights, routing
    expect(Code.PENDING, "autograd", made.close)
    out.sum().backward()
    made.close()
    assert x.grad is not None


def test_after_a_time_out_each_rank_closes_alone(comm, given):
    if comm.size == 1:
        pytest.skip("there is no other rank")
    made = epx.Comm(timeout_ms=500)
    made.reserve(1 << 18)
    route = epx.Route(made, **ROUTE)
    rows, _, routing = ep.dispatch(given.x, given.ids, None, route)
    used = int(routing.offsets[-1])
    wanted = rows[:used].clone()
    if comm.rank > 0:
        expect(Code.TIMEOUT, "rank 0", ep.dispatch, given.x, given.ids, None, route)
    _core.gather(b".", comm.size)
    expect(Code.PENDING, f"parts: 1 on rank {comm.rank}\\.", made.close)
    assert torch.equal(rows[:used], wanted), "memory stays under tensors"
    if comm.rank > 0:
        expect(Code.TIMEOUT, "rank 0", made.reserve, 4096)
    del rows
    made.close()
    expect(Code.COMM, "closed", made.check)


def test_a_compiled_layer_takes_no_more(make_comm, given):
    comm = make_comm(1 << 18)
    with route_on(comm) as route:

        def run(x, weights):
            rows, row_weights, routing = ep.dispatch(x, given.ids, weights, route)
            return ep.combine(torch.tanh(rows), routing, row_weights)

        results = []
        for call in run, torch.compile(run, fullgraph=True, backend="aot_eager"):
            x, weights = leaf(given.x), leaf(given.weights)
            out = call(x, weights)
            out.backward(given.grad)
            results.append([out.detach(), x.grad, weights.grad])
            del out
        assert_same_bytes(*results)
    assert comm.reserved()[1:4] == (0, 0, 0)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad], ids=str)
def test_other_modes_of_torch(make_comm, given, mode):
    comm = make_comm(1 << 18)
    with route_on(comm) as route, mode():
        rows, _, routing = ep.dispatch(given.x, given.ids, None, route)
        assert comm.is_reserved(rows.data_ptr(), rows.nbytes)
        assert rows.is_inference() == torch.is_inference_mode_enabled()
        rows[int(routing.offsets[-1]) :] = 0
        rows.mul_(2)
        out = ep.combine(rows, routing)
        assert torch.equal(out, 2 * given.x * (given.ids >= 0).sum(1, keepdim=True))
        del rows
