# SPDX-License-Identifier: BSD-3-Clause
"""The ops as torch's compiler, checkpoints and opcheck see them."""

import dense
import pytest
import torch
from sparse import layer, leaf, step

import epx
import epx.torch as ep

H, K, E = 4, 2, 5
CHECKS = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_dynamic",
)
# Two calls of dispatch have different keys, small integers: values are so large that only
# keys are near each other.
SCALE, NEAR = 1000.0, 100.0


@pytest.fixture
def route(make_route):
    return make_route(experts=E, top_k=K, max_tokens=8, alignment=2, zero_unused=True)


def tokens(comm, seed=1, num=6):
    return dense.tokens_of(comm.rank, (num, H, K, E), seed)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["dispatch", "combine"])
@pytest.mark.parametrize("wants_gradients", [False, True])
def test_opcheck(comm, route, name, check, wants_gradients):
    given = tokens(comm)
    x, weights = given.x * SCALE, given.weights * SCALE
    rows, row_weights, routing = ep.dispatch(x, given.ids, weights, route)
    if wants_gradients:
        x, weights, rows, row_weights = (leaf(each) for each in (x, weights, rows, row_weights))
    arguments = {
        "dispatch": (x, given.ids, weights, route.index, route.capacity),
        "combine": (rows, row_weights, *routing[:2], routing.tie, route.index, route.capacity),
    }[name]
    op = getattr(torch.ops.epx, name).default
    torch.library.opcheck(op, arguments, test_utils=check, rtol=1e-12, atol=NEAR)
    if name == "dispatch":
        scaled = *arguments, given.x[:, :2].detach().float()
        torch.library.opcheck(op, scaled, test_utils=check, rtol=1e-12, atol=NEAR)


@pytest.mark.parametrize("check", CHECKS)
def test_opcheck_of_the_backwards(comm, route, check):
    given = tokens(comm)
    rows, row_weights, routing = ep.dispatch(given.x, given.ids, given.weights, route)
    place = routing.ids, routing.key, route.index, route.capacity
    ops = torch.ops.epx
    for op, arguments in (
        (ops.dispatch_backward.default, (rows, row_weights, *place)),
        (ops.dispatch_backward.default, (rows, None, *place)),
        (ops.combine_backward.default, (given.grad, rows, row_weights, *place)),
        (ops.combine_backward.default, (given.grad, None, None, *place)),
    ):
        torch.library.opcheck(op, arguments, test_utils=check)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_layer_gives_the_same_bytes(comm, route, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for seed, num in (1, 6), (2, 6), (3, 4):
        given = tokens(comm, seed, num)
        for ours, wanted in zip(step(given, route, compiled), step(given, route)):
            assert torch.equal(ours, wanted)


def test_a_compiled_layer_sees_a_new_capacity(comm, route):
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    given = tokens(comm)
    wanted = step(given, route, compiled)
    route.set_capacity(route.max_capacity - 1)
    for ours, before in zip(step(given, route, compiled), wanted):
        assert torch.equal(ours, before)


def test_a_compiled_layer_without_gradients(comm, route):
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    given = tokens(comm)
    with torch.no_grad():
        out = compiled(given.x, given.ids, given.weights, route)
    assert torch.equal(out, layer(given.x, given.ids, given.weights, route))


def test_a_compiled_dispatch_adds_its_counts(comm, route):
    torch._dynamo.reset()

    def counting(x, ids, sums):
        rows, _, routing = ep.dispatch(x, ids, None, route, add_counts_to=sums)
        return ep.combine(rows[:-1], routing)

    given = tokens(comm)
    routing = ep.route(given.ids, route)
    compiled = torch.compile(counting, fullgraph=True, backend="aot_eager")
    sums = torch.zeros_like(routing.counts)
    with torch.no_grad():
        out = compiled(given.x, given.ids, sums)
    assert torch.equal(sums, routing.counts)
    assert torch.equal(out, counting(given.x, given.ids, sums))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_layer_gives_the_same_bytes(comm, route, reentrant):
    def checkpointed(*arguments):
        return torch.utils.checkpoint.checkpoint(layer, *arguments, use_reentrant=reentrant)

    given = tokens(comm)
    wanted = step(given, route)
    calls = comm.stats().calls
    ours = step(given, route, checkpointed)
    # Forwards twice, each dispatch with its routing; the backwards need none.
    assert comm.stats().calls - calls in (5, 6)
    for one, other in zip(ours, wanted):
        assert torch.equal(one, other)


def test_calls_of_transformer_engine_refuse_compilers(comm, group):
    from epx import te

    given = tokens(comm)
    te.ep_bootstrap(group, 4, 8, H, K, max_token_dtype=given.x.dtype)
    buffer = te.EpBuffer(K, 8, H, 4 // comm.size, payload_dtype=given.x.dtype)
    calls = (
        lambda: te.ep_prepare(buffer, given.ids),
        lambda: te.ep_dispatch(buffer, given.x, given.ids, given.weights),
        lambda: te.ep_combine(buffer, given.x),
    )
    for call in calls:
        with pytest.raises(epx.EPXError, match=r"in torch\.compile: epx\.torch\.dispatch"):
            torch.compile(call, backend="eager")()
    te.ep_finalize()
