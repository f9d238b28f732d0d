# SPDX-License-Identifier: BSD-3-Clause
"""What epx.perf measures of a framework beside the same operations called from C."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import NamedTuple

from epx import _core
from epx._comm import Comm
from epx._route import Route

TOKENS, HIDDEN, TOP_K, EXPERTS = 4, 8, 2, 4
DISPATCH, COMBINE, DISPATCH_BACKWARD, COMBINE_BACKWARD = range(4)
_BFLOAT16, _FLOAT32, _INT64 = 5, 6, 64
_NONE = (0, 0, 0, 0)


class Shape(NamedTuple):
    """Of a layer."""

    tokens: int = TOKENS
    hidden: int = HIDDEN
    top_k: int = TOP_K
    experts: int = EXPERTS
    dtype: str = "float32"

    def ids(self, rank: int) -> list[list[int]]:
        """The experts of this rank's tokens."""
        return [
            [(rank + t * self.top_k + k) % self.experts for k in range(self.top_k)]
            for t in range(self.tokens)
        ]

    def make_route(self, comm: Comm) -> Route:
        """A route with room for what these ids give if they are even, else for the worst case."""
        even = self.experts % comm.size == self.tokens * self.top_k % self.experts == 0
        capacity = self.tokens * self.top_k + self.experts if even else None
        return Route(comm, self.experts, self.top_k, self.tokens, capacity=capacity)


SMALL = Shape()

_repeat = _core._declare(
    "repeat", ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64)
)


class Case(NamedTuple):
    """Operations, and how Python calls them ``times`` times more often than ``less`` does."""

    name: str
    verbs: tuple[int, ...]
    call: Callable[[], object]
    at_most: float
    less: Callable[[], object] | None = None
    times: int = 1


class Figure(NamedTuple):
    """A row of the table. Microseconds, but ``over`` and ``at_most`` where ``unit`` is "%".

    ``at_most`` is None where EPX has no part in it.
    """

    framework: str
    name: str
    ops: int
    c: float
    here: float
    over: float
    at_most: float | None
    unit: str


class Backend(NamedTuple):
    """What of a framework the C side wants: memory with given bytes, so many bytes of 0, and an end
    of all work."""

    place: Callable[[bytes], int]
    zeros: Callable[[int], int]
    finish: Callable[[], None]


class Options(NamedTuple):
    repeats: int
    loops: int


def host_backend() -> Backend:
    """Memory of the host, whatever framework is there."""
    kept: list[object] = []

    def place(data: bytes) -> int:
        buffer = ctypes.create_string_buffer(data, max(len(data), 1))
        kept.append(buffer)
        return ctypes.addressof(buffer)

    return Backend(place, lambda size: place(bytes(size)), lambda: None)


class Layer:
    """The operations of a layer in memory of their own, as glue.h has them.

    Without ``copies_counts`` dispatch does not copy what its routing shows: the C library alone.
    """

    def __init__(
        self,
        comm: Comm,
        backend: Backend,
        stream: int = 0,
        shape: Shape = SMALL,
        copies_counts: bool = True,
    ) -> None:
        self.shape, self.route = shape, shape.make_route(comm)
        self._host, self._zeros, self._stream = host_backend(), backend.zeros, stream
        ids = [id for token in shape.ids(comm.rank) for id in token]
        self._key = self._host.place(bytes(8))
        counts = self._zeros(8 * self.route.local_experts + 4)
        self._view = counts, counts + 4 * self.route.local_experts, 0
        if not copies_counts:
            self._view = 0, 0, 0
        self._ids = (backend.place(_int64s(ids)), shape.tokens, shape.top_k, _INT64)
        x, rows, weights, slots = self._buffers()
        grad_x, grad_rows, grad_weights, grad_slots = self._buffers()
        self.operations = {
            verb: self._operation(verb, *matrices)
            for verb, matrices in (
                (DISPATCH, (x, weights, _NONE, rows, slots)),
                (COMBINE, (rows, slots, _NONE, x, _NONE)),
                (COMBINE_BACKWARD, (grad_x, slots, rows, grad_rows, grad_slots)),
                (DISPATCH_BACKWARD, (grad_rows, grad_slots, _NONE, grad_x, grad_weights)),
            )
        }

    def _buffers(self) -> list[tuple[int, int, int, int]]:
        """For tokens, for rows, for weights of tokens and for weights of rows."""
        shape, capacity = self.shape, self.route.capacity
        size, code = (4, _FLOAT32) if shape.dtype == "float32" else (2, _BFLOAT16)
        rows = (shape.tokens, shape.hidden, size, code), (capacity, shape.hidden, size, code)
        weights = (shape.tokens, shape.top_k, 4, _FLOAT32), (capacity, 1, 4, _FLOAT32)
        return [(self._zeros(n * m * size), n, m, code) for n, m, size, code in (*rows, *weights)]

    def _operation(self, verb: int, *matrices: tuple[int, int, int, int]) -> bytes:
        view = (*self._view, 0) if verb == DISPATCH else (0, 0, 0, 0)
        head = (verb, self.route.index, self.route.capacity, self._stream, self._key, *view)
        no_fields = (_NONE,) * 6
        given = self._ids, *matrices, *no_fields
        return _core._pack(*head, *(m for matrix in given for m in matrix))

    def repeat(self, verbs: tuple[int, ...], times: int) -> float:
        """Seconds of so many repeats of the operations, called from C."""
        spent = ctypes.c_int64()
        operations = b"".join(self.operations[verb] for verb in verbs)
        _core._try(_repeat(operations, len(verbs), times, spent))
        return spent.value * 1e-9


def _int64s(values: list[int]) -> bytes:
    return bytes((ctypes.c_int64 * len(values))(*values))


def seconds_of(call: Callable[[], object], repeats: int, finish: Callable[[], None]) -> float:
    """Seconds of a call until it returns; what it enqueued is not waited for within the time."""
    finish()
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    spent = time.perf_counter() - begin
    finish()
    return spent / repeats


def measure(case: Case, layer: Layer, backend: Backend, options: Options) -> tuple[float, float]:
    """The least microseconds of the operations in C and here; the loops of both take turns."""
    c, here, less = [], [], [0.0]
    layer.repeat((DISPATCH,), 1)
    for _ in range(options.loops):
        backend.finish()
        c.append(layer.repeat(case.verbs, options.repeats) / options.repeats)
        here.append(seconds_of(case.call, options.repeats, backend.finish))
        if case.less:
            less.append(seconds_of(case.less, options.repeats, backend.finish))
    least = min(here) - min(less[1:] or less)
    return min(c) * 1e6, least / case.times * 1e6


def figures_of(
    framework: str, cases: list[Case], layer: Layer, backend: Backend, options: Options
) -> list[Figure]:
    """The rows of a framework."""
    made = []
    for case in cases:
        c, here = measure(case, layer, backend, options)
        ops = len(case.verbs)
        over = (here - c) / ops
        made.append(Figure(framework, case.name, ops, c, here, over, case.at_most, "us"))
    return made
