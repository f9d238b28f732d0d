# SPDX-License-Identifier: BSD-3-Clause
"""Sizes, settings and tuples of tensors that callers hand over, and routings of exact size."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import torch

import epx
import epx.torch as ep
from epx import interfaces


def refuse(name: str, instead: str) -> NoReturn:
    """Raises that EPX does not have this, and what to use."""
    interfaces.refuse("deep_ep", name, instead)


def as_fields(x: Any) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Rows, and what travels beside them: the scales of fp8, if there are any."""
    return (x[0], (x[1],)) if isinstance(x, tuple) else (x, ())


def as_biases(bias: Any) -> tuple[torch.Tensor, ...] | None:
    """None, or one bias or two."""
    if bias is None:
        return None
    return bias if isinstance(bias, tuple) else (bias,)


def route_exactly(
    ids: torch.Tensor, route: epx.Route, rows: torch.Tensor, weights: Any, scales: Any
) -> ep.Routing:
    """A routing of exact size. A rank that has a bad id takes part in the others' dispatch first.

    The others know nothing of it, and would wait for this rank until their time-out.
    """
    try:
        return ep.route(ids, route, exact=True)
    except epx.EPXError as error:
        if error.code == epx.Code.ARG:
            _dispatch_for_others(ids, route, rows, weights, scales)
        raise


def _dispatch_for_others(
    ids: torch.Tensor, route: epx.Route, rows: torch.Tensor, weights: Any, scales: Any
) -> None:
    """Dispatches rows though ids are bad, and takes the error of that: the caller has it already.

    Another error, as of a lost rank, is raised in its place. On a GPU the host waits for the end.
    """
    try:
        ep.dispatch(rows, ids, weights, route, scales=scales)
        if ids.is_cuda:  # a GPU tells it at the end, to the next check
            torch.cuda.current_stream(ids.device).synchronize()
            route.comm.note_host_sync()
            route.comm.check()
    except epx.EPXError as error:
        if error.code != epx.Code.ARG:
            raise


_AFTER = "a combine that starts when the product has ended"
_OF_FORKS = {
    "use_nvfp4": "rows in fp8 or bfloat16",
    "x_global_scale": "rows in fp8 or bfloat16",
    "overlap": _AFTER,
    "src_signals": _AFTER,
    "src_signal_expect_value": _AFTER,
    "packed_recv_count": _AFTER,
    "comp_signal": _AFTER,
    "block_m": _AFTER,
    "threshold": _AFTER,
    "num_sms": "the hint epx_max_sms",
}
"""Arguments of low-latency calls that frameworks pass to forks of DeepEP."""


def refuse_forks(call: str, given: dict[str, Any]) -> None:
    """Raises what to use instead of an argument that a fork of DeepEP has."""
    for name, value in given.items():
        if name not in _OF_FORKS:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
        if value is not None and value is not False:
            refuse(f"{name} of {call}", _OF_FORKS[name])


class Config(NamedTuple):
    """Settings of DeepEP's kernels. EPX chooses by itself: they are kept, and have no effect."""

    num_sms: int = 20
    num_max_nvl_chunked_send_tokens: int = 6
    num_max_nvl_chunked_recv_tokens: int = 256
    num_max_rdma_chunked_send_tokens: int = 6
    num_max_rdma_chunked_recv_tokens: int = 256

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0: EPX sizes its own stages. What a Buffer is given it reserves for zero copy."""
        return 0

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0, as get_nvl_buffer_size_hint."""
        return 0
