# SPDX-License-Identifier: BSD-3-Clause
"""Reserved memory of GPUs under torch's pools: where tensors lie, captures, and the same bytes."""

import contextlib

import dense
import pytest
import torch

import epx
import epx.launch
import epx.torch as ep
from epx import Code, EPXError

H, K, E, MAX_TOKENS = 512, 3, 5, 512
MIB = 1 << 20
SUMMED = [torch.float64, torch.float32, torch.bfloat16, torch.float16]

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
torch.cuda.set_device(epx.launch.local_rank() % torch.cuda.device_count())


@contextlib.contextmanager
def layer_on(bytes, layout="expert"):
    """A communicator of its own, with so many bytes, and a route."""
    comm = epx.Comm()
    if bytes:
        comm.reserve(bytes)
    yield comm, epx.Route(comm, experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=layout)
    torch.cuda.synchronize()
    comm.check()
    comm.close()


def given_of(comm, dtype, seed=1):
    tokens = dense.tokens_of(comm.rank, (MAX_TOKENS - 7 * comm.rank, H, K, E), seed)
    x, grad = (tensor.to(dtype).cuda() for tensor in (tokens.x, tokens.grad))
    return x, tokens.ids.cuda(), tokens.weights.cuda(), grad


def is_reserved(comm, tensor):
    return comm.is_reserved(tensor.data_ptr(), tensor.nbytes)


def run(route, given, lies=None):
    """All bytes that a layer makes; lies tells which tensors lie in reserved memory."""
    x, ids, weights, grad = given
    x, weights = (tensor.detach().clone().requires_grad_() for tensor in (x, weights))
    rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
    y = rows.detach().clone().requires_grad_()
    used = int(routing.offsets[-1])
    with torch.no_grad():
        y[used:] = 0
    is_weighted = route.layout == "expert"
    out = ep.combine(y, routing, row_weights if is_weighted else None)
    out.backward(grad)
    if lies is not None:
        lies += [is_reserved(route.comm, rows), is_reserved(route.comm, y.grad)]
    made = [rows[:used], row_weights[:used], out, y.grad[:used]]
    return [tensor.detach().clone() for tensor in made + ([weights.grad] if is_weighted else [])]


def assert_same_bytes(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.mark.parametrize("mebibytes", [512, 1])
@pytest.mark.parametrize("layout", ["expert", "rank"])
@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_every_result_is_the_same_bytes(dtype, layout, mebibytes):
    with layer_on(0, layout) as (comm, route):
        wanted = run(route, given_of(comm, dtype))
    lies = []
    with layer_on(mebibytes * MIB, layout) as (comm, route):
        for _ in range(3):
            assert_same_bytes(run(route, given_of(comm, dtype), lies), wanted)
        assert lies == [mebibytes > 1] * 6
        assert (comm.reserved().refused == 0) == (mebibytes > 1)


def test_a_thousand_layers_take_no_more_segments():
    with layer_on(512 * MIB) as (comm, route):
        given = given_of(comm, torch.bfloat16)
        run(route, given)
        taken = comm.reserved()
        for _ in range(1000):
            run(route, given)
        assert comm.reserved() == taken and taken.refused == 0


def test_a_pool_in_use_is_no_error():
    with layer_on(512 * MIB) as (comm, route):
        given = given_of(comm, torch.float32)
        wanted = run(route, given)
        with torch.cuda.use_mem_pool(comm.pool):
            lies = []
            assert_same_bytes(run(route, given, lies), wanted)
        assert lies[0]  # autograd's thread does not use the pool that this one does


def test_a_capture_has_its_tensors_in_the_window():
    with layer_on(1024 * MIB) as (comm, route):
        x, ids, weights, _ = given_of(comm, torch.float32)

        def layer():
            rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
            return rows, ep.combine(rows * 2, routing, row_weights)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            layer()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, pool=comm.graph_pool.id):
            rows, out = layer()
        assert is_reserved(comm, rows)
        for seed in range(2, 12):
            for to, new in zip((x, ids, weights), given_of(comm, torch.float32, seed)):
                to.copy_(new)
            graph.replay()
            replayed = out.clone()
            with torch.no_grad():
                assert torch.equal(replayed, layer()[1])
        del rows, out, replayed
        torch.cuda.synchronize()
        with pytest.raises(EPXError, match="reserved memory is in use") as caught:
            comm.close()
        assert caught.value.code == Code.PENDING
        graph.reset()
        del graph


def test_closing_waits_for_tensors():
    with layer_on(512 * MIB) as (comm, route):
        x, ids, weights, _ = given_of(comm, torch.float32)
        rows, row_weights, routing = ep.dispatch(x, ids, weights, route)
        kept = rows if comm.rank == comm.size - 1 else None
        del rows
        with pytest.raises(EPXError, match=f"on rank {comm.size - 1}\\.") as caught:
            comm.close()
        assert caught.value.code == Code.PENDING
        again, _, routing = ep.dispatch(x, ids, weights, route)
        assert is_reserved(comm, again)
        ep.combine(again, routing, row_weights)
        del kept, again


def test_streams_have_segments_of_their_own():
    with layer_on(512 * MIB) as (comm, route):
        given = given_of(comm, torch.float32)
        wanted = run(route, given)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        lies = []
        with torch.cuda.stream(side):
            made = run(route, given, lies)
        torch.cuda.current_stream().wait_stream(side)
        assert_same_bytes(made, wanted)
        assert lies == [True, True]
