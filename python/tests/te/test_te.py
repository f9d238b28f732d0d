# SPDX-License-Identifier: BSD-3-Clause
"""epx.te: every argument of its calls, against lists and plain torch."""

import re

import pytest
import torch
from moe import here, sent_by
from slots import expert_rows

import epx
from epx import Code, te

MOST, H, K, E = 24, 64, 3, 8
CAPACITY = 160  # at least what any rank receives, and on few ranks more than that may be
SHAPE = {"top_k": K, "max_tokens_per_rank": MOST, "hidden_dim": H}


def every_rank(comm):
    return [sent_by(rank, (3 + 4 * rank % 11, H, K, E)) for rank in range(comm.size)]


def local_experts(comm):
    per_rank = E // comm.size
    return range(comm.rank * per_rank, (comm.rank + 1) * per_rank)


def start(group, **more):
    te.ep_bootstrap(group, E, MOST, H, K, **more)


@pytest.fixture
def finalize():
    yield
    te.ep_finalize()


@pytest.fixture(params=["fixed", "eager"])
def capacity(request, group, finalize):
    capacity = CAPACITY if request.param == "fixed" else None
    start(group, recv_capacity_per_rank=capacity)
    return capacity


@pytest.fixture
def fixed(group, finalize):
    start(group, recv_capacity_per_rank=CAPACITY)


