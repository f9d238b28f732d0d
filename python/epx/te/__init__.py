# SPDX-License-Identifier: BSD-3-Clause
"""Expert parallelism with the calls of Transformer Engine, by EPX, on GPUs and on hosts.

    from epx.te import EpBuffer, ep_bootstrap, ep_combine, ep_dispatch

instead of ``transformer_engine.pytorch.ep``: docs/te.md says call by call what differs. What EPX
cannot do raises an ``epx.EPXError`` that says what to use instead.
"""

from __future__ import annotations

from epx.te._buffer import EpBuffer, ep_prepare
from epx.te._calls import _ep_combine_raw, _ep_dispatch_raw, ep_combine, ep_dispatch
from epx.te._group import (
    communicator,
    ep_bootstrap,
    ep_finalize,
    is_ep_bootstrapped,
    is_symm_backed,
    release_symm_mem_pool,
    symm_mem_alloc,
)
from epx.te._mxfp8 import GroupedTensor, MXFP8BlockScaling

__all__ = [
    "EpBuffer",
    "GroupedTensor",
    "MXFP8BlockScaling",
    "_ep_combine_raw",
    "_ep_dispatch_raw",
    "communicator",
    "ep_bootstrap",
    "ep_combine",
    "ep_dispatch",
    "ep_finalize",
    "ep_prepare",
    "is_ep_bootstrapped",
    "is_symm_backed",
    "release_symm_mem_pool",
    "symm_mem_alloc",
]
