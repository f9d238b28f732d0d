# SPDX-License-Identifier: BSD-3-Clause
"""Low-latency calls of deep_ep's Buffer: slabs, scales, hooks, and sums with weights at home."""

import pytest
import torch
from moe import here, sent_by
from slots import slab_rows

import deep_ep
import epx
from deep_ep import _numbers
from epx import Code

MOST, H, K, E = 12, 512, 3, 8


def num_tokens(rank):
    """Rank 1 has none."""
    return 0 if rank == 1 else 3 + 4 * rank % 9


def every_rank(comm):
    return [sent_by(rank, (num_tokens(rank), H, K, E), seed=3) for rank in range(comm.size)]


def slabs_of(comm):
    per_rank = E // comm.size
    local = range(comm.rank * per_rank, (comm.rank + 1) * per_rank)
    return slab_rows(every_rank(comm), local, comm.size * MOST)


@pytest.fixture(scope="module")
def buffer(comm, group):
    hint = deep_ep.Buffer.get_low_latency_rdma_size_hint(MOST, H, comm.size, E)
    made = deep_ep.Buffer(
        group,
        num_rdma_bytes=hint,
        low_latency_mode=True,
        num_qps_per_rank=E // comm.size,
        explicitly_destroy=True,
        use_fabric=True,
    )
    yield made
    made.destroy()


def dispatch(buffer, mine, ending, **more):
    """Rows, counts and handle, once they are there: at once, by an event or by a hook."""
    made, counts, handle, event, hook = buffer.low_latency_dispatch(
        mine.x,
        mine.ids,
        MOST,
        E,
        async_finish=ending == "event",
        return_recv_hook=ending == "hook",
        **more,
    )
    if ending == "event":
        event.current_stream_wait()
    hook()
    return made, counts, handle


