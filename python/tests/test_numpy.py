# SPDX-License-Identifier: BSD-3-Clause
"""epx.numpy beside lists: exchanges, dispatches and combines of arrays of several libraries."""

import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from slots import expert_rows, num_tokens, rank_rows, slab_rows

import epx
import epx.numpy as en

H, K, MAX_TOKENS = 6, 3, 20
PARTICLE = np.dtype([("place", np.float64, 3), ("name", np.int32), ("kind", np.int8)])


class Tokens(NamedTuple):
    x: Any  # [T, H], small integers: all types hold them exactly
    ids: Any  # [T, K] int64
    weights: Any  # [T, K] float32, quarters


def every_rank(comm, experts):
    every = []
    for rank in range(comm.size):
        made = np.random.default_rng(17 + rank)
        num = num_tokens(rank)
        ids = made.integers(0, experts, (num, K))
        ids[made.random((num, K)) < 0.15] = -1
        weights = made.integers(1, 5, (num, K)).astype(np.float32) / 4
        every.append(Tokens(made.integers(0, 9, (num, H)).astype(float), ids, weights))
    return every


def local_of(route):
    return range(route.first_expert, route.first_expert + route.local_experts)


class Interface:
    """Speaks the array interface, and nothing else."""

    def __init__(self, array):
        self.array, self.__array_interface__ = array, array.__array_interface__


class Packed:
    """Speaks DLPack, and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def strided(array):
    wide = np.zeros((len(array), 2 * H), array.dtype)
    wide[:, ::2] = array
    return wide[:, ::2]


def counts_of(rank, size):
    """How many rows a rank sends to each: none to some, and rank 1 sends nothing."""
    return [0 if rank == 1 else (3 * rank + 5 * to) % 7 for to in range(size)]


def rows_of(rank, to, shape, dtype):
    made = np.random.default_rng((3, rank, to))
    num = counts_of(rank, max(to + 1, 1))[to]
    bytes = num * int(np.prod(shape)) * dtype.itemsize
    return made.integers(0, 256, bytes, dtype=np.uint8).view(dtype).reshape((num, *shape))


def expect_error(code, text, call, *arguments, **named):
    with pytest.raises(epx.EPXError, match=text) as caught:
        call(*arguments, **named)
    assert caught.value.code == code


DTYPES = [np.dtype(name) for name in ("u1", "i2", "i4", "i8", "f2", "f4", "f8", "c16", "?", "S5")]


@pytest.mark.parametrize("capacity", [None, 40])
@pytest.mark.parametrize("shape", [(), (3,), (2, 4)], ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, PARTICLE], ids=str)
def test_rows_arrive_by_source_rank(comm, dtype, shape, capacity):
    size, rank = comm.size, comm.rank
    sent = np.concatenate([rows_of(rank, to, shape, dtype) for to in range(size)])
    rows, counts = en.alltoallv(sent, counts_of(rank, size), comm, capacity=capacity)
    wanted = np.concatenate([rows_of(source, rank, shape, dtype) for source in range(size)])
    assert counts.dtype == np.int64
    assert counts.tolist() == [counts_of(source, size)[rank] for source in range(size)]
    assert rows.dtype == dtype
    assert rows.shape == (len(wanted) if capacity is None else capacity, *shape)
    assert rows[: len(wanted)].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("capacity", [None, 60])
@pytest.mark.parametrize("dtype", [np.dtype("f8"), PARTICLE], ids=str)
def test_rows_arrive_from_neighbors(comm, dtype, capacity):
    """Those on a ring, of which the left one twice, and the rank itself."""
    rank, size = comm.rank, comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    graph = epx.Graph(comm, [left, rank, left, right], [right, left, rank, right])
    sent = [rows_of(rank, to, (2,), dtype) for to in range(3, 7)]
    # Which of the lists above an edge of a source is: the k-th of two ranks belong together.
    edges = sorted_edges(comm, [(r - 1) % size for r in range(size)])
    for _ in range(3):
        rows, counts = en.neighbor_alltoallv(
            np.concatenate(sent), [len(each) for each in sent], graph, capacity=capacity
        )
        wanted = [rows_of(source, 3 + place, (2,), dtype) for source, place in edges]
        assert counts.tolist() == [len(each) for each in wanted]
        assert rows[: sum(counts)].tobytes() == np.concatenate(wanted).tobytes()
    graph.free()
    expect_error(epx.Code.ARG, "freed", en.neighbor_alltoallv, sent[0], [0] * 4, graph)


def sorted_edges(comm, lefts):
    """Of each source of this rank: its rank, and the place in its destinations."""
    rank, size = comm.rank, comm.size
    right = (rank + 1) % size
    found, seen = [], {}
    for source in (lefts[rank], rank, lefts[rank], right):
        destinations = [(source + 1) % size, lefts[source], source, (source + 1) % size]
        places = [place for place, to in enumerate(destinations) if to == rank]
        found.append((source, places[seen.get(source, 0)]))
        seen[source] = seen.get(source, 0) + 1
    return found


def test_a_rank_may_have_no_neighbors(comm):
    with epx.Comm() as other:
        graph = epx.Graph(other, [], [])
        rows, counts = en.neighbor_alltoallv(np.ones((0, 3)), [], graph)
        assert rows.shape == (0, 3) and counts.tolist() == []
    assert graph.is_freed


def test_an_edge_of_one_side_is_refused(comm):
    sources = [0] if comm.rank == comm.size - 1 else []
    expect_error(epx.Code.ARG, "0", epx.Graph, comm, sources, [])
    with pytest.raises(TypeError, match=r"want an epx\.Graph"):
        en.neighbor_alltoallv(np.ones(1), [1], comm)


def test_rows_may_lie_anywhere(comm):
    """Each rank gets the same rows, from the middle; and the last one's overlap none."""
    rows, counts = en.alltoallv(
        np.arange(10.0), [3] * comm.size, comm, displs=[2] * comm.size, capacity=3 * comm.size
    )
    assert rows.tolist() == [2, 3, 4] * comm.size and counts.tolist() == [3] * comm.size


