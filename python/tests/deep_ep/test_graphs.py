# SPDX-License-Identifier: BSD-3-Clause
"""deep_ep on GPUs: CUDA graphs, streams beside the current one, and no wait of the host."""

import pytest
import torch
from moe import here, sent_by

import deep_ep

MOST, H, K, E = 16, 512, 3, 8


@pytest.fixture(scope="module")
def buffer(comm, group):
    if not comm.on_device:
        pytest.skip("this is about GPUs: set EPX_MEMORY=cuda:device")
    made = deep_ep.Buffer(group, low_latency_mode=True, explicitly_destroy=True)
    yield made
    made.destroy()


def step(buffer, x, ids, weights):
    """A low-latency layer whose experts do nothing."""
    rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, MOST, E, use_fp8=False)
    return buffer.low_latency_combine(rows, ids, weights, handle)[0]


def test_a_low_latency_layer_is_captured(comm, buffer):
    batches = [here(sent_by(comm.rank, (MOST, H, K, E), seed)) for seed in (1, 2, 3)]
    wanted = [step(buffer, *batch[:3]) for batch in batches]
    x, ids, weights = (each.clone() for each in batches[0][:3])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(buffer, x, ids, weights)
    for batch, sums in zip(batches, wanted):
        for place, value in zip((x, ids, weights), batch[:3]):
            place.copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, sums)
    del graph, out
    comm.check()


@pytest.mark.parametrize("is_first", [False, True])
def test_rows_in_fp8_are_captured(comm, buffer, is_first):
    """By kernels of Triton; in a capture before any other such call, by torch in their place."""
    hidden = 1024 if is_first else 640  # no other test here has rows of that length
    mine = here(sent_by(comm.rank, (MOST, hidden, K, E)))

    def dispatch(**how):
        made, counts, _, _, _ = buffer.low_latency_dispatch(mine.x, mine.ids, MOST, E, **how)
        return made, counts

    for _ in range(2):  # routes are made outside of captures
        dispatch(use_fp8=not is_first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured, counts = dispatch(use_fp8=True)
    graph.replay()
    torch.cuda.synchronize()
    wanted, wanted_counts = dispatch(use_fp8=True)
    assert torch.equal(counts, wanted_counts)
    for expert, number in enumerate(counts.tolist()):
        for one, other in zip(captured, wanted):
            assert torch.equal(one[expert, :number].float(), other[expert, :number].float())
    del graph, captured, counts
    comm.check()


def test_a_dispatch_with_a_worst_number_is_captured(comm, buffer):
    mine = here(sent_by(comm.rank, (MOST, H, K, E)))

    def layer():
        per_rank, _, per_expert, is_in, _ = buffer.get_dispatch_layout(mine.ids, E)
        rows, _, _, _, handle, _ = buffer.dispatch(
            mine.x,
            num_tokens_per_rank=per_rank,
            is_token_in_rank=is_in,
            num_tokens_per_expert=per_expert,
            topk_idx=mine.ids,
            topk_weights=mine.weights,
            num_worst_tokens=comm.size * MOST,
        )
        return buffer.combine(rows, handle)[0]

    wanted = layer()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, wanted)
    del graph, out


def test_low_latency_calls_do_not_wait_for_the_gpu(comm, buffer):
    mine = here(sent_by(comm.rank, (MOST, H, K, E)))
    before = buffer._comm.stats().host_syncs
    for _ in range(3):
        out = step(buffer, *mine[:3])
    assert buffer._comm.stats().host_syncs == before
    assert out.shape == mine.x.shape


def test_work_goes_on_beside_the_current_stream(comm, buffer):
    """The results of many rounds, each used only behind its event, are those of calls in turn."""
    mine = here(sent_by(comm.rank, (MOST, H, K, E)))
    rows, _, handle, _, _ = buffer.low_latency_dispatch(mine.x, mine.ids, MOST, E, use_fp8=False)
    wanted = buffer.low_latency_combine(rows, mine.ids, mine.weights, handle)[0]
    for _ in range(20):
        rows, _, handle, event, _ = buffer.low_latency_dispatch(
            mine.x, mine.ids, MOST, E, use_fp8=False, async_finish=True
        )
        filler = torch.randn(512, 512) @ torch.randn(512, 512)
        event.current_stream_wait(release_handle=True)
        out, event, _ = buffer.low_latency_combine(
            rows, mine.ids, mine.weights, handle, async_finish=True
        )
        with event:
            filler = filler @ filler
        assert torch.equal(out, wanted)
