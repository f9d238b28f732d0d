# SPDX-License-Identifier: BSD-3-Clause
"""Exchanges of rows for arrays of NumPy and alike, on host memory and on GPUs.

    rows, counts = epx.numpy.alltoallv(x, send_counts, comm)

    graph = epx.Graph(comm, sources, destinations)
    rows, counts = epx.numpy.neighbor_alltoallv(x, send_counts, graph)

    rows, row_weights, routing = epx.numpy.dispatch(x, ids, weights, route)
    out = epx.numpy.combine(experts(rows, routing.offsets), routing, row_weights)

An array is NumPy's or CuPy's, or one of another library that speaks DLPack, the array interface or
CUDA's array interface. What is made is NumPy's on the host; on a GPU it is of the library of the
first argument, which makes arrays as NumPy does. Neither torch nor jax is imported.

Every call is collective: all ranks make the same calls in the same order, a rank without rows too.
On a GPU a call queues on the current stream, and ``Comm.check()`` raises what went wrong there.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from epx import _core
from epx._arrays import NONE, Array, array_of, empty
from epx._comm import Comm
from epx._core import Code, EPXError, _declare, _packer
from epx._graph import Graph
from epx._route import Route, routes

__all__ = ["Routing", "alltoallv", "combine", "dispatch", "neighbor_alltoallv", "route"]

_DISPATCH, _COMBINE, _ROUTE = 0, 1, 4
_ROWS = (1, 4)  # of the arrays of an operation those that have rows
_pack_exchange = _packer("exchange", 4 + 6 * 4)
_exchange = _declare("exchange_in_slices", ctypes.c_char_p)


class Routing(NamedTuple):
    """Where the rows of one dispatch are. A value: any number of them may live on one route.

    ``ids`` int64 [T, K], not to be written while the routing is used; ``key`` names the routing to
    the library; ``counts`` int32 [L]: rows of each local expert (in rank-major: pairs);
    ``offsets`` int32: first row of each local expert [L+1], in rank-major that of each source rank
    [R+1]; its last element is the number of rows. ``row_experts`` int32, in rank-major [capacity,
    K]: the local experts of each row or -1; else [0, K]. ``capacity``: rows of the dispatch.
    ``key`` is on the host, all else where the tokens are.
    """

    ids: Any
    key: Any
    route: Route
    counts: Any
    offsets: Any
    row_experts: Any
    capacity: int


def _check_place(comm: Comm, **arrays: Array | None) -> int:
    """All arrays are in the memory of the communicator; returns the stream of the first."""
    stream = None
    for name, array in arrays.items():
        if array is None:
            continue
        if array.on_device != comm.on_device:
            place = "a GPU's memory" if array.on_device else "the host's memory"
            raise EPXError(
                Code.BUFFER, f"{name} is in {place}, the communicator's is {comm.memory}"
            )
        stream = array.stream if stream is None else stream
    return stream or 0


def _finish(number: int, comm: Comm, kept: object) -> None:
    """Waits for an operation that takes longer than a slice of time; 0 is none."""
    try:
        if number:
            _core.wait(number, 0)
    except BaseException as error:
        if not isinstance(error, EPXError):  # but of a signal: the operation goes on
            comm._keep_until_ended(kept)
        raise


def _words(name: str, given: Any, like: Array) -> Array:
    """Counts or the like as int64: what is on the host for arrays there may be any integers."""
    if like.on_device:
        return array_of(name, given)
    words = np.asarray(given)
    if words.dtype.kind not in "iu" and words.size:
        raise EPXError(Code.TYPE, f"{name} is of type {words.dtype}, want integers")
    return array_of(name, np.ascontiguousarray(words, dtype=np.int64))


def _first_rows(counts: Array) -> Any:
    """Where the rows of each rank begin, one behind the other."""
    first = empty(counts, counts.shape, np.int64)
    first[:1] = 0
    first[1:] = counts.owner[:-1].cumsum()
    return first


class _Neighbors(NamedTuple):
    """Who exchanges rows: all ranks of a communicator, or those of a graph."""

    comm: Comm
    graph: int  # its number, -1 if there is none
    num_sources: int
    num_destinations: int


def _run_exchange(
    sent: Array, counts: Array, displs: Array, capacity: int, who: _Neighbors
) -> tuple[Any, Any]:
    rows = empty(sent, (capacity, *sent.shape[1:]), sent.dtype, who.comm)
    told = array_of("received counts", empty(counts, (2, who.num_sources), np.int64))
    out_counts, out_displs = (array_of("received counts", part) for part in told.owner)
    stream = _check_place(who.comm, rows=sent, counts=counts, displs=displs)
    members = [who.comm._index, who.graph, capacity, stream]
    members += sent.members(as_bytes=True)
    for array in (counts, displs):
        members += array.members()
    members += array_of("rows", rows).members(as_bytes=True)
    for array in (out_counts, out_displs):
        members += array.members()
    code = _exchange(_pack_exchange(*members))
    number = _core.unfinished() if code == _core._UNFINISHED else 0
    if not number:
        _core._try(code)
    _finish(number, who.comm, (sent, counts, displs, rows, told))
    return rows, out_counts.owner


def _learn_capacity(counts: Array, who: _Neighbors) -> int:
    """How many rows the others have for this rank: all tell each other."""
    ones = empty(counts, counts.shape, np.int64)
    ones[:] = 1
    one_each = array_of("counts", ones)
    displs = array_of("displs", _first_rows(one_each))
    told, _ = _run_exchange(counts, one_each, displs, who.num_sources, who)
    return int(told.sum())


def _exchange_rows(
    rows: Any, counts: Any, displs: Any, capacity: int | None, who: _Neighbors
) -> tuple[Any, Any]:
    sent = array_of("rows", rows)
    if not sent.shape:
        raise EPXError(Code.COUNT, "rows has no dimensions, want 1 or more")
    _check_place(who.comm, rows=sent)
    wanted = _words("counts", counts, sent)
    if wanted.shape != (who.num_destinations,):
        raise EPXError(Code.COUNT, f"counts is {list(wanted.shape)}, want [{who.num_destinations}]")
    if capacity is not None and capacity < 0:
        raise EPXError(Code.COUNT, f"capacity is {capacity}, want 0 or more")
    first = _first_rows(wanted) if displs is None else displs
    room = _learn_capacity(wanted, who) if capacity is None else capacity
    return _run_exchange(sent, wanted, _words("displs", first, sent), room, who)


def alltoallv(
    rows: Any, counts: Any, comm: Comm, *, displs: Any = None, capacity: int | None = None
) -> tuple[Any, Any]:
    """Send rows to the ranks, and receive theirs: EPX_Alltoallv(3). Collective.

    ``rows`` [N, ...], of any type without Python objects, a structured one too; ``counts`` [R]: how
    many rows go to each rank; ``displs`` [R]: from which row on, None where they lie one behind the
    other. On a GPU counts and displs are int64 there.

    Returns the rows that arrived [capacity, ...], by source rank, and int64 [R], how many from
    each. ``capacity`` None is exactly as many as arrive: the ranks tell each other first, which on
    a GPU waits for it. It is None on all ranks or on none. More rows than the capacity are
    Code.TRUNCATE on the rank that lacks room.
    """
    if not isinstance(comm, Comm):
        raise TypeError(f"comm is a {type(comm).__name__}, want an epx.Comm")
    who = _Neighbors(comm, -1, comm.size, comm.size)
    return _exchange_rows(rows, counts, displs, capacity, who)


def neighbor_alltoallv(
    rows: Any, counts: Any, graph: Graph, *, displs: Any = None, capacity: int | None = None
) -> tuple[Any, Any]:
    """Send rows to the neighbours in a graph: EPX_Neighbor_alltoallv(3). Collective.

    As alltoallv, but ``counts`` and ``displs`` have an element for each of graph.destinations, and
    rows arrive in the order of graph.sources, of which the second result has an element each.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"graph is a {type(graph).__name__}, want an epx.Graph")
    if graph.is_freed:
        raise EPXError(Code.ARG, "the graph is freed")
    who = _Neighbors(graph.comm, graph.index, len(graph.sources), len(graph.destinations))
    return _exchange_rows(rows, counts, displs, capacity, who)


