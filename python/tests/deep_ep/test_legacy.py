# SPDX-License-Identifier: BSD-3-Clause
"""Buffer of deep_ep: normal calls, every argument, and bytes against lists and plain torch."""

import pytest
import torch
from moe import here, sent_by
from slots import rank_rows

import deep_ep
import epx
from epx import Code

MOST, H, K, E = 16, 256, 3, 8


def every_rank(comm):
    return [sent_by(rank, (3 + 4 * rank % 11, H, K, E), seed=2) for rank in range(comm.size)]


def experts_of(comm):
    per_rank = E // comm.size
    return range(comm.rank * per_rank, (comm.rank + 1) * per_rank)


@pytest.fixture(scope="module")
def buffer(group):
    made = deep_ep.Buffer(group, num_nvl_bytes=1 << 20, explicitly_destroy=True)
    yield made
    made.destroy()


@pytest.fixture
def layout(comm, buffer):
    """What a caller hands from get_dispatch_layout to dispatch."""
    mine = here(every_rank(comm)[comm.rank])
    per_rank, per_rdma_rank, per_expert, is_in, _ = buffer.get_dispatch_layout(mine.ids, E)
    return {
        "num_tokens_per_rank": per_rank,
        "num_tokens_per_rdma_rank": per_rdma_rank,
        "num_tokens_per_expert": per_expert,
        "is_token_in_rank": is_in,
    }


def launch(buffer, name, with_event, is_async, *given, **more):
    if with_event:
        more["previous_event"] = buffer.capture()
    results = getattr(buffer, name)(
        *given, **more, async_finish=is_async, allocate_on_comm_stream=with_event and is_async
    )
    if is_async:
        results[-1].current_stream_wait()
    return results[:-1]


