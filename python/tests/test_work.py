# SPDX-License-Identifier: BSD-3-Clause
"""Operations that return a Work: several in flight, waited for in any order."""

import contextlib
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dense
import pytest
import torch
from sparse import leaf, shown

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


@pytest.mark.parametrize("between", [False, True], ids=["alone", "another between"])
@pytest.mark.parametrize("layout", ["expert", "rank"])
def test_a_work_shows_its_own_routing(comm, make_route, layout, between):
    """Over and over: on a GPU what a routing shows is copied beside the current stream.

    With another dispatch of the route between, on the current stream, the route shows that one.
    """
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=layout)
    batches = [given_of(comm, seed) for seed in range(1, 5)]
    wanted = [ep.dispatch(g.x, g.ids, g.weights, route)[2] for g in batches]
    routings = []
    for _ in range(20):
        for given in batches:
            work = ep.dispatch_start(given.x, given.ids, given.weights, route)
            if between:
                ep.dispatch(batches[0].x, batches[0].ids, batches[0].weights, route)
            routings.append(work.wait()[2])
    equal = [
        torch.equal(one, other)
        for at, ours in enumerate(routings)
        for one, other in zip(shown(ours), shown(wanted[at % 4]))
    ]
    assert len(equal) == 20 * 4 * 3
    assert all(equal), f"{equal.count(False)} of {len(equal)} tensors"


def quantized(given, dtype=torch.float8_e4m3fn):
    """Rows of a narrow type, and two scales for each."""
    return given.x.to(dtype), given.x[:, :2].float() / 4


def bytes_of(tensor):
    return tensor.detach().contiguous().view(torch.uint8)


@pytest.mark.parametrize("layout", ["expert", "rank", "slab"])
@pytest.mark.parametrize("backwards", [False, True])
def test_scales_in_flight_are_the_same_bytes(comm, make_route, layout, backwards):
    """Every other Work has scales; without a row that nothing is written to, all bytes compare."""
    room = comm.size * MAX_TOKENS * K if layout == "slab" else 0
    attributes = dict(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=layout, zero_unused=True)
    route = make_route(rows_per_expert=room, **attributes)
    batches = [given_of(comm, seed) for seed in range(1, 5)]

    def given(at):
        x, scales = quantized(batches[at])
        more = {"scales": scales} if at % 2 == 0 else {}
        return (x, batches[at].ids, batches[at].weights, route), more

    wanted = [ep.dispatch(*plain, **more) for plain, more in map(given, range(4))]
    works = [ep.dispatch_start(*plain, **more) for plain, more in map(given, range(4))]
    order = range(4)[::-1] if backwards else range(4)
    results = {at: works[at].wait() for at in order}
    for at, (rows, row_weights, routing) in enumerate(wanted):
        ours, our_weights, our_routing = results[at]
        rows, ours = (each if at % 2 == 0 else (each,) for each in (rows, ours))
        assert len(ours) == len(rows)
        for one, other in zip(ours, rows):
            assert one.dtype == other.dtype and one.shape == other.shape
            assert torch.equal(bytes_of(one), bytes_of(other))
        assert torch.equal(our_weights, row_weights)
        assert torch.equal(our_routing.offsets, routing.offsets)
        assert torch.equal(our_routing.counts, routing.counts)
        assert torch.equal(our_routing.row_experts, routing.row_experts)
    assert comm.size > 1 or all(results[at][0][1].any() for at in (0, 2)), "scales arrived"


def test_scales_of_a_work_are_each_rows_own(comm, make_route):
    """Row and scale say which token they are of; neither is taken from the other call."""
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    given = given_of(comm)
    number = 1 + torch.arange(len(given.x)).float() + 100 * comm.rank
    x, scales = number[:, None].expand(-1, H).to(torch.bfloat16), number[:, None]
    (rows, row_scales), _, routing = ep.dispatch_start(
        x, given.ids, None, route, scales=scales
    ).wait()
    used = int(routing.offsets[-1])
    assert row_scales.shape == (route.capacity, 1) and not row_scales.requires_grad
    assert torch.equal(row_scales[:used].to(torch.bfloat16), rows[:used, :1])
    assert (row_scales[:used] > 0).all()


def test_gradients_of_a_work_with_scales(comm, make_route):
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    given = given_of(comm)
    x, weights = leaf(given.x), leaf(given.weights)
    scales = given.x[:, :1].float()
    work = ep.dispatch_start(x, given.ids, weights, route, scales=scales)
    (rows, row_scales), row_weights, routing = work.wait()
    assert not row_scales.requires_grad
    ep.combine(experts_of(rows, routing), routing, row_weights).backward(given.grad)
    _, grad_x, grad_weights = at_once(given, route)
    assert torch.equal(x.grad, grad_x) and torch.equal(weights.grad, grad_weights)