def _ids_of(ids: Any) -> Array:
    given = array_of("ids", ids)
    if given.dtype == np.int32:
        given = array_of("ids", given.owner.astype(np.int64))
    if len(given.shape) != 2:
        raise EPXError(Code.COUNT, f"ids has {len(given.shape)} dimensions, want 2")
    return given


def _check_route(route: Route) -> None:
    if not isinstance(route, Route):
        raise TypeError(f"route is a {type(route).__name__}, want an epx.Route")
    if routes.get(route.index) is not route:
        raise EPXError(Code.ROUTE, "the route is freed")


def _operate(verb: int, routing: Routing, arrays: tuple[Array | None, ...], stream: int) -> None:
    """Calls EPX. Arrays are ids, input, weights, none, output and its weights."""
    shown = [0, 0, 0, 0]
    if verb != _COMBINE:
        shown[3] = not routing.route.comm.on_device  # there the routing adds up ranks itself
        shown[:2] = [
            array_of("routing", each).address for each in (routing.counts, routing.offsets)
        ]
        if routing.route.layout == "rank":
            shown[2] = array_of("routing", routing.row_experts).address
    key = array_of("key", routing.key)
    members = [verb, routing.route.index, routing.capacity, stream, key.address, *shown]
    for place, array in enumerate((*arrays, *[None] * (12 - len(arrays)))):
        as_bytes = verb == _DISPATCH and place in _ROWS
        members += NONE if array is None else array.members(as_bytes=as_bytes)
    kept = (routing, arrays)
    try:
        number = _core.run(members)
    except BaseException as error:
        if not isinstance(error, EPXError):
            routing.route.comm._keep_until_ended(kept)
        raise
    _finish(number, routing.route.comm, kept)