WAYS = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.parametrize("with_event, is_async", WAYS)
def test_the_layout_counts_tokens(comm, buffer, with_event, is_async):
    mine = every_rank(comm)[comm.rank]
    per_rank, per_rdma_rank, per_expert, is_in = launch(
        buffer, "get_dispatch_layout", with_event, is_async, here(mine).ids, E
    )
    local = E // comm.size
    wanted = [
        [any(e >= 0 and e // local == rank for e in row) for rank in range(comm.size)]
        for row in mine.ids.tolist()
    ]
    assert is_in.tolist() == wanted and is_in.dtype == torch.bool
    assert per_rank.tolist() == [sum(row[rank] for row in wanted) for rank in range(comm.size)]
    assert per_expert.tolist() == [int((mine.ids == expert).sum()) for expert in range(E)]
    assert per_rank.dtype == per_expert.dtype == torch.int32 and per_rdma_rank is None


def check_rows(comm, rows, ids, weights):
    every = every_rank(comm)
    wanted, counts, offsets = rank_rows(every, experts_of(comm))
    for at, (rank, token, experts) in enumerate(wanted):
        assert torch.equal(rows[at].cpu(), every[rank].x[token])
        if ids is not None:
            assert ids[at].tolist() == experts
            of = torch.where(ids[at].cpu() >= 0, every[rank].weights[token], 0)
            assert torch.equal(weights[at].cpu(), of)
    return wanted, counts, offsets


@pytest.mark.parametrize("with_event, is_async", WAYS)
def test_tokens_arrive_in_the_order_of_ranks(comm, buffer, layout, with_event, is_async):
    mine = here(every_rank(comm)[comm.rank])
    rows, ids, weights, counts, handle = launch(
        buffer,
        "dispatch",
        with_event,
        is_async,
        mine.x,
        topk_idx=mine.ids,
        topk_weights=mine.weights,
        expert_alignment=4,
        config=deep_ep.Buffer.get_dispatch_config(comm.size),
        **layout,
    )
    wanted, wanted_counts, offsets = check_rows(comm, rows, ids, weights)
    assert len(rows) == len(wanted)
    assert counts == [-(-count // 4) * 4 for count in wanted_counts]
    assert handle[0][:, comm.rank].tolist() == offsets[1:]
    assert handle[3].tolist() == [token for _, token, _ in wanted]
    assert handle[4] is layout["is_token_in_rank"]
    assert len(tuple(handle)) == len(handle) == 6
    again, *none, event = buffer.dispatch(
        -mine.x, handle=handle, config=None, async_finish=is_async, previous_event=None
    )
    if is_async:
        event.current_stream_wait()
    assert none == [None] * 4 and torch.equal(again, -rows)


def test_a_worst_number_of_tokens_spares_the_wait(comm, buffer, layout):
    mine = here(every_rank(comm)[comm.rank])
    given = {"topk_idx": mine.ids, "topk_weights": mine.weights, **layout}
    before = buffer._comm.stats().host_syncs
    rows, ids, weights, counts, _, _ = buffer.dispatch(
        mine.x, num_worst_tokens=comm.size * MOST, **given
    )
    assert buffer._comm.stats().host_syncs == before
    wanted, _, _ = check_rows(comm, rows, ids, weights)
    assert len(rows) == len(ids) == len(weights) == comm.size * MOST and counts == []
    assert (ids[len(wanted) :] == -1).all()


def test_a_mask_has_room_after_a_worst_number(comm, group):
    """Both use one route where there are as many experts as ranks, and a token has them all."""
    made = deep_ep.Buffer(group, explicitly_destroy=True)
    x = torch.ones((50, H), dtype=torch.bfloat16)
    mask = torch.ones((50, comm.size), dtype=torch.bool)
    given = {"num_tokens_per_expert": torch.full((comm.size,), 50, dtype=torch.int32)}
    ids = torch.arange(comm.size).repeat(2, 1)
    for _ in range(2):
        few = made.dispatch(
            x[:2],
            is_token_in_rank=mask[:2],
            topk_idx=ids,
            num_worst_tokens=2 * comm.size,
            **given,
        )
        many = made.dispatch(x, is_token_in_rank=mask, **given)
        assert len(few[0]) == 2 * comm.size and len(many[0]) == 50 * comm.size
    made.destroy()


def test_a_bad_id_is_an_error_of_its_rank_alone(comm, buffer, layout):
    mine = here(every_rank(comm)[comm.rank])
    ids = mine.ids.clone()
    if comm.rank == comm.size - 1:
        ids[0, 0] = E
        with pytest.raises(epx.EPXError) as caught:
            buffer.dispatch(mine.x, topk_idx=ids, **layout)
        assert caught.value.code == Code.ARG
    else:
        buffer.dispatch(mine.x, topk_idx=ids, **layout)
    rows, _, _, _, handle, _ = buffer.dispatch(mine.x, topk_idx=mine.ids, **layout)
    buffer.combine(rows, handle)


def test_a_mask_of_ranks_is_enough(comm, buffer, layout):
    mine = here(every_rank(comm)[comm.rank])
    rows, ids, weights, counts, handle, _ = buffer.dispatch(mine.x, **layout)
    wanted, wanted_counts, _ = check_rows(comm, rows, None, None)
    assert ids is None and weights is None
    assert len(rows) == len(wanted) and counts == wanted_counts
    out, none, _ = buffer.combine(rows, handle)
    number = layout["is_token_in_rank"].sum(1, keepdim=True)
    assert none is None
    assert torch.equal(out, (mine.x.float() * number).bfloat16())
    for name, value in ("topk_weights", mine.weights), ("num_worst_tokens", comm.size * MOST):
        with pytest.raises(AssertionError, match=f"{name} wants? topk_idx"):
            buffer.dispatch(mine.x, **layout, **{name: value})


@pytest.mark.parametrize("with_event, is_async", WAYS)
@pytest.mark.parametrize("num_biases", [0, 1, 2])
def test_rows_and_weights_come_home(comm, buffer, layout, num_biases, with_event, is_async):
    mine = here(every_rank(comm)[comm.rank])
    rows, _, weights, _, handle, _ = buffer.dispatch(
        mine.x, topk_idx=mine.ids, topk_weights=mine.weights, **layout
    )
    biases = mine.bias[:num_biases]
    out, home = launch(
        buffer,
        "combine",
        with_event,
        is_async,
        rows,
        handle,
        topk_weights=weights,
        bias=(None, biases and biases[0], biases)[num_biases],
        config=deep_ep.Buffer.get_combine_config(comm.size),
    )
    number = layout["is_token_in_rank"].sum(1)
    total = torch.zeros_like(mine.x, dtype=torch.float32)
    for at, bias in enumerate(biases):
        total = bias.float() if at == 0 else total + bias.float()
    for term in range(comm.size):
        total = total + torch.where((number > term)[:, None], mine.x.float(), 0)
    assert torch.equal(out, total.bfloat16())
    assert torch.equal(home, mine.weights)


def test_fp8_rows_bring_their_scales(comm, buffer, layout):
    mine = here(every_rank(comm)[comm.rank])
    numbers = torch.arange(len(mine.x), dtype=torch.float32)[:, None].expand(-1, 2)
    given = mine.x.to(torch.float8_e4m3fn), numbers.T.contiguous().T
    (rows, scales), _, _, _, handle, _ = buffer.dispatch(
        given, topk_idx=mine.ids, topk_weights=mine.weights, **layout
    )
    every = every_rank(comm)
    for at, (rank, token, _) in enumerate(rank_rows(every, experts_of(comm))[0]):
        value = every[rank].x[token].to(torch.float8_e4m3fn)
        assert torch.equal(rows[at].cpu().float(), value.float())
        assert scales[at].tolist() == [token, token]
    (again, more), *_ = buffer.dispatch(given, handle=handle)
    assert torch.equal(again.float(), rows.float()) and torch.equal(more, scales)


def test_calls_for_several_nodes_are_the_same(comm, buffer, layout):
    mine = here(every_rank(comm)[comm.rank])
    rows, *_, handle, _ = buffer.internode_dispatch(
        mine.x, topk_idx=mine.ids, topk_weights=mine.weights, **layout
    )
    check_rows(comm, rows, None, None)
    out = buffer.internode_combine(rows, handle)[0]
    assert torch.equal(out, buffer.combine(rows, handle)[0])


def test_more_tokens_than_agreed_are_refused(comm, group, layout):
    deep_ep.Buffer.num_max_tokens_per_rank = MOST
    try:
        made = deep_ep.Buffer(group, explicitly_destroy=True)
        mine = here(every_rank(comm)[comm.rank])
        rows, *_ = made.dispatch(mine.x, topk_idx=mine.ids, topk_weights=mine.weights, **layout)
        check_rows(comm, rows, None, None)
        x = torch.zeros((MOST + 1, H), dtype=torch.bfloat16)
        ids = torch.full((MOST + 1, K), -1)
        with pytest.raises(epx.EPXError, match="num_max_tokens_per_rank") as caught:
            made.dispatch(x, topk_idx=ids, topk_weights=None, **layout)
        assert caught.value.code == Code.COUNT
        made.destroy()
    finally:
        deep_ep.Buffer.num_max_tokens_per_rank = 0


def test_what_a_buffer_tells(comm, buffer, group):
    assert (buffer.rank, buffer.group_size, buffer.group) == (comm.rank, comm.size, group)
    assert deep_ep.Buffer.is_sm90_compiled()
    assert (buffer.get_comm_stream() is None) == (not comm.on_device)
    before = deep_ep.Buffer.num_sms
    deep_ep.Buffer.set_num_sms(before + 4)
    assert deep_ep.Buffer.get_combine_config(comm.size).num_sms == before + 4
    deep_ep.Buffer.set_num_sms(before)
    with pytest.raises(AssertionError, match="even"):
        deep_ep.Buffer.set_num_sms(3)
    config = deep_ep.Config(20, 6, 256, 6, 128)
    assert config.get_nvl_buffer_size_hint(2 * H, comm.size) == 0
    assert config.get_rdma_buffer_size_hint(2 * H, comm.size) == 0
    hint = deep_ep.Buffer.get_low_latency_rdma_size_hint(MOST, H, comm.size, E)
    assert hint == 3 * E * MOST * H * 2
    with deep_ep.Buffer.capture() as event:
        assert isinstance(event, deep_ep.EventOverlap)


def test_mpi4py_starts_a_buffer(comm):
    mpi = pytest.importorskip("mpi4py.MPI")
    made = deep_ep.Buffer(None, comm=mpi.COMM_WORLD, explicitly_destroy=True)
    assert (made.rank, made.group_size) == (comm.rank, comm.size)
    made.destroy()
    with pytest.raises(ValueError, match="group or comm"):
        deep_ep.Buffer(None)


@pytest.mark.parametrize(
    "name, given",
    [
        ("get_local_buffer_tensor", (torch.uint8,)),
        ("low_latency_update_mask_buffer", (0, True)),
        ("low_latency_query_mask_buffer", (None,)),
        ("low_latency_clean_mask_buffer", ()),
    ],
)
def test_what_epx_has_not_says_so(buffer, name, given):
    with pytest.raises(epx.EPXError, match=f"EPX has no Buffer.{name}: ") as caught:
        getattr(buffer, name)(*given)
    assert caught.value.code == Code.UNSUPPORTED


def test_shrink_mode_is_refused(group):
    with pytest.raises(epx.EPXError, match="enable_shrink") as caught:
        deep_ep.Buffer(group, enable_shrink=True)
    assert caught.value.code == Code.UNSUPPORTED