def make_buffer(comm, capacity=CAPACITY, **more):
    shape = {**SHAPE, "num_local_experts": E // comm.size, **more}
    return te.EpBuffer(**shape, recv_capacity_per_rank=capacity)


def check_rows(comm, made, alignment=1):
    """Rows, weights and counts of a dispatch are those of the lists. Returns how many there are."""
    rows, weights, counts = made
    every = every_rank(comm)
    slots, _, offsets = expert_rows(every, local_experts(comm), alignment)
    assert counts.dtype == torch.int64
    assert counts.tolist() == [end - first for first, end in zip(offsets, offsets[1:])]
    for at, slot in enumerate(slots):
        if slot is None:
            assert not rows[at].any() and weights[at] == 0
        else:
            rank, token, choice = slot
            assert torch.equal(rows[at].cpu(), every[rank].x[token])
            assert weights[at] == every[rank].weights[token, choice]
    return len(slots)


@pytest.mark.parametrize("alignment", [0, 1, 8])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_arrive_by_expert(comm, capacity, alignment, dtype):
    mine = here(every_rank(comm)[comm.rank])
    buffer = make_buffer(comm, capacity, alignment=alignment)
    made = te.ep_dispatch(buffer, mine.x, mine.ids.to(dtype), mine.weights)
    num = check_rows(comm, made, max(alignment, 1))
    assert made[2] is buffer.tokens_per_expert
    assert buffer.total_recv_tokens.tolist() == [num]
    assert buffer.eager == (capacity is None)
    assert len(made[0]) == len(made[1]) == (num if buffer.eager else CAPACITY)


def test_preparing_counts_rows(comm, capacity):
    mine = here(every_rank(comm)[comm.rank])
    buffer = make_buffer(comm, capacity)
    counts = te.ep_prepare(buffer, mine.ids)
    assert counts is buffer.tokens_per_expert
    assert counts.tolist() == expert_rows(every_rank(comm), local_experts(comm), 1)[1]
    assert buffer.total_recv_tokens.item() == counts.sum()


def dense(mine, x, weights, factors):
    """The layer on one rank: each expert multiplies by its factor."""
    terms = weights * (mine.ids >= 0) * factors[mine.ids.clamp(min=0)]
    return terms.sum(1, keepdim=True) * x


def layer(comm, buffer, x, ids, weights, **given):
    rows, row_weights, counts = te.ep_dispatch(buffer, x, ids, weights)
    factor = torch.zeros(len(rows))
    ends = counts.cumsum(0).tolist()
    for expert, count, end in zip(local_experts(comm), counts.tolist(), ends):
        factor[end - count : end] = 1 + expert
    used = torch.arange(len(rows)) < buffer.total_recv_tokens.to(rows.device)
    y = torch.where(used, row_weights * factor, 0)[:, None] * rows.where(used[:, None], 0)
    return te.ep_combine(buffer, y.to(rows.dtype), **given)


def check_layer(comm, buffer, dtype, tolerance, **given):
    mine = here(every_rank(comm)[comm.rank])
    leaves = [mine.x.to(dtype), mine.weights.clone()]
    ours, theirs = ([leaf.clone().requires_grad_() for leaf in leaves] for _ in range(2))
    made = layer(comm, buffer, ours[0], mine.ids, ours[1], **given)
    wanted = dense(mine, theirs[0].double(), theirs[1].double(), 1.0 + torch.arange(E))
    num = len(mine.x)
    assert made.shape == (given.get("num_local_tokens", MOST), H)
    assert not made[num:].any()
    torch.testing.assert_close(made[:num].double(), wanted, **tolerance)
    factor = torch.linspace(-1, 1, H)
    (made[:num] * factor).sum().backward()
    (wanted * factor).sum().backward()
    for got, want in zip(ours, theirs):
        torch.testing.assert_close(got.grad.double(), want.grad.double(), **tolerance)


CLOSE = {"atol": 1e-4, "rtol": 1e-4}
ROUNDED = {"atol": 0.25, "rtol": 0.05}  # bfloat16 rows, and sums of up to three of them


@pytest.mark.parametrize("alignment", [0, 8])
def test_a_layer_has_the_values_and_gradients_of_one_rank(comm, capacity, alignment):
    num = len(every_rank(comm)[comm.rank].x)
    buffer = make_buffer(comm, capacity, alignment=alignment)
    check_layer(comm, buffer, torch.bfloat16, ROUNDED)
    check_layer(comm, buffer, torch.bfloat16, ROUNDED, num_local_tokens=num)


@pytest.mark.parametrize(
    "dtype, tolerance",
    [(torch.float16, ROUNDED), (torch.float32, CLOSE), (torch.float64, CLOSE)],
)
def test_rows_may_be_as_wide_as_is_said(comm, group, finalize, dtype, tolerance):
    start(group, recv_capacity_per_rank=CAPACITY, max_token_dtype=dtype)
    check_layer(comm, make_buffer(comm, payload_dtype=dtype), dtype, tolerance)


def test_rows_are_not_wider_than_is_said(comm, fixed):
    with pytest.raises(ValueError, match="wider"):
        make_buffer(comm, payload_dtype=torch.float32)


def test_ids_are_not_written_to_before_the_backward(comm, fixed):
    mine = here(every_rank(comm)[comm.rank])
    ids, x = mine.ids.clone(), mine.x.clone().requires_grad_()
    rows, _, _ = te.ep_dispatch(make_buffer(comm), x, ids, mine.weights)
    ids.add_(0)
    with pytest.raises(epx.EPXError, match="written to") as caught:
        rows.sum().backward()
    assert caught.value.code == Code.ARG


def test_several_batches_are_under_way(comm, capacity):
    mine = here(every_rank(comm)[comm.rank])
    buffers = [make_buffer(comm, capacity) for _ in range(6)]  # more than there are routes
    given = [(at * mine.x).requires_grad_() for at in range(1, 7)]
    made = [
        te.ep_dispatch(buffer, x, mine.ids.roll(at, 0), mine.weights)[0]
        for at, (buffer, x) in enumerate(zip(buffers, given))
    ]
    for at in (0, 5, 2, 1, 4, 3):
        used = torch.arange(len(made[at])) < buffers[at].total_recv_tokens.to(mine.x.device)
        made[at].where(used[:, None], 0).float().sum().backward()
        wanted = (mine.ids.roll(at, 0) >= 0).sum(1, keepdim=True).expand(-1, H)
        assert torch.equal(given[at].grad, wanted.to(mine.x.dtype))


def test_rows_arrive_where_the_caller_wants_them(comm, fixed):
    mine = here(every_rank(comm)[comm.rank])
    buffer = make_buffer(comm)
    room, room_weights = torch.zeros((CAPACITY, H), dtype=torch.bfloat16), torch.zeros(CAPACITY)
    grad_out = torch.zeros_like(room)
    x = mine.x.clone().requires_grad_()
    made = te.ep_dispatch(
        buffer, x, mine.ids, mine.weights, recv_tokens=room, recv_topk_weights=room_weights
    )
    num = check_rows(comm, made)
    assert made[0].data_ptr() == room.data_ptr() and not room.requires_grad
    assert made[1].data_ptr() == room_weights.data_ptr()
    y = made[0].detach().requires_grad_()
    out = te.ep_combine(buffer, y, grad_out=grad_out)
    grad = torch.ones_like(out)
    grad[: len(mine.x)] = mine.x
    out.backward(grad)
    check_rows(comm, (grad_out, room_weights, buffer.tokens_per_expert))
    assert torch.equal(y.grad[:num], grad_out[:num])


def test_calls_without_gradients_take_what_was_prepared(comm, fixed):
    mine = here(every_rank(comm)[comm.rank])
    buffer = make_buffer(comm, alignment=4)
    rows, weights = torch.zeros((CAPACITY, H), dtype=torch.bfloat16), torch.zeros(CAPACITY)
    te.ep_prepare(buffer, mine.ids)
    te._ep_dispatch_raw(buffer, mine.ids, mine.x, mine.weights, rows, weights)
    check_rows(comm, (rows, weights, buffer.tokens_per_expert), 4)
    result = torch.full_like(mine.x, 7)
    te._ep_combine_raw(buffer, rows, result)
    count = (mine.ids >= 0).sum(1, keepdim=True)
    torch.testing.assert_close(result, count * mine.x, atol=0.1, rtol=0.02)


def test_what_lacks_room_is_dropped_or_an_error(comm, group, finalize):
    mine = here(every_rank(comm)[comm.rank])
    num = len(expert_rows(every_rank(comm), local_experts(comm), 1)[0])
    start(group, recv_capacity_per_rank=5, drop_on_overflow=True)
    buffer = make_buffer(comm, 5)
    rows, weights, counts = te.ep_dispatch(buffer, mine.x, mine.ids, mine.weights)
    assert rows.shape == (5, H) and weights.shape == (5,)
    assert counts.sum() == min(num, 5) and buffer.total_recv_tokens.item() == num
    every = every_rank(comm)
    slots = expert_rows(every, local_experts(comm), 1)[0]
    for row, (rank, token, _) in zip(rows, slots):
        assert torch.equal(row.cpu(), every[rank].x[token])
    te.ep_finalize()
    start(group, recv_capacity_per_rank=5)
    buffer = make_buffer(comm, 5)
    with pytest.raises(epx.EPXError) as caught:
        te.ep_dispatch(buffer, mine.x, mine.ids, mine.weights)
        if comm.on_device:
            torch.cuda.synchronize()
            te.communicator().check()
    assert caught.value.code == Code.TRUNCATE


def test_rows_of_zero_copy_lie_in_reserved_memory(comm, group, finalize):
    start(group, recv_capacity_per_rank=CAPACITY, zero_copy=True)
    buffer, mine = make_buffer(comm), here(every_rank(comm)[comm.rank])
    assert buffer.zero_copy
    made = te.ep_dispatch(buffer, mine.x, mine.ids, mine.weights)
    check_rows(comm, made)
    assert te.is_symm_backed(made[0]) and te.is_symm_backed(made[1])
    assert not te.is_symm_backed(mine.x)
    y = te.symm_mem_alloc(made[0].shape, torch.bfloat16, group, use_pool=True)
    assert te.is_symm_backed(y)
    y.copy_(made[0]).requires_grad_()
    te.ep_combine(buffer, y).sum().backward()
    assert te.is_symm_backed(y.grad)
    check_layer(comm, buffer, torch.bfloat16, ROUNDED)
    del made, y


def test_memory_of_the_caller_leaves_that_of_rows_free(comm, group, finalize):
    start(group, recv_capacity_per_rank=CAPACITY, zero_copy=True)
    mine = here(every_rank(comm)[comm.rank])
    own = [te.symm_mem_alloc((CAPACITY, H), torch.bfloat16, group) for _ in range(6)]
    made = te.ep_dispatch(make_buffer(comm), mine.x, mine.ids, mine.weights)
    assert all(te.is_symm_backed(each) for each in (*own, *made[:2]))
    del own, made


def test_tensors_outlive_the_group(comm, group, finalize):
    start(group, recv_capacity_per_rank=CAPACITY, zero_copy=True)
    kept = te.symm_mem_alloc((CAPACITY, H), torch.bfloat16, group).fill_(3)
    te.ep_finalize()
    start(group, recv_capacity_per_rank=CAPACITY, zero_copy=True)
    check_layer(comm, make_buffer(comm), torch.bfloat16, ROUNDED)
    assert te.is_symm_backed(kept) and (kept == 3).all()
    del kept


def test_memory_is_added_where_it_lacks(comm, group, fixed):
    large = [te.symm_mem_alloc((1 << at, 3), torch.float32, group) for at in (4, 12, 16)]
    assert all(te.is_symm_backed(each) for each in large)
    reserved = te.communicator().reserved()
    device = large[0].device
    del large
    again = te.symm_mem_alloc(((1 << 16) * 3,), torch.float32, ep_group=group, device=device)
    assert te.is_symm_backed(again)
    assert te.communicator().reserved().bytes == reserved.bytes
    ordinary = te.symm_mem_alloc((1 << 22,), torch.float32, group, use_pool=True)
    assert not te.is_symm_backed(ordinary) and ordinary.shape == (1 << 22,)
    te.release_symm_mem_pool()
    assert te.is_symm_backed(again)


def blocks_of(x):
    """Rows in MXFP8 by the definition: the least power of two for which nothing is above 448."""
    made = torch.zeros(x.shape)
    exponents = torch.zeros((len(x), H // 32), dtype=torch.uint8)
    for row in range(len(x)):
        for block in range(H // 32):
            part = x[row, 32 * block : 32 * block + 32].double()
            exponent = 0
            while part.abs().max() > 448.0 * 2.0 ** (exponent - 127):
                exponent += 1
            scale = 2.0 ** (exponent - 127)
            fp8 = (part / scale).float().to(torch.float8_e4m3fn)
            made[row, 32 * block : 32 * block + 32] = fp8.float() * scale
            exponents[row, block] = exponent
    return made, exponents


def rooms(capacity):
    """None, and what a caller may have for rows and their scales."""
    return [None] + ([torch.zeros(capacity * (H + H // 32), dtype=torch.uint8)] if capacity else [])


def check_quantized(comm, rows, room, alignment):
    """Rows of a GroupedTensor, and their scales, are those of the definition."""
    assert isinstance(rows, te.GroupedTensor) and rows.dtype == torch.bfloat16
    if room is not None:
        assert rows.rowwise_data.data_ptr() == room.data_ptr()
        assert rows.scale_inv.data_ptr() == room.data_ptr() + CAPACITY * H
    every = [blocks_of(sent.x.cpu()) for sent in every_rank(comm)]
    slots, _, offsets = expert_rows(every_rank(comm), local_experts(comm), alignment)
    plain, scales = rows.dequantize(torch.float32).cpu(), rows.scale_inv.view(-1, H // 32).cpu()
    for at, slot in enumerate(slots):
        if slot is None:
            assert not plain[at].any()
        else:
            wanted, exponents = every[slot[0]]
            assert torch.equal(plain[at], wanted[slot[1]])
            assert torch.equal(scales[at], exponents[slot[1]])
    assert rows.tensor_offsets.tolist() == [H * first for first in offsets]
    parts = [part.dequantize(torch.float32).cpu() for part in rows.split_into_quantized_tensors()]
    assert torch.equal(torch.cat(parts), plain[: len(slots)])
    return len(slots)


def test_rows_are_quantized_on_the_way(comm, capacity):
    mine = here(every_rank(comm)[comm.rank])
    recipe = te.MXFP8BlockScaling()
    for room in rooms(capacity):
        buffer = make_buffer(comm, capacity, alignment=8, dispatch_fwd_quant_recipe=recipe)
        x, weights = mine.x.clone().requires_grad_(), mine.weights.clone().requires_grad_()
        rows, row_weights, counts = te.ep_dispatch(buffer, x, mine.ids, weights, recv_tokens=room)
        num = check_quantized(comm, rows, room, 8)
        assert rows.first_dims.tolist() == counts.tolist()
        (rows[:num].float().sum() + row_weights[:num].sum()).backward()
        chosen = (mine.ids >= 0).sum(1, keepdim=True)
        assert torch.equal(x.grad, chosen.expand(-1, H).to(x.dtype))
        assert torch.equal(weights.grad, (mine.ids >= 0).float())


def test_gradients_are_quantized_on_the_way(comm, capacity):
    mine = here(every_rank(comm)[comm.rank])
    buffer = make_buffer(comm, capacity, combine_bwd_quant_recipe=te.MXFP8BlockScaling())
    rows, _, _ = te.ep_dispatch(buffer, mine.x, mine.ids, mine.weights)
    for room in rooms(capacity):
        y = rows.clone().requires_grad_()
        out = te.ep_combine(buffer, y, num_local_tokens=len(mine.x), grad_out=room)
        out.backward(mine.x)
        check_quantized(comm, y.grad, room, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_rows_of_other_types_are_quantized_alike(dtype):
    from epx.te import _mxfp8

    x = torch.randn(5, 64).bfloat16()
    for made, wanted in zip(_mxfp8.quantize(x.to(dtype)), _mxfp8.quantize(x)):
        assert torch.equal(made.view(torch.uint8), wanted.view(torch.uint8))


def test_what_is_no_number_stays_none():
    x = torch.zeros((3, 64), dtype=torch.bfloat16)
    x[0, 5], x[1, 40], x[2] = torch.nan, torch.inf, 2.0**-130
    from epx.te import _mxfp8

    made = _mxfp8.dequantize(*_mxfp8.quantize(x), torch.float32)
    assert made[0, :32].isnan().all() and not made[0, 32:].any()
    assert made[1, 32:].isnan().all() and not made[1, :32].any()
    assert torch.equal(made[2], x[2].float())


def test_a_group_starts_and_ends(group):
    assert not te.is_ep_bootstrapped()
    te.ep_finalize()
    start(group, max_num_sms=12)
    assert te.is_ep_bootstrapped()
    assert te.communicator().hint("max_sms") == "12"
    with pytest.raises(RuntimeError, match="ep_finalize"):
        start(group)
    te.ep_finalize()
    assert not te.is_ep_bootstrapped()
    for call in (te.communicator, lambda: te.EpBuffer(**SHAPE, num_local_experts=1)):
        with pytest.raises(RuntimeError, match="ep_bootstrap"):
            call()


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_topk": 0},
        {"zero_copy": True},
        {"drop_on_overflow": True},
        {"recv_capacity_per_rank": 0},
    ],
)
def test_wrong_bounds_are_refused(group, wrong):
    given = {"num_topk": K, **wrong}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        te.ep_bootstrap(group, E, MOST, H, **given)
    assert not te.is_ep_bootstrapped()


@pytest.mark.parametrize(
    "wrong",
    [
        {"top_k": K + 1},
        {"max_tokens_per_rank": MOST + 1},
        {"hidden_dim": H + 1},
        {"num_local_experts": E + 1},
        {"capacity": CAPACITY + 1},
        {"capacity": None},
        {"alignment": 3},
    ],
)
def test_wrong_buffers_are_refused(comm, fixed, wrong):
    name = next(iter(wrong)).replace("capacity", "recv_capacity_per_rank")
    with pytest.raises(ValueError, match=name):
        make_buffer(comm, **wrong)


def test_wrong_calls_are_refused(comm, fixed):
    mine = here(every_rank(comm)[comm.rank])
    x, ids, weights = mine.x, mine.ids, mine.weights
    buffer = make_buffer(comm)
    with pytest.raises(RuntimeError, match="ep_prepare"):
        te.ep_combine(buffer, torch.zeros((CAPACITY, H), dtype=torch.bfloat16))
    with pytest.raises(TypeError, match="float32"):
        te.ep_dispatch(buffer, x, ids, weights.double())
    with pytest.raises(epx.EPXError, match="payload_dtype"):
        te.ep_dispatch(buffer, x.float(), ids, weights)
    few = make_buffer(comm, max_tokens_per_rank=1)
    with pytest.raises(epx.EPXError, match="at most 1"):
        te.ep_prepare(few, torch.zeros((2, K), dtype=torch.int64))
    rows, _, _ = te.ep_dispatch(buffer, x, ids, weights)
    for call in (
        lambda: te.ep_combine(buffer, rows[1:]),
        lambda: te.ep_combine(buffer, rows, num_local_tokens=0),
        lambda: te.ep_combine(buffer, rows, grad_out=rows[:1]),
        lambda: te._ep_dispatch_raw(buffer, ids[1:], x, weights, rows, torch.zeros(CAPACITY)),
    ):
        with pytest.raises(epx.EPXError) as caught:
            call()
        assert caught.value.code == Code.COUNT
    quantized = te.GroupedTensor.of(
        torch.zeros((2, H), dtype=torch.float8_e4m3fn),
        torch.zeros((2, H // 32), dtype=torch.uint8),
        torch.tensor([2]),
        torch.bfloat16,
    )
    with pytest.raises(NotImplementedError, match="GroupedTensor"):
        te.ep_dispatch(buffer, quantized, ids, weights)


def test_eager_calls_take_no_room_of_the_caller(comm, group, finalize):
    start(group)
    buffer, mine = make_buffer(comm, None), here(every_rank(comm)[comm.rank])
    room = torch.zeros((CAPACITY, H), dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="recv_tokens"):
        te.ep_dispatch(buffer, mine.x, mine.ids, mine.weights, recv_tokens=room)
    rows, _, _ = te.ep_dispatch(buffer, mine.x, mine.ids, mine.weights)
    with pytest.raises(ValueError, match="grad_out"):
        te.ep_combine(buffer, rows, grad_out=room)


class Float8CurrentScaling:
    """A recipe that EPX has not."""


def test_what_epx_has_not_says_so(comm, group, fixed):
    two = torch.distributed.new_group(list(range(comm.size)), backend="gloo")
    elsewhere = torch.device("meta")
    calls = {
        "Float8CurrentScaling": lambda: make_buffer(
            comm, dispatch_fwd_quant_recipe=Float8CurrentScaling()
        ),
        "recipe": lambda: make_buffer(comm, combine_bwd_quant_recipe=Float8CurrentScaling()),
        "handle_mem": lambda: make_buffer(comm).handle_mem,
        "buffer on meta": lambda: make_buffer(comm, device=elsewhere),
        "another group": lambda: te.symm_mem_alloc((4,), torch.float32, two),
        "NVSHMEM": lambda: te.symm_mem_alloc((4,), torch.float32, group, backend="NVSHMEM"),
        "meta": lambda: te.symm_mem_alloc((4,), torch.float32, group, device=elsewhere),
    }
    for name, call in calls.items():
        with pytest.raises(epx.EPXError, match=f"(?s){re.escape(name)}.*: ") as caught:
            call()
        assert caught.value.code == Code.UNSUPPORTED
    if comm.size > 1:
        with pytest.raises(epx.EPXError, match="num_experts = 7"):
            te.ep_finalize()
            te.ep_bootstrap(group, 7, MOST, H, K)
