# SPDX-License-Identifier: BSD-3-Clause
"""The parts of reserved memory: taken, joined, shared by threads; torch's pools; closing."""

import contextlib
import ctypes
import gc
import random
import threading

import pytest
import torch
from windows import expect, take

import epx
from epx import Code, _arena, _core, _pools

left = []  # what lives when Python exits


def test_what_comes_back_is_joined(make_comm):
    comm = make_comm(1 << 18)
    order = random.Random(comm.rank)
    for _ in range(50):
        parts = []
        while (part := take(comm, order.randrange(1, 5000))) is not None:
            parts.append(part)
        spans = sorted((part.data_ptr(), part.data_ptr() + len(part)) for part in parts)
        assert all(start % 512 == 0 for start, _ in spans)
        assert all(one[1] <= two[0] for one, two in zip(spans, spans[1:]))
        order.shuffle(parts)
        while parts:
            parts.pop()
        assert len(take(comm, 1 << 18)) == 1 << 18, "one block again"
    assert take(comm, (1 << 18) + 1) is None and take(comm, 0) is None


def test_the_smallest_room_is_taken(make_comm):
    comm = make_comm(8 << 10)
    parts = [take(comm, size) for size in (2048, 512, 1024, 512)]
    small = parts[2].data_ptr()
    parts[0] = parts[2] = None
    assert take(comm, 1000).data_ptr() == small


def test_threads_share_the_memory(make_comm):
    comm = make_comm(1 << 18)
    wrong = []

    def work(number):
        order = random.Random(number)
        held = []
        for _ in range(400):
            part = take(comm, order.randrange(1, 9000))
            if part is not None:
                held.append(part.fill_(number))
            while held and (part is None or len(held) > 6 or order.random() < 0.3):
                old = held.pop(order.randrange(len(held)))
                wrong.extend([number] if not (old == number).all() else [])
                part = old

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert comm.reserved()[1:3] == (0, 0)
    assert take(comm, 1 << 18) is not None


def test_memory_is_added_and_differs_by_rank(make_comm):
    comm = make_comm(0)
    assert take(comm, 1) is None
    comm.reserve(1000 if comm.rank == 0 else 0)
    comm.reserve(5000)
    assert comm.reserved().bytes == 5120 + (1024 if comm.rank == 0 else 0)
    first, second = take(comm, 5000), take(comm, 1000)
    assert first is not None and (second is not None) == (comm.rank == 0)


def test_a_wrong_size_is_refused(make_comm):
    made = make_comm(None)
    expect(Code.COUNT, "-1 bytes", made.reserve, -1)
    expect(Code.COUNT, str(-(2**63)), made.reserve, -(2**63))
    for size in 2**62, 2**63 - 1, 2**63, 10**30:
        expect(Code.NO_MEM, "bytes", made.reserve, size)
    with pytest.raises(TypeError):
        made.reserve("much")
    made.reserve(4096)
    assert made.reserved().bytes == 4096
    made.close()
    expect(Code.COMM, "closed", made.reserve, 4096)
    expect(Code.COMM, "closed", made.reserved)


def test_there_is_no_pool_on_the_host(make_comm):
    comm = make_comm(4096)
    expect(Code.UNSUPPORTED, "GPU", lambda: comm.pool)
    expect(Code.UNSUPPORTED, "GPU", lambda: comm.graph_pool)


def test_closing_says_what_each_rank_has():
    made = epx.Comm()
    made.reserve(1 << 18)
    parts = [take(made, 1) for _ in range(made.rank + 1)]
    text = ", ".join(f"{rank + 1} on rank {rank}" for rank in range(made.size))
    expect(Code.PENDING, f"parts: {text}\\.", made.close)
    parts.clear()
    made.close()


def test_cycles_are_collected_before_closing():
    made = epx.Comm()
    made.reserve(1 << 18)
    gc.disable()
    try:
        cycle = [take(made, 100)]
        cycle.append(cycle)
        del cycle
        assert made.reserved().parts == 1
        made.close()
    finally:
        gc.enable()


def pool_functions(comm):
    """What torch's pool on GPUs calls; here over the host's memory."""
    index = ctypes.c_int(-1)
    code = _arena._pool(comm._index, index)
    if code:
        _core._raise(code)
    allocate = getattr(_core._lib, f"epx_python_pool_{index.value}")
    allocate.argtypes = (ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    allocate.restype = ctypes.c_void_p
    free = _core._lib.epx_python_pool_free
    free.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    free.restype = None
    return index.value, allocate, free


def test_a_pool_has_segments_in_the_window(make_comm):
    one, two = make_comm(4 << 20), make_comm(2 << 20)
    (first, allocate, free), (second, allocate_two, _) = pool_functions(one), pool_functions(two)
    assert first != second and pool_functions(one)[0] == first
    start = take(one, 4 << 20).data_ptr()
    segments = [allocate(2 << 20, 0, None) for _ in range(2)]
    assert sorted(segments) == [start, start + (2 << 20)]
    other = allocate_two(2 << 20, 0, None)
    assert not start <= other < start + (4 << 20)
    more = allocate(2 << 20, 0, None)
    assert more is None or not start <= more < start + (4 << 20), "a GPU's own, if there is one"
    assert (one.reserved().parts, one.reserved().refused) == (2, 1)
    for segment in (*segments, other, *([more] if more else [])):
        free(segment, 2 << 20, 0, None)
    assert one.reserved().parts == 0 and two.reserved().parts == 0
    assert not _core._lib.epx_python_give_at(ctypes.c_void_p(segments[0])), "not twice"


def test_pools_are_made_of_the_functions(make_comm, monkeypatch):
    """What of torch's pools needs no GPU: its allocator takes the functions of the glue."""
    if not hasattr(torch._C, "_cuda_customAllocator"):
        pytest.skip("torch is built without CUDA")
    made, entered = [], []

    class Pool:
        in_use = False

        def __init__(self, allocator):
            made.append(allocator)

        def use_count(self):
            return 1 + self.in_use

    @contextlib.contextmanager
    def use(pool, device):
        assert not pool.in_use
        entered.append((pool, device))
        yield

    monkeypatch.setattr(torch.cuda, "MemPool", Pool)
    monkeypatch.setattr(torch.cuda, "use_mem_pool", use)
    pools = _pools.Pools(-1, pool_functions(make_comm(4096))[0])
    like = torch.empty(0, dtype=torch.bfloat16)
    for in_use in False, True, False:
        pools.get("eager").in_use = in_use  # by the caller
        tensor = pools.empty(like, (3, 4))
        assert tensor.shape == (3, 4) and tensor.dtype == torch.bfloat16
    assert entered == [(pools.get("eager"), like.device)] * 2
    assert pools.get("graphs") is not pools.get("eager")
    assert all(isinstance(given, torch._C._cuda_CUDAAllocator) for given in made)
    assert len(made) == 2


def test_pools_are_used_again():
    comms = [epx.Comm() for _ in range(17)]
    numbers = [pool_functions(comm)[0] for comm in comms[:16]]
    assert sorted(numbers) == list(range(16))
    expect(Code.NO_MEM, "16 communicators", pool_functions, comms[16])
    comms[3].close()
    assert pool_functions(comms[16])[0] == numbers[3]
    for comm in comms:
        comm.close()


def test_tensors_may_outlive_the_program():
    """The run fails if a rank crashes when it exits."""
    comm = epx.Comm()
    comm.reserve(1 << 12)
    left.append((comm, take(comm, 100).fill_(1)))
    assert comm.reserved().parts == 1