@pytest.mark.parametrize("wrap", [np.asarray, Interface, Packed, strided])
def test_other_arrays_are_taken(comm, make_route, wrap):
    route = make_route(experts=3, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 3)[comm.rank]
    wanted = en.dispatch(mine.x, mine.ids, mine.weights, route)
    rows, weights, routing = en.dispatch(wrap(mine.x), mine.ids, mine.weights, route)
    num = routing.offsets[-1]
    assert np.array_equal(rows[:num], wanted[0][:num])
    assert np.array_equal(weights[:num], wanted[1][:num])
    counts = np.arange(comm.size) % 2
    sent = wrap(np.ones((comm.size, H)))
    assert len(en.alltoallv(sent, counts, comm)[0]) == comm.size * (comm.rank % 2)


def test_an_interface_of_a_gpu_is_refused_on_the_host(comm):
    class OnGpu:
        def __init__(self, strides):
            self.__cuda_array_interface__ = dict(
                shape=(4,), typestr="<f4", data=(4096, False), version=3, strides=strides
            )

    counts = [0] * comm.size
    for strides, text in (None, "a GPU's memory"), ((4,), "a GPU's memory"), ((8,), "has gaps"):
        expect_error(epx.Code.BUFFER, text, en.alltoallv, OnGpu(strides), counts, comm)