ENDINGS = ["call", "event", "hook"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_arrive_in_slabs(comm, buffer, ending):
    every = every_rank(comm)
    stats = torch.full((E // comm.size,), 3, dtype=torch.int32)
    rows, counts, handle = dispatch(
        buffer,
        here(every[comm.rank]),
        ending,
        use_fp8=False,
        cumulative_local_expert_recv_stats=stats,
    )
    slabs, wanted_counts = slabs_of(comm)
    assert rows.shape == (E // comm.size, comm.size * MOST, H)
    assert counts.tolist() == wanted_counts == (stats - 3).tolist()
    src_info, layout, most, hidden, experts = handle
    assert (most, hidden, experts, len(handle)) == (MOST, H, E, 5)
    assert layout.shape == (E // comm.size, comm.size) and layout.dtype == torch.int64
    for expert, slab in enumerate(slabs):
        for at, (rank, token, _) in enumerate(slab):
            assert torch.equal(rows[expert, at].cpu(), every[rank].x[token])
            assert int(src_info[expert, at]) == token
        for rank in range(comm.size):
            begin, number = divmod(int(layout[expert, rank]), 1 << 32)
            came = [at for at, row in enumerate(slab) if row[0] == rank]
            assert number == len(came) and (not came or begin == came[0])


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("scales", ["float32", "powers", "packed"])
def test_rows_in_fp8_have_a_scale_a_block(comm, buffer, scales, ending):
    every = every_rank(comm)
    (rows, got), counts, _ = dispatch(
        buffer,
        here(every[comm.rank]),
        ending,
        use_fp8=True,
        round_scale=scales != "float32",
        use_ue8m0=scales == "packed",
    )
    room = comm.size * MOST
    columns = H // 512 if scales == "packed" else H // 128
    assert got.shape == (E // comm.size, room, columns)
    assert got.stride()[1:] == (1, room), "columns of a slab lie one behind the other"
    assert got.dtype == (torch.int32 if scales == "packed" else torch.float32)
    for expert, slab in enumerate(slabs_of(comm)[0]):
        for at, (rank, token, _) in enumerate(slab):
            blocks = every[rank].x[token].float().view(-1, 128)
            most = blocks.abs().amax(1).clamp(min=1e-4)
            wanted = most * (1 / 448)  # as DeepEP
            scale = torch.tensor(got[expert, at].tolist(), dtype=got.dtype, device="cpu")
            if scales == "packed":
                exponents = scale.view(torch.uint8).to(torch.int32)
                scale = (exponents << 23).view(torch.float32)
            if scales == "float32":
                assert torch.equal(scale, wanted)
            else:
                assert torch.equal(scale, 2.0 ** torch.log2(wanted).ceil())
            factors = torch.tensor(448.0, device="cpu") / most
            if scales != "float32":
                factors = 1 / scale
            sent = (blocks * factors[:, None]).to(torch.float8_e4m3fn)
            assert torch.equal(rows[expert, at].cpu().view(-1, 128).float(), sent.float())
            value = sent.float() * scale[:, None]
            assert ((value - blocks).abs() <= blocks.abs() / 16 + scale[:, None] / 512).all()
    assert counts.tolist() == slabs_of(comm)[1]


def test_torch_makes_the_same_fp8_as_triton(comm, buffer, monkeypatch):
    if not comm.on_device:
        pytest.skip("Triton makes it on GPUs alone")
    mine = here(every_rank(comm)[comm.rank])
    made = [dispatch(buffer, mine, "call", use_fp8=True)]
    monkeypatch.setattr(_numbers._triton, "kernels", lambda like: None)
    made.append(dispatch(buffer, mine, "call", use_fp8=True))
    for expert, number in enumerate(made[0][1].tolist()):
        for one, other in zip(made[0][0], made[1][0]):
            assert torch.equal(one[expert, :number].float(), other[expert, :number].float())


def exact_sums(mine):
    """In float64, of bfloat16 rows that are sent back as they came."""
    return mine.x.double() * mine.weights.double().sum(1, keepdim=True)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("zero_copy", [False, True])
@pytest.mark.parametrize("has_out", [False, True])
def test_rows_come_home_with_weights(comm, buffer, zero_copy, has_out, ending):
    mine = here(every_rank(comm)[comm.rank])
    rows, _, handle = dispatch(buffer, mine, "call", use_fp8=False)
    given = rows
    if zero_copy:
        place = buffer.get_next_low_latency_combine_buffer(handle)
        assert place.shape == rows.shape and place.dtype == torch.bfloat16
        place[:] = rows
        given = torch.zeros_like(rows)
    out = torch.full_like(mine.x, 7) if has_out else None
    made, event, hook = buffer.low_latency_combine(
        given,
        mine.ids,
        mine.weights,
        handle,
        zero_copy=zero_copy,
        async_finish=ending == "event",
        return_recv_hook=ending == "hook",
        out=out,
    )
    if ending == "event":
        event.current_stream_wait()
    hook()
    assert out is None or made is out
    assert torch.allclose(made.double(), exact_sums(mine), rtol=2**-6, atol=1e-6)
    again, _, _ = buffer.low_latency_combine(rows, mine.ids, mine.weights, handle)
    assert torch.equal(made, again)


def test_two_batches_are_in_flight(comm, buffer):
    """Hooks of one batch are called when the next has begun."""
    batches = [here(sent_by(comm.rank, (5, H, K, E), seed)) for seed in (5, 6)]
    begun = [
        buffer.low_latency_dispatch(b.x, b.ids, MOST, E, use_fp8=False, return_recv_hook=True)
        for b in batches
    ]
    for rows in begun:
        rows[-1]()
    sums = [
        buffer.low_latency_combine(rows[0], b.ids, b.weights, rows[2], return_recv_hook=True)
        for rows, b in zip(begun, batches)
    ]
    for (made, _, hook), batch in zip(sums, batches):
        hook()
        assert torch.allclose(made.double(), exact_sums(batch), rtol=2**-6, atol=1e-6)


def test_nothing_has_to_be_cleaned(comm, buffer):
    mine = here(every_rank(comm)[comm.rank])
    rows, _, handle = dispatch(buffer, mine, "call", use_fp8=False)
    wanted = buffer.low_latency_combine(rows, mine.ids, mine.weights, handle)[0]
    buffer.clean_low_latency_buffer(MOST, H, E)
    rows, _, handle = dispatch(buffer, mine, "call", use_fp8=False)
    made = buffer.low_latency_combine(rows, mine.ids, mine.weights, handle)[0]
    assert torch.equal(made, wanted)


def test_what_epx_has_not_says_so(comm, buffer):
    mine = here(every_rank(comm)[comm.rank])
    rows, _, handle = dispatch(buffer, mine, "call", use_fp8=False)
    stats = torch.zeros((comm.size, comm.size), dtype=torch.int64)
    combine = buffer.low_latency_combine
    for text, call in (
        (
            "dispatch_wait_recv_cost_stats",
            lambda: buffer.low_latency_dispatch(
                mine.x, mine.ids, MOST, E, dispatch_wait_recv_cost_stats=stats
            ),
        ),
        (
            "use_nvfp4 of low_latency_dispatch: rows in fp8",
            lambda: buffer.low_latency_dispatch(mine.x, mine.ids, MOST, E, use_nvfp4=True),
        ),
        (
            "comp_signal of low_latency_combine",
            lambda: combine(rows, mine.ids, mine.weights, handle, overlap=False, comp_signal=stats),
        ),
        ("LogFMT", lambda: combine(rows, mine.ids, mine.weights, handle, use_logfmt=True)),
        (
            "combine_wait_recv_cost_stats",
            lambda: combine(
                rows, mine.ids, mine.weights, handle, combine_wait_recv_cost_stats=stats
            ),
        ),
        (
            "scales of rows of 500",
            lambda: buffer.low_latency_dispatch(mine.x[:, :500], mine.ids, MOST, E),
        ),
    ):
        with pytest.raises(epx.EPXError, match=text) as caught:
            call()
        assert caught.value.code == Code.UNSUPPORTED
    with pytest.raises(AssertionError, match="round_scale"):
        buffer.low_latency_dispatch(mine.x, mine.ids, MOST, E, use_ue8m0=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'logfmt'"):
        combine(rows, mine.ids, mine.weights, handle, logfmt=True)
    with pytest.raises(AssertionError, match="get_next_low_latency_combine_buffer"):
        combine(rows, mine.ids, mine.weights, handle, zero_copy=True)
    with pytest.raises(epx.EPXError, match="topk_idx is") as caught:
        combine(rows, mine.ids[:, 1:], mine.weights[:, 1:], handle)
    assert caught.value.code == Code.COUNT
