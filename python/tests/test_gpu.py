# SPDX-License-Identifier: BSD-3-Clause
"""What only GPUs have: streams, captured graphs, a host that does not wait."""

import dense
import pytest
import torch
from sparse import layer, leaf, shown, step

import epx
import epx.torch as ep
from epx import Code, EPXError

H, K, E, MAX_TOKENS = 64, 4, 16, 96


@pytest.fixture(autouse=True)
def only_on_gpus(comm):
    if not comm.on_device:
        pytest.skip("the run is about host memory")


@pytest.fixture
def route(make_route):
    return make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS, alignment=4, zero_unused=True)


def tokens(comm, seed=1, num=MAX_TOKENS):
    return dense.tokens_of(comm.rank, (num, H, K, E), seed)


def same(ours, wanted):
    return all(torch.equal(one, other) for one, other in zip(ours, wanted))


def put(given, seed, comm):
    """Other tokens at the same addresses."""
    for old, new in zip(given, tokens(comm, seed)):
        old.copy_(new)


@pytest.fixture
def no_host_sync():
    """Torch refuses to wait for the GPU from its call on."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


def test_the_host_never_waits(comm, route, no_host_sync):
    given = tokens(comm)
    wanted = step(given, route)
    no_host_sync()
    results = [step(given, route) for _ in range(5)]
    torch.cuda.set_sync_debug_mode("default")
    assert all(same(result, wanted) for result in results)
    assert comm.stats().host_syncs == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("layout", ["expert", "rank"])
def test_the_bytes_are_those_of_the_host(comm, make_route, layout, dtype):
    attributes = dict(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=layout)
    ours = make_route(**attributes)
    given = tokens(comm)
    rows, row_weights, routing = ep.dispatch(given.x.to(dtype), given.ids, given.weights, ours)
    used = int(routing.offsets[-1])
    out = None if dtype == torch.float8_e4m3fn else ep.combine(rows, routing)
    with epx.Comm(memory="system", transport="mpi") as host:  # also where nodes are pretended
        theirs = epx.Route(host, **attributes)
        on_host = dense.Tokens(*(each.cpu() for each in given))
        rows_there, weights_there, routing_there = ep.dispatch(
            on_host.x.to(dtype), on_host.ids, on_host.weights, theirs
        )
        assert torch.equal(routing.offsets.cpu(), routing_there.offsets)
        assert torch.equal(routing.counts.cpu(), routing_there.counts)
        assert torch.equal(routing.row_experts.cpu(), routing_there.row_experts)
        bytes_of = [each[:used].view(torch.uint8) for each in (rows.cpu(), rows_there)]
        assert torch.equal(*bytes_of)
        assert torch.equal(row_weights.cpu()[:used], weights_there[:used])
        if out is not None:
            assert torch.equal(out.cpu(), ep.combine(rows_there, routing_there))


def captured(call):
    """A graph of the call, and what the call returned in it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = call()
    return graph, made


def test_a_captured_layer_follows_other_ids(comm, make_route, route):
    given = tokens(comm)
    graph, out = captured(lambda: layer(given.x, given.ids, given.weights, route))
    other = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    for seed in range(1, 11):
        put(given, seed, comm)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, layer(given.x, given.ids, given.weights, other))
    comm.check()


def test_a_captured_step_follows_other_ids(comm, make_route, route):
    given = tokens(comm)
    x, weights = leaf(given.x), leaf(given.weights)

    def whole():
        out = layer(x, given.ids, weights, route)
        return out, *torch.autograd.grad(out, (x, weights), given.grad)

    graph, made = captured(whole)
    other = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS)
    for seed in range(1, 11):
        put(given, seed, comm)
        with torch.no_grad():
            x.copy_(given.x)
            weights.copy_(given.weights)
        graph.replay()
        torch.cuda.synchronize()
        assert same([each.detach() for each in made], step(given, other))
    comm.check()


