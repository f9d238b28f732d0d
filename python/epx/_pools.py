# SPDX-License-Identifier: BSD-3-Clause
"""Pools of torch over memory on a GPU that a communicator reserved."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from epx._core import _lib
from epx._eager import empty


class Pools:
    """Pools of torch over the reserved memory of a communicator, on one GPU.

    The glue gives segments; torch cuts them and knows which stream may use a piece again. What is
    captured has another pool than the rest: a replay writes to the memory of its graph, in which no
    other tensor may lie.
    """

    def __init__(self, device: int, function: int) -> None:
        self._device = device
        self._allocator: Any = torch.cuda.memory.CUDAPluggableAllocator(
            _lib._name, f"epx_python_pool_{function}", "epx_python_pool_free"
        )
        self._made: dict[str, Any] = {}
        self._creation, self._allocation = threading.Lock(), threading.Lock()

    def get(self, use: str) -> Any:
        """The pool for one use, made when it is first wanted."""
        with self._creation:
            if use not in self._made:
                with torch.cuda.device(self._device):
                    self._made[use] = torch.cuda.MemPool(self._allocator.allocator())
            return self._made[use]

    def empty(self, like: Tensor, shape: tuple[int, int]) -> Tensor:
        """An empty tensor in the pool of tensors that are not captured."""
        pool = self.get("eager")
        with self._allocation:  # torch lets one thread at a time allocate in a pool
            if pool.use_count() > 1:  # the caller does, so this one lies there too
                return empty(like, shape, like.dtype)
            with torch.cuda.use_mem_pool(pool, like.device):
                return empty(like, shape, like.dtype)

    def drop(self) -> None:
        """Drop the pools, once the GPU is through with their tensors."""
        torch.cuda.synchronize(self._device)
        with self._creation:
            self._made.clear()

    def trim(self) -> None:
        """Have torch give back what dropped pools keep and no tensor has."""
        torch.cuda.empty_cache()
