# SPDX-License-Identifier: BSD-3-Clause
"""ElasticBuffer of deep_ep: every argument, and bytes against lists and plain torch."""

import itertools

import pytest
import torch
from moe import here, sent_by, sums
from slots import expert_rows, rank_rows

import deep_ep
import epx
from epx import Code

MOST, H, K, E = 16, 256, 3, 8


def every_rank(comm):
    return [sent_by(rank, (3 + 4 * rank % 11, H, K, E)) for rank in range(comm.size)]


def experts_of(comm):
    per_rank = E // comm.size
    return range(comm.rank * per_rank, (comm.rank + 1) * per_rank)


@pytest.fixture(scope="module")
def buffer(group):
    made = deep_ep.ElasticBuffer(
        group, num_max_tokens_per_rank=MOST, hidden=H, explicitly_destroy=True
    )
    yield made
    made.destroy()


def launch(buffer, name, with_event, is_async, **given):
    """A call, and what is to be done before its results are used."""
    if with_event:
        given["previous_event"] = buffer.capture()
    results = getattr(buffer, name)(**given, async_with_compute_stream=is_async)
    if is_async:
        results[-1].current_stream_wait()
    else:
        assert results[-1].event is None
    return results[:-1]


def fp8_of(x):
    scales = x.float().abs().view(len(x), -1, 128).amax(2).clamp(min=1e-4) / 448
    rows = (x.float().view(len(x), -1, 128) / scales[:, :, None]).to(torch.float8_e4m3fn)
    return rows.view(x.shape), scales


def same(ours, wanted):
    """Whether all bytes are the same."""
    return ours.dtype == wanted.dtype and torch.equal(
        ours.cpu().contiguous().view(torch.uint8), wanted.cpu().contiguous().view(torch.uint8)
    )


WAYS = list(itertools.product((False, True), (False, True), (False, True)))