def test_a_replay_between_a_dispatch_and_its_combine(comm, route):
    """Nobody tells the host of a replay, which leaves the route with another routing."""
    first, second = tokens(comm, 1), tokens(comm, 2)
    graph, out = captured(lambda: layer(second.x, second.ids, second.weights, route))
    graph.replay()
    wanted = layer(first.x, first.ids, first.weights, route)
    wanted_replayed = out.clone()
    rows, row_weights, routing = ep.dispatch(first.x, first.ids, first.weights, route)
    graph.replay()
    ours = ep.combine(torch.tanh(rows / 8), routing, row_weights)
    assert torch.equal(ours, wanted)
    graph.replay()
    assert torch.equal(out, wanted_replayed)


def back(rows, row_weights, routing):
    """Combine of what the experts made, weighted where a row is one pair's."""
    of_pairs = row_weights.numel() == len(rows)
    return ep.combine(torch.tanh(rows / 8), routing, row_weights if of_pairs else None)


def there_and_back(given, route):
    return back(*ep.dispatch(given.x, given.ids, given.weights, route))


@pytest.mark.parametrize("layout", ["expert", "rank"])
def test_a_dispatch_is_captured_between_a_dispatch_and_its_combine(comm, make_route, layout):
    """Outside of the capture the combine routes again, and shows it behind the first copies."""
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=layout, zero_unused=True)
    first, second = tokens(comm, 1), tokens(comm, 2)
    wanted = [there_and_back(given, route) for given in (first, second)]
    routings = [ep.dispatch(g.x, g.ids, g.weights, route)[2] for g in (first, second)]
    before = ep.dispatch(first.x, first.ids, first.weights, route)
    graph, made = captured(lambda: ep.dispatch(second.x, second.ids, second.weights, route))
    assert torch.equal(back(*before), wanted[0])
    again = ep.dispatch(first.x, first.ids, first.weights, route)[2]
    for routing in before[2], again:
        assert same(shown(routing), shown(routings[0]))
    for _ in range(3):
        graph.replay()
        assert same(shown(made[2]), shown(routings[1]))
        assert torch.equal(back(*made), wanted[1])
        ep.dispatch(first.x, first.ids, first.weights, route)


@pytest.mark.parametrize("layout", ["expert", "rank"])
def test_a_combine_is_captured_behind_a_dispatch_of_another_stream(comm, make_route, layout):
    """The capture's first operation routes again, its second shows a routing of its own."""
    route = make_route(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=layout, zero_unused=True)
    first, second = tokens(comm, 1), tokens(comm, 2)
    wanted = there_and_back(first, route)
    wanted_routing = ep.dispatch(second.x, second.ids, second.weights, route)[2]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        made = ep.dispatch(first.x, first.ids, first.weights, route)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = back(*made)
        routing_made = ep.dispatch(second.x, second.ids, second.weights, route)[2]
    for _ in range(3):
        graph.replay()
        assert torch.equal(out, wanted)
        assert same(shown(routing_made), shown(wanted_routing))
        assert torch.equal(back(*made), wanted)


def test_two_graphs_of_one_route_in_any_order(comm, route):
    given = [tokens(comm, seed) for seed in (1, 2)]
    graphs = [captured(lambda g=g: layer(g.x, g.ids, g.weights, route)) for g in given]
    wanted = [layer(g.x, g.ids, g.weights, route) for g in given]
    for i in 0, 1, 1, 0, 0:
        graphs[i][1].zero_()
        graphs[i][0].replay()
        assert torch.equal(graphs[i][1], wanted[i])


def test_a_graphed_callable(comm, route):
    """Torch captures the forward and the backward into graphs of their own."""
    given = tokens(comm)

    class Layer(torch.nn.Module):
        def forward(self, x, ids, weights):
            return layer(x, ids, weights, route)

    sample = leaf(given.x), given.ids.clone(), leaf(given.weights)
    graphed = torch.cuda.make_graphed_callables(Layer(), sample)
    for seed in 1, 2, 3:
        other = tokens(comm, seed)
        x, weights = leaf(other.x), leaf(other.weights)
        out = graphed(x, other.ids, weights)
        out.backward(other.grad)
        ours = out.detach().clone(), x.grad.clone(), weights.grad.clone()
        assert same(ours, step(other, route))


