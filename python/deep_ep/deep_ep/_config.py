# SPDX-License-Identifier: BSD-3-Clause
"""Sizes and settings that callers hand over."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import epx


def refuse(name: str, instead: str) -> NoReturn:
    """Raises that EPX does not have this, and what to use."""
    raise epx.EPXError(epx.Code.UNSUPPORTED, f"deep_ep: EPX has no {name}: {instead}")


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