@pytest.mark.parametrize("with_event, is_async, allocate", WAYS)
@pytest.mark.parametrize("do_cpu_sync", [True, False])
def test_tokens_arrive_once_a_rank(comm, buffer, do_cpu_sync, with_event, is_async, allocate):
    every = every_rank(comm)
    mine = here(every[comm.rank])
    stats = torch.full((len(experts_of(comm)),), 5, dtype=torch.int32)
    rows, ids, weights, handle = launch(
        buffer,
        "dispatch",
        with_event,
        is_async,
        x=mine.x,
        topk_idx=mine.ids,
        topk_weights=mine.weights,
        num_experts=E,
        expert_alignment=4,
        cumulative_local_expert_recv_stats=stats,
        do_cpu_sync=do_cpu_sync,
        allocate_on_comm_stream=allocate,
        num_sms=8,
        num_qps=4,
    )
    wanted, counts, offsets = rank_rows(every, experts_of(comm))
    num = len(wanted)
    assert len(rows) == (num if do_cpu_sync else comm.size * MOST)
    for at, (rank, token, experts) in enumerate(wanted):
        assert same(rows[at], every[rank].x[token])
        assert ids[at].tolist() == experts
        assert int(handle.recv_src_metadata[at, 0]) == rank * MOST + token
        of = torch.where(ids[at].cpu() >= 0, every[rank].weights[token], 0)
        assert torch.equal(weights[at].cpu(), of)
    assert (ids[num:] == -1).all()
    assert ids.dtype == deep_ep.topk_idx_t
    padded = [-(-count // 4) * 4 for count in counts]
    assert handle.num_recv_tokens_per_expert_list == (padded if do_cpu_sync else [])
    assert handle.psum_num_recv_tokens_per_expert.tolist() == list(itertools.accumulate(padded))
    assert handle.psum_num_recv_tokens_per_scaleup_rank.tolist() == offsets[1:]
    assert (stats.cpu() - 5).tolist() == counts
    assert handle.num_unaligned_recv_tokens_per_expert is None
    assert torch.equal(handle.dst_buffer_slot_idx >= 0, mine.ids >= 0)
    assert handle.num_recv_tokens == len(rows)
    assert (handle.num_sms, handle.do_expand, handle.num_experts) == (8, False, E)


def test_ids_are_copied_behind_the_event(comm, buffer, monkeypatch):
    """What is before previous_event may still write the ids when dispatch is called."""
    every = every_rank(comm)
    mine = here(every[comm.rank])
    ids = torch.full_like(mine.ids, -1)
    run = buffer._lane.run

    def run_later(operation, *args):
        return run(lambda: (ids.copy_(mine.ids), operation())[1], *args)

    monkeypatch.setattr(buffer._lane, "run", run_later)
    rows, _, _, handle, _ = buffer.dispatch(
        x=mine.x, topk_idx=ids, topk_weights=mine.weights, num_experts=E
    )
    assert len(rows) == len(rank_rows(every, experts_of(comm))[0])
    assert torch.equal(handle.topk_idx, mine.ids)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("do_cpu_sync", [True, False])
def test_tokens_arrive_once_an_expert(comm, buffer, do_cpu_sync, is_async):
    every = every_rank(comm)
    mine = here(every[comm.rank])
    rows, ids, weights, handle = launch(
        buffer,
        "dispatch",
        False,
        is_async,
        x=mine.x,
        topk_idx=mine.ids,
        topk_weights=mine.weights,
        num_experts=E,
        num_max_tokens_per_rank=MOST,
        expert_alignment=4,
        do_cpu_sync=do_cpu_sync,
        do_expand=True,
        do_zero_padding=True,
    )
    wanted, counts, offsets = expert_rows(every, experts_of(comm), 4)
    assert ids is None
    if do_cpu_sync:
        assert len(rows) == len(wanted) == handle.num_expanded_tokens
    for at, row in enumerate(wanted):
        x = torch.zeros(H).bfloat16() if row is None else every[row[0]].x[row[1]]
        assert same(rows[at], x)
        weight = 0 if row is None else every[row[0]].weights[row[1], row[2]]
        assert float(weights[at]) == float(weight)
    ends = [first + count for first, count in zip(offsets, counts)]
    assert handle.psum_num_recv_tokens_per_expert.tolist() == ends
    assert handle.num_unaligned_recv_tokens_per_expert.tolist() == counts
    tokens = sorted({row[:2] for row in wanted if row is not None})
    number = int(handle.psum_num_recv_tokens_per_scaleup_rank[-1])
    assert number == len(tokens)
    shown = handle.recv_src_metadata[:number].tolist()
    assert len(handle.recv_src_metadata) == (number if do_cpu_sync else comm.size * MOST)
    for (rank, token), (source, _, *slots) in zip(tokens, shown):
        assert source == rank * MOST + token
        for choice, slot in enumerate(slots):
            if (rank, token, choice) in wanted:
                assert wanted[slot] == (rank, token, choice)
            else:
                assert slot == -1


@pytest.mark.parametrize("do_expand", [False, True])
@pytest.mark.parametrize("do_handle_copy", [False, True])
def test_a_handle_sends_again(comm, buffer, do_expand, do_handle_copy):
    mine = here(every_rank(comm)[comm.rank])
    ids = mine.ids.clone()
    first, recv_ids, weights, handle = launch(
        buffer,
        "dispatch",
        False,
        False,
        x=mine.x,
        topk_idx=ids,
        topk_weights=mine.weights,
        num_experts=E,
        do_expand=do_expand,
        do_handle_copy=do_handle_copy,
    )
    assert (handle.topk_idx.data_ptr() != ids.data_ptr()) == do_handle_copy or not ids.numel()
    launch(buffer, "dispatch", False, False, x=mine.x, topk_idx=mine.ids.flip(1), num_experts=E)
    given = {"topk_weights": mine.weights} if do_expand else {}
    for is_async in (False, True):
        again, again_ids, again_weights, same_handle = launch(
            buffer,
            "dispatch",
            is_async,
            is_async,
            x=-mine.x,
            handle=handle,
            num_experts=E,
            expert_alignment=1,
            **given,
        )
        assert same_handle is handle and again_ids is recv_ids
        assert same(again, -first)
        assert (again_weights is None) != do_expand
        if do_expand:
            assert torch.equal(again_weights, weights)
    with pytest.raises(AssertionError, match="handle"):
        buffer.dispatch(mine.x, topk_idx=mine.ids, handle=handle)
    with pytest.raises(AssertionError, match="handle has"):
        buffer.dispatch(mine.x, handle=handle, num_experts=2 * E)


@pytest.mark.parametrize("do_expand", [False, True])
@pytest.mark.parametrize("in_columns", [False, True])
def test_fp8_rows_bring_their_scales(comm, buffer, do_expand, in_columns):
    every = every_rank(comm)
    mine = here(every[comm.rank])
    (rows, scales), _, _, handle = launch(
        buffer,
        "dispatch",
        False,
        False,
        x=fp8_of(mine.x),
        topk_idx=mine.ids,
        topk_weights=mine.weights,
        num_experts=E,
        do_expand=do_expand,
        use_tma_aligned_col_major_sf=in_columns,
    )
    local = experts_of(comm)
    wanted = expert_rows(every, local, 1)[0] if do_expand else rank_rows(every, local)[0]
    assert rows.shape == (len(wanted), H) and scales.shape == (len(wanted), H // 128)
    for at, (rank, token, _) in enumerate(wanted):
        value, scale = fp8_of(every[rank].x[token : token + 1].to(mine.x.device))
        assert same(rows[at], value[0]) and torch.equal(scales[at], scale[0])
    if in_columns:
        assert scales.stride() == (1, -(-len(wanted) // 4) * 4)
    packed = torch.arange(len(mine.x), dtype=torch.int32)[:, None]
    given = fp8_of(mine.x)[0], packed
    (_, numbers), _, _, _ = launch(buffer, "dispatch", False, False, x=given, handle=handle)
    assert numbers.dtype == torch.int32
    assert numbers[:, 0].tolist() == [token for _, token, _ in wanted]


@pytest.mark.parametrize("num_biases", [0, 1, 2])
@pytest.mark.parametrize("with_event, is_async, allocate", [WAYS[0], WAYS[2], WAYS[7]])
@pytest.mark.parametrize("do_expand", [False, True])
def test_rows_come_home(comm, buffer, do_expand, num_biases, with_event, is_async, allocate):
    every, local = every_rank(comm), experts_of(comm)
    mine = here(every[comm.rank])
    rows, _, weights, handle = launch(
        buffer,
        "dispatch",
        with_event,
        is_async,
        x=mine.x,
        topk_idx=mine.ids,
        topk_weights=mine.weights,
        num_experts=E,
        do_expand=do_expand,
    )

    def made_of(rank, token, choice):
        return torch.sin(every[rank].x[token].float() * (choice + 1)).bfloat16()

    if do_expand:
        came = [made_of(*row) for row in expert_rows(every, local, 1)[0]]
    else:
        came = []
        for rank, token, experts in rank_rows(every, local)[0]:
            chosen = [made_of(rank, token, k).float() for k in range(K) if experts[k] >= 0]
            came.append(sum(chosen[1:], chosen[0]).bfloat16())
    y = torch.stack(came) if came else torch.empty(0, H).bfloat16()
    biases = mine.bias[:num_biases]
    out, home = launch(
        buffer,
        "combine",
        with_event,
        is_async,
        x=y.to(rows.device),
        handle=handle,
        topk_weights=weights,
        bias=(None, biases and biases[0], biases)[num_biases],
        allocate_on_comm_stream=allocate,
        num_sms=8,
        num_qps=4,
    )
    sent = every[comm.rank]
    all_rows = torch.empty(len(sent.x), K, H).bfloat16()
    for token, choice in itertools.product(range(len(sent.x)), range(K)):
        all_rows[token, choice] = made_of(comm.rank, token, choice)
    assert same(out, sums(sent, all_rows, len(local), sent.bias[:num_biases]))
    assert torch.equal(home.cpu(), sent.weights)


def test_a_bad_id_is_an_error_of_its_rank_alone(comm, buffer):
    mine = here(every_rank(comm)[comm.rank])
    ids = mine.ids.clone()
    if comm.rank == comm.size - 1:
        ids[0, 0] = E
        with pytest.raises(epx.EPXError) as caught:
            buffer.dispatch(mine.x, ids, num_experts=E)
        assert caught.value.code == Code.ARG
    else:
        buffer.dispatch(mine.x, ids, num_experts=E)
    rows, _, _, handle, _ = buffer.dispatch(mine.x, mine.ids, num_experts=E)
    buffer.combine(rows, handle)


def test_without_weights_there_are_none(comm, buffer):
    mine = here(every_rank(comm)[comm.rank])
    rows, _, weights, handle = launch(
        buffer, "dispatch", False, False, x=mine.x, topk_idx=mine.ids, num_experts=E
    )
    assert weights is None
    assert buffer.combine(rows, handle)[1] is None


def test_partial_sums_may_travel_unrounded(comm, group):
    made = deep_ep.ElasticBuffer(
        group,
        num_bytes=deep_ep.ElasticBuffer.get_buffer_size_hint(group, MOST, H),
        allow_multiple_reduction=False,
        explicitly_destroy=True,
        num_max_tokens_per_rank=MOST,
        deterministic=True,
    )
    every, local = every_rank(comm), experts_of(comm)
    mine = here(every[comm.rank])
    rows, _, _, handle, _ = made.dispatch(mine.x, mine.ids, num_experts=E, do_expand=True)
    out, _, _ = made.combine(rows, handle)
    number = (mine.ids >= 0).sum(1, keepdim=True)
    exact = mine.x.float() * number
    assert torch.equal(out, exact.bfloat16())
    assert len(local) * comm.size == E
    del rows, out, handle
    made.destroy()


def test_what_a_buffer_tells(comm, buffer, group):
    assert (buffer.rank_idx, buffer.num_ranks) == (comm.rank, comm.size)
    assert buffer.get_logical_domain_size() == buffer.get_physical_domain_size() == (1, comm.size)
    assert deep_ep.get_physical_domain_size(group) == (1, comm.size)
    assert deep_ep.get_logical_domain_size(group, allow_hybrid_mode=False) == (1, comm.size)
    assert buffer.get_theoretical_num_sms(E, K) > 0
    assert 0 < buffer.get_theoretical_num_qps(8) <= buffer.num_allocated_qps
    for use_fp8 in (False, True):
        hint = deep_ep.ElasticBuffer.get_buffer_size_hint(group, MOST, H, K, use_fp8)
        assert hint > 0 and hint % (2 << 20) == 0
    buffer.barrier()
    buffer.barrier(use_comm_stream=False, with_cpu_sync=True, sequential=False)
    assert (buffer.get_comm_stream() is None) == (not comm.on_device)
    with buffer_event(buffer) as event:
        assert event.event is not None
    assert event.event is None
    with pytest.raises(AssertionError, match="no event"):
        event.current_stream_wait()


def buffer_event(buffer):
    event = deep_ep.EventOverlap(buffer.capture())
    event.register_hook_after_wait(lambda: None)
    with pytest.raises(AssertionError, match="already"):
        event.register_hook_after_wait(lambda: None)
    return event(release_handle=True)


@pytest.mark.parametrize(
    "name",
    [
        *("engram_write", "engram_fetch", "get_engram_storage_size_hint"),
        *("get_pp_buffer_size_hint", "pp_set_config", "pp_send", "pp_recv"),
        *("get_agrs_num_max_session_bytes", "get_agrs_buffer_size_hint", "create_agrs_session"),
        *("destroy_agrs_session", "agrs_new_session", "agrs_set_config"),
        *("agrs_get_inplace_tensor", "all_gather"),
    ],
)
def test_what_epx_has_not_says_so(buffer, name):
    given = () if name.endswith("_session") else (1,)
    with pytest.raises(epx.EPXError, match=f"EPX has no .*{name}: .*") as caught:
        getattr(buffer, name)(*given)
    assert caught.value.code == Code.UNSUPPORTED


def test_wrong_calls_are_refused(comm, buffer, group):
    mine = here(every_rank(comm)[comm.rank])
    with pytest.raises(AssertionError, match="want topk_idx"):
        buffer.dispatch(mine.x)
    made = buffer.dispatch(mine.x, mine.ids, num_experts=E)
    with pytest.raises(AssertionError, match="expanded"):
        buffer.dispatch(mine.x, handle=made[3], do_expand=True)
    with pytest.raises(AssertionError, match="QPs"):
        buffer.dispatch(mine.x, mine.ids, num_experts=E, num_qps=1000)
    if comm.size > 1:
        with pytest.raises(epx.EPXError, match="num_experts = 9"):
            buffer.dispatch(mine.x, mine.ids, num_experts=9)
    with pytest.raises(epx.EPXError, match="num_cpu_bytes"):
        deep_ep.ElasticBuffer(group, num_cpu_bytes=1 << 21)
    for kind in (deep_ep.ElasticBuffer, deep_ep.Buffer):
        kept = kind(group)
        with pytest.raises(AssertionError, match="explicitly_destroy"):
            kept.destroy()


def test_buffers_of_a_group_share_a_communicator(comm, group):
    first = deep_ep.ElasticBuffer(group, num_gpu_timeout_secs=70, explicitly_destroy=True)
    second = deep_ep.ElasticBuffer(group, num_gpu_timeout_secs=70, explicitly_destroy=True)
    mine = here(every_rank(comm)[comm.rank])
    first.destroy()
    first.destroy()
    rows, _, _, handle, _ = second.dispatch(
        mine.x, mine.ids, num_experts=E, num_max_tokens_per_rank=MOST
    )
    assert second.combine(rows, handle)[0].shape == mine.x.shape
    second.destroy()
    with pytest.raises(AssertionError, match="destroyed"):
        second.dispatch(mine.x, mine.ids, num_experts=E, num_max_tokens_per_rank=MOST)