@pytest.mark.parametrize("num_routes", [1, 2])
def test_works_beside_the_stream(comm, make_route, num_routes):
    attributes = dict(experts=E, top_k=K, max_tokens=MAX_TOKENS, zero_unused=True)
    routes = [make_route(**attributes) for _ in range(num_routes)]
    batches = [(tokens(comm, seed), routes[seed % num_routes]) for seed in range(4)]
    wanted = [layer(g.x, g.ids, g.weights, r) for g, r in batches]
    busy = torch.randn(512, 512)
    works = [ep.dispatch_start(g.x, g.ids, g.weights, r) for g, r in batches]
    for _ in range(20):
        busy = torch.tanh(busy @ busy)
    sums = []
    for work in works:
        rows, row_weights, routing = work.wait()
        sums.append(ep.combine_start(torch.tanh(rows / 8), routing, row_weights))
    for work, out in zip(sums, wanted):
        assert torch.equal(work.wait(), out)
    assert comm.stats().host_syncs == 0


def test_a_work_is_waited_for_on_another_stream(comm, route):
    given = tokens(comm)
    wanted = layer(given.x, given.ids, given.weights, route)
    work = ep.dispatch_start(given.x.clone(), given.ids.clone(), given.weights.clone(), route)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        rows, row_weights, routing = work.wait()
        out = ep.combine(torch.tanh(rows / 8), routing, row_weights)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(out, wanted)


@pytest.mark.parametrize("num_tokens, knows", [(2048, False), (16384, True)])  # more than 4 MiB
def test_what_a_work_takes_comes_behind_the_current_stream(comm, make_route, num_tokens, knows):
    given = tokens(comm, num=num_tokens)
    attributes = {"max_row_bytes": given.x[0].nbytes} if knows else {}
    route = make_route(experts=E, top_k=K, max_tokens=num_tokens, zero_unused=True, **attributes)
    wanted = layer(given.x, given.ids, given.weights, route)
    torch.cuda.synchronize()
    work = ep.dispatch_start(given.x, given.ids, given.weights, route)
    torch.cuda._sleep(400_000_000)  # cycles: a fifth of a second
    computed = torch.cuda.current_stream().record_event()
    rows, row_weights, routing = work.wait()
    taken = work._started.stream.record_event()
    assert not taken.query()
    taken.synchronize()
    assert computed.query()
    out = ep.combine(torch.tanh(rows / 8), routing, row_weights)
    assert torch.equal(out, wanted)


@pytest.mark.parametrize("layout", ["expert", "rank"])
def test_works_are_captured(comm, make_route, layout):
    attributes = dict(experts=E, top_k=K, max_tokens=MAX_TOKENS, layout=layout, zero_unused=True)
    route, other = make_route(**attributes), make_route(**attributes)
    given = tokens(comm)

    def overlapped():
        rows, row_weights, routing = ep.dispatch_start(
            given.x, given.ids, given.weights, route
        ).wait()
        of_pairs = row_weights if layout == "expert" else None
        out = ep.combine_start(torch.tanh(rows / 8), routing, of_pairs).wait()
        return out, *shown(routing)

    graph, made = captured(overlapped)
    for seed in 1, 2, 3:
        put(given, seed, comm)
        graph.replay()
        wanted_routing = ep.dispatch(given.x, given.ids, given.weights, other)[2]
        wanted = there_and_back(given, other)
        assert same(made, (wanted, *shown(wanted_routing)))


def test_other_streams_than_the_default_one(comm, route):
    given = tokens(comm)
    wanted = step(given, route)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        ours = step(given, route)
    stream.synchronize()
    assert same(ours, wanted)


def test_tensors_of_the_host_are_refused(comm, route):
    given = dense.Tokens(*(each.cpu() for each in tokens(comm)))
    with pytest.raises(EPXError, match="tensors on cpu") as caught:
        ep.dispatch(given.x, given.ids, given.weights, route)
    assert caught.value.code == Code.BUFFER


def test_a_layer_compiled_by_inductor(comm, route):
    torch._dynamo.reset()
    given = tokens(comm)
    compiled = torch.compile(layer, fullgraph=True)
    x, weights = leaf(given.x), leaf(given.weights)
    out = compiled(x, given.ids, weights, route)
    out.backward(given.grad)
    for ours, wanted in zip((out.detach(), x.grad, weights.grad), step(given, route)):
        torch.testing.assert_close(ours, wanted)