def _new_routing(ids: Array, route: Route) -> Routing:
    """What a dispatch fills in. Offsets have an element more than counts are, also of no expert."""
    is_rank_major = route.layout == "rank"
    num_offsets = 1 + (route.comm.size if is_rank_major else route.local_experts)
    info = empty(ids, (route.local_experts + num_offsets,), np.int32)
    num_rows = route.capacity if is_rank_major else 0
    return Routing(
        ids.owner,
        np.zeros(1, np.int64),
        route,
        info[: route.local_experts],
        info[route.local_experts :],
        empty(ids, (num_rows, route.top_k), np.int32),
        route.capacity,
    )


def _add_up_ranks(routing: Routing) -> None:
    """On a GPU in rank-major: makes offsets of rows of each rank; -1 for experts of none."""
    offsets, experts = routing.offsets, routing.row_experts
    if routing.route.layout != "rank" or not routing.route.comm.on_device:
        return
    offsets[:] = offsets.cumsum().clip(max=routing.capacity)
    ones = empty(array_of("offsets", offsets), (routing.capacity,), np.int32)
    ones[:] = 1
    experts[ones.cumsum() > offsets[-1]] = -1


def dispatch(x: Any, ids: Any, weights: Any, route: Route) -> tuple[Any, Any, Routing]:
    """Send every token to the ranks of its experts: EPX_Dispatch(3). Collective.

    ``x`` [T, ...], of any type without Python objects, T at most max_tokens of the route, 0 too;
    ``ids`` [T, K] int64 or int32, experts or -1 for none; ``weights`` [T, K] float32, or None on
    all ranks. Returns rows [capacity, ...], their weights [capacity], in rank-major [capacity, K],
    or None, and the Routing, which combine wants. Rows from ``routing.offsets[-1]`` on are
    undefined, unless the route zeroes them.
    """
    _check_route(route)
    tokens, named = array_of("x", x), _ids_of(ids)
    if not tokens.shape:
        raise EPXError(Code.COUNT, "x has no dimensions, want 1 or more")
    given = None if weights is None else array_of("weights", weights)
    stream = _check_place(route.comm, x=tokens, ids=named, weights=given)
    routing = _new_routing(named, route)
    rows = empty(tokens, (route.capacity, *tokens.shape[1:]), tokens.dtype, route.comm)
    shape = (route.capacity, route.top_k) if route.layout == "rank" else (route.capacity,)
    row_weights = None if given is None else empty(tokens, shape, np.float32)
    made = None if row_weights is None else array_of("row_weights", row_weights)
    _operate(_DISPATCH, routing, (named, tokens, given, None, array_of("rows", rows), made), stream)
    _add_up_ranks(routing)
    return rows, row_weights, routing


def route(ids: Any, by: Route) -> Routing:
    """Route tokens, and send none of their rows: EPX_Route_tokens(3). Collective.

    ``ids`` as dispatch has them. The Routing says how many rows a dispatch of them brings, and
    combine takes it.
    """
    _check_route(by)
    named = _ids_of(ids)
    routing = _new_routing(named, by)
    _operate(_ROUTE, routing, (named,), _check_place(by.comm, ids=named))
    _add_up_ranks(routing)
    return routing


def combine(y: Any, routing: Routing, row_weights: Any = None) -> Any:
    """Bring the rows home, and add up those of each token: EPX_Combine(3). Collective.

    ``y`` [rows, ...], float16, bfloat16, float32 or float64: what the experts made of the rows of
    dispatch; ``row_weights`` [rows] float32, of each row, or None for 1. Either has any number of
    rows from ``routing.offsets[-1]`` on. Returns [T, ...]; a token without an expert has zeros.
    """
    if not isinstance(routing, Routing):
        raise TypeError(f"routing is a {type(routing).__name__}, want what dispatch returned")
    _check_route(routing.route)
    rows, ids = array_of("y", y), array_of("routing.ids", routing.ids)
    if not rows.shape:
        raise EPXError(Code.COUNT, "y has no dimensions, want 1 or more")
    given = None if row_weights is None else array_of("row_weights", row_weights)
    stream = _check_place(routing.route.comm, y=rows, ids=ids, row_weights=given)
    out = empty(rows, (ids.shape[0], *rows.shape[1:]), rows.dtype)
    _operate(_COMBINE, routing, (ids, rows, given, None, array_of("out", out), None), stream)
    return out