@pytest.mark.parametrize("dtype", ["u1", "i4", "f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("alignment", [1, 4])
@pytest.mark.parametrize("experts", [1, 2, 7])
def test_every_row_arrives_in_its_slot(comm, make_route, experts, alignment, dtype):
    route = make_route(experts=experts, top_k=K, max_tokens=MAX_TOKENS, alignment=alignment)
    every = every_rank(comm, experts)
    mine = every[comm.rank]
    rows, weights, routing = en.dispatch(mine.x.astype(dtype), mine.ids, mine.weights, route)
    slots, counts, offsets = expert_rows(every, local_of(route), alignment)
    assert rows.dtype == dtype and rows.shape == (route.capacity, H)
    assert routing.counts.tolist() == counts and routing.offsets.tolist() == offsets
    for slot, pair in enumerate(slots):
        row, weight = np.zeros(H), 0.0
        if pair:
            rank, token, choice = pair
            row, weight = every[rank].x[token], every[rank].weights[token, choice]
        assert np.array_equal(rows[slot], row.astype(dtype)) and weights[slot] == weight


@pytest.mark.parametrize("experts", [1, 7])
def test_every_row_arrives_in_rank_major(comm, make_route, experts):
    route = make_route(experts=experts, top_k=K, max_tokens=MAX_TOKENS, layout="rank")
    every = every_rank(comm, experts)
    mine = every[comm.rank]
    rows, weights, routing = en.dispatch(mine.x, mine.ids.astype("i4"), mine.weights, route)
    wanted, counts, offsets = rank_rows(every, local_of(route))
    assert routing.counts.tolist() == counts and routing.offsets.tolist() == offsets
    for slot, (rank, token, chosen) in enumerate(wanted):
        assert np.array_equal(rows[slot], every[rank].x[token])
        assert routing.row_experts[slot].tolist() == chosen
        for choice, expert in enumerate(chosen):
            weight = every[rank].weights[token, choice] if expert >= 0 else 0
            assert weights[slot, choice] == weight
    assert (routing.row_experts[len(wanted) :] == -1).all()


def test_every_row_arrives_in_its_slab(comm, make_route):
    room = comm.size * MAX_TOKENS * K
    attributes = dict(experts=5, top_k=K, max_tokens=MAX_TOKENS, layout="slab")
    route = make_route(rows_per_expert=room, **attributes)
    every = every_rank(comm, 5)
    mine = every[comm.rank]
    rows, _, routing = en.dispatch(mine.x, mine.ids, None, route)
    slabs, counts = slab_rows(every, local_of(route), room)
    assert routing.counts.tolist() == counts
    for e, slab in enumerate(slabs):
        for slot, (rank, token, _) in enumerate(slab, e * room):
            assert np.array_equal(rows[slot], every[rank].x[token])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("weighted", [False, True])
def test_combine_adds_up_what_dispatch_sent(comm, make_route, weighted, dtype):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    x = mine.x.astype(dtype).reshape(-1, 2, H // 2)
    rows, weights, routing = en.dispatch(x, mine.ids, mine.weights if weighted else None, route)
    y = np.zeros_like(rows)
    y[: routing.offsets[-1]] = rows[: routing.offsets[-1]]
    out = en.combine(y, routing, weights)
    factor = np.where(mine.ids >= 0, mine.weights if weighted else 1, 0).sum(1)
    assert out.dtype == dtype and out.shape == x.shape
    assert np.array_equal(out, (x * factor[:, None, None]).astype(dtype))
    many = np.concatenate([y, np.full_like(y[:1], np.nan)])
    for enough in y[: routing.offsets[-1]], many:
        assert np.array_equal(en.combine(enough, routing, weights), out)


def test_routings_are_values(comm, make_route):
    """Two routings on one route, combined in the other order; and one without any rows."""
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    mine = every_rank(comm, 4)[comm.rank]
    first = en.route(mine.ids, route)
    other = np.where(mine.ids >= 0, 3 - mine.ids, -1)
    _, _, second = en.dispatch(mine.x, other, None, route)
    pairs = (mine.ids >= 0).sum(1)
    for routing in (first, second, first):
        y = np.zeros((routing.capacity, 1), np.float32)
        y[: routing.offsets[-1]] = 2
        assert np.array_equal(en.combine(y, routing)[:, 0], 2 * pairs)
    assert first.counts.sum() == first.offsets[-1]


def test_rows_lie_in_reserved_memory(make_comm):
    comm = make_comm(1 << 20)
    with_room = en.alltoallv(np.ones((comm.size, 64)), [1] * comm.size, comm)[0]
    assert comm.is_reserved(with_room.ctypes.data, with_room.nbytes)
    view = with_room[1:].view("i8")
    assert comm.reserved().parts == 1 and (with_room == 1).all()
    del with_room
    assert comm.reserved().parts == 1
    del view
    assert comm.reserved().parts == 0
    large = en.alltoallv(np.ones((comm.size, 1 << 18)), [1] * comm.size, comm)[0]
    assert not comm.is_reserved(large.ctypes.data, large.nbytes) and (large == 1).all()


def test_what_does_not_fit_is_refused(comm, make_route):
    route = make_route(experts=4, top_k=K, max_tokens=MAX_TOKENS)
    ids, x, size = np.zeros((2, K), np.int64), np.ones((2, H)), comm.size
    count, types = epx.Code.COUNT, epx.Code.TYPE
    expect_error(count, "5 rows from row 0 on", en.alltoallv, x, [5] * size, comm, capacity=9)
    expect_error(count, "rows from row", en.alltoallv, x, [-1] * size, comm, capacity=9)
    expect_error(count, "counts is", en.alltoallv, x, [0] * (size + 1), comm)
    expect_error(types, "want integers", en.alltoallv, x, [0.5] * size, comm)
    expect_error(types, "objects", en.alltoallv, np.array([None]), [0] * size, comm)
    expect_error(count, "no dimensions", en.alltoallv, np.float64(1), [0] * size, comm)
    expect_error(count, "want 0 or more", en.alltoallv, x, [0] * size, comm, capacity=-1)
    expect_error(count, "ids has 1 dim", en.dispatch, x, ids[0], None, route)
    expect_error(types, "ids is of type", en.dispatch, x, ids.astype(float), None, route)
    expect_error(
        count, r"x is \[3, 6\], want \[2, 6\]", en.dispatch, np.ones((3, H)), ids, None, route
    )
    expect_error(types, "weights is of type float64", en.dispatch, x, ids, np.ones((2, K)), route)
    routing = en.route(ids, route)
    expect_error(types, "cannot be added", en.combine, np.ones((4, 4), int), routing)
    everywhere = en.route(np.arange(4).repeat(K).reshape(4, K), route)  # rows on all ranks
    expect_error(count, "y has 1 rows", en.combine, np.ones((1, 4)), everywhere)
    for wrong in ([1.0], None):
        with pytest.raises(TypeError, match="want an array"):
            en.alltoallv(wrong, [0] * size, comm)
    with pytest.raises(TypeError, match=r"want an epx\.Comm"):
        en.alltoallv(x, [0] * size, None)
    with pytest.raises(TypeError, match=r"want an epx\.Route"):
        en.dispatch(x, ids, None, None)
    route.free()
    expect_error(epx.Code.ROUTE, "freed", en.dispatch, x, ids, None, route)
    assert len(en.alltoallv(x, [0] * size, comm)[0]) == 0


def test_too_many_rows_are_told(comm):
    with pytest.raises(epx.EPXError) as caught:
        en.alltoallv(np.ones(comm.size), [1] * comm.size, comm, capacity=comm.size - 1)
    assert caught.value.code == epx.Code.TRUNCATE


def test_no_framework_is_imported():
    said = subprocess.run(
        [sys.executable, "-c", "import epx.numpy, sys; print({'torch', 'jax'} & set(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "set()"