@pytest.mark.parametrize(
    "change, code, text",
    [
        (lambda s: torch.cat([s, s[:1]]), Code.COUNT, r"scales is \[7, 2\], want \[6, 2\]"),
        (lambda s: s[:, 0], Code.COUNT, "scales has 1 dimensions, want 2"),
        (lambda s: s > 0, Code.TYPE, "scales are of type unknown"),
        (lambda s: s.to("meta"), Code.BUFFER, "x is on .*, scales is on meta"),
        (lambda s: s.clone().requires_grad_(), Code.TYPE, "scales require a gradient"),
    ],
)
def test_wrong_scales_are_refused_before_anything_begins(comm, make_route, change, code, text):
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    given = dense.tokens_of(comm.rank, (6, H, K, E))
    x, scales = quantized(given)
    first = ep.dispatch_start(x, given.ids, given.weights, route, scales=scales)
    with pytest.raises(EPXError, match=text) as caught:
        ep.dispatch_start(x, given.ids, given.weights, route, scales=change(scales))
    assert caught.value.code == code
    assert comm.works == [first]
    first.wait()
    ep.dispatch_start(x, given.ids, given.weights, route, scales=scales).wait()


def test_scales_on_some_ranks_only_are_told_by_wait(comm, make_route):
    if comm.on_device or comm.size == 1:
        pytest.skip("there is no other rank, or Comm.check() tells it")
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    given = given_of(comm)
    x, scales = quantized(given)
    more = {} if comm.rank == 0 else {"scales": scales}
    work = ep.dispatch_start(x, given.ids, None, route, **more)
    with pytest.raises(EPXError, match="rank 0") as caught:
        work.wait()
    assert caught.value.code == Code.ARG
    ep.dispatch_start(x, given.ids, None, route, scales=scales).wait()


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


@contextlib.contextmanager
def interrupted():
    """Ctrl-C reaches this rank half a second from now, and ends what it does within another."""
    begin = time.monotonic()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    timer.join()
    assert 0.4 < time.monotonic() - begin < 2


def interruptible(comm):
    if comm.size == 1 or comm.on_device:
        pytest.skip("nothing waits on the host")
    made = epx.Comm(timeout_ms=30000)
    return made, epx.Route(made, experts=E, top_k=K, max_tokens=MAX_TOKENS)


@pytest.mark.parametrize("reserved", [False, True])
def test_ctrl_c_ends_the_wait_of_an_operation(comm, reserved):
    """Its rows still reach the others, and its tensors live until it has ended."""
    made, route = interruptible(comm)
    given = given_of(comm)
    if reserved:
        made.reserve(1 << 20)
    if comm.rank == 0:
        with interrupted():
            ep.dispatch(given.x, given.ids, given.weights, route)
        assert len(made.works) == 1 and (not reserved or made.reserved().parts == 1)
    epx._core.gather(b".", comm.size)
    if comm.rank > 0:
        ep.dispatch(given.x, given.ids, given.weights, route)
    rows, row_weights, routing = ep.dispatch(given.x, given.ids, None, route)
    counts = routing.counts.tolist()
    assert made.stats().calls == 2
    del rows, row_weights, routing
    made.close()
    again = epx.Route(comm, experts=E, top_k=K, max_tokens=MAX_TOKENS)
    assert ep.dispatch(given.x, given.ids, None, again)[2].counts.tolist() == counts
    again.free()


def test_ctrl_c_ends_the_wait_of_a_backward(comm):
    made, route = interruptible(comm)
    given = given_of(comm)
    rows, row_weights, routing = ep.dispatch(given.x, given.ids, given.weights, route)
    y = leaf(torch.zeros_like(rows))
    out = ep.combine(y, routing, row_weights)
    if comm.rank == 0:
        with interrupted():
            out.backward(given.grad)
    epx._core.gather(b".", comm.size)
    if comm.rank > 0:
        out.backward(given.grad)
    made.close()


def test_ctrl_c_in_wait_leaves_the_work(comm):
    made, route = interruptible(comm)
    given = given_of(comm)
    if comm.rank == 0:
        work = ep.dispatch_start(given.x, given.ids, given.weights, route)
        with interrupted():
            work.wait()
        assert made.works == [work]
    epx._core.gather(b".", comm.size)
    if comm.rank > 0:
        work = ep.dispatch_start(given.x, given.ids, given.weights, route)
    rows, row_weights, routing = work.wait()
    assert not made.works
    wanted, wanted_weights, wanted_routing = ep.dispatch(given.x, given.ids, given.weights, route)
    used = routing.offsets[-1]
    assert torch.equal(rows[:used], wanted[:used])
    assert torch.equal(row_weights[:used], wanted_weights[:used])
    for one, other in zip(shown(routing), shown(wanted_routing)):
        assert torch.equal(one, other)
    made.close()


@pytest.mark.parametrize("combine", [ep.combine, ep.combine_start])
def test_ctrl_c_ends_the_wait_for_the_rows_of_a_routing(comm, combine):
    """The combine has not begun, and can be called again."""
    made, route = interruptible(comm)
    given = given_of(comm)
    rows, _, routing = ep.dispatch(given.x, given.ids, None, route)
    few, wanted = rows[: int(routing.offsets[-1])], ep.combine(rows, routing)
    if comm.rank == 0:
        work = ep.dispatch_start(given.x, given.ids, None, route)
        with interrupted():
            combine(few, work.tensors[2])
        assert made.works == [work]
    epx._core.gather(b".", comm.size)
    if comm.rank > 0:
        work = ep.dispatch_start(given.x, given.ids, None, route)
    assert torch.equal(ep.combine(few, work.tensors[2]), wanted)
    work.wait()
    made.close()
