# SPDX-License-Identifier: BSD-3-Clause
"""The communicator of a group, which its buffers share, and the routes that a buffer makes."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import torch

import epx


def refuse(library: str, name: str, instead: str) -> NoReturn:
    """Raises that EPX does not have what an interface of the library has, and what to use."""
    raise epx.EPXError(epx.Code.UNSUPPORTED, f"{library}: EPX has no {name}: {instead}")


class _Shared:
    """A communicator and how many buffers use it."""

    def __init__(self, comm: epx.Comm) -> None:
        self.comm, self.users = comm, 0


_shared: dict[Any, _Shared] = {}


def _memory() -> str:
    """Where tensors are: on this rank's GPU, unless EPX_MEMORY says or there is none."""
    return os.environ.get("EPX_MEMORY") or (
        "cuda:device" if torch.cuda.is_available() else "system"
    )


class Ground:
    """What a buffer stands on: the communicator of its group, and routes by their shape.

    Buffers of one group with the same hints share a communicator, as frameworks make buffers anew
    when they want larger ones. A buffer that is not destroyed leaves it open until Python exits:
    what Python collects, and when, differs by rank.
    """

    def __init__(self, group: Any, hints: dict[str, Any]) -> None:
        known = group.py2f() if hasattr(group, "py2f") else group  # of MPI they have no hash
        self._key = (known, tuple(sorted(hints.items())))
        if self._key not in _shared:
            memory = _memory()
            device = torch.cuda.current_device() if memory != "system" else None
            comm = epx.Comm(group=group, device=device, memory=memory, **hints)
            _shared[self._key] = _Shared(comm)
        _shared[self._key].users += 1
        self.comm = _shared[self._key].comm
        self._routes: dict[Any, epx.Route] = {}

    def reserve(self, bytes: int) -> None:
        """Reserve memory that results arrive in without a copy, if all ranks have as much."""
        if bytes <= 0:
            return
        try:
            self.comm.reserve(bytes)
        except epx.EPXError as error:
            if error.code != epx.Code.NO_MEM:
                raise

    def known(self, key: tuple[Any, ...]) -> epx.Route | None:
        """The route of this key, if it was made."""
        return self._routes.get(key)

    def make(self, key: tuple[Any, ...], **attributes: Any) -> epx.Route:
        """A route of a new key, made by all ranks together when they first want it."""
        if "experts" in attributes:
            check_experts(attributes["experts"], self.comm.size)
        route = self._routes[key] = epx.Route(self.comm, **attributes)
        return route

    def close(self) -> None:
        """Free the routes, and with the last buffer of the group the communicator. Collective.

        Where tensors lie in reserved memory still, on any rank, it stays open until Python exits.
        """
        shared = _shared[self._key]
        shared.users -= 1
        if shared.users:
            for route in self._routes.values():
                route.free()
        else:
            self._close(shared)
        self._routes.clear()

    def _close(self, shared: _Shared) -> None:
        try:
            shared.comm.close()
        except epx.EPXError as error:
            if error.code != epx.Code.PENDING:
                del _shared[self._key]
                raise
        else:
            del _shared[self._key]


def check_experts(num_experts: int, num_ranks: int) -> int:
    """The experts of each rank, as many on each."""
    if num_experts % num_ranks:
        raise epx.EPXError(
            epx.Code.UNSUPPORTED,
            f"num_experts = {num_experts} on {num_ranks} ranks, here as many on each: epx.Route "
            "takes any number",
        )
    return num_experts // num_ranks
