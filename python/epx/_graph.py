# SPDX-License-Identifier: BSD-3-Clause
"""Graphs: who may send rows to whom."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence

from epx._comm import Comm
from epx._core import Handle, _declare, _int_p, _try, is_child

_graph_create = _declare(
    "graph_create", *(ctypes.c_int, ctypes.c_int, _int_p, ctypes.c_int, _int_p, _int_p)
)
_graph_free = _declare("graph_free", ctypes.c_int)


def _ints(ranks: Sequence[int]) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * max(len(ranks), 1))(*ranks)


class Graph(Handle):
    """Who may send rows to whom: EPX_Graph_create_adjacent(3).

    Made and freed by all ranks together.

    ``sources``, the ranks that this rank receives from, and ``destinations``, those that it sends
    to. A rank may stand in a list several times, and so may this rank itself; a list may be empty.
    Both ranks of an edge name it, or making the graph is Code.ARG on all ranks.

    Attributes: ``comm``; ``sources`` and ``destinations`` as tuples; ``is_freed``.
    """

    def __init__(self, comm: Comm, sources: Sequence[int], destinations: Sequence[int]) -> None:
        if not isinstance(comm, Comm):
            raise TypeError(f"comm is a {type(comm).__name__}, want an epx.Comm")
        self.comm = comm
        self.sources = tuple(operator.index(rank) for rank in sources)
        self.destinations = tuple(operator.index(rank) for rank in destinations)
        index = ctypes.c_int(-1)
        lists = (len(self.sources), _ints(self.sources))
        lists_out = (len(self.destinations), _ints(self.destinations))
        _try(_graph_create(comm._index, *lists, *lists_out, index))
        self.index = index.value
        self.is_freed = False
        comm._graphs.append(self)

    def free(self) -> None:
        """Give the graph back. Collective. A second call, or one in a child, does nothing."""
        if self.is_freed or is_child():
            return
        _try(_graph_free(self.index))
        self.is_freed = True
        self.comm._graphs.remove(self)
