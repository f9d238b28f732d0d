# SPDX-License-Identifier: BSD-3-Clause
"""The Python interface of DeepEP 2.1, by EPX: docs/deep_ep.md says call by call what differs.

``ElasticBuffer`` and ``Buffer`` work on GPUs and on hosts, with ranks that torch.distributed or MPI
started. What EPX cannot do raises an ``epx.EPXError`` that says what to use instead.
"""

from __future__ import annotations

import os
from importlib import metadata

import torch

from ._version import DEEP_EP_VERSION, EPX_VERSION


def _refuse_two() -> None:
    """Two packages of one name would hide each other: DeepEP itself goes first."""
    if os.environ.get("PYTHON_EPX_DEEP_EP") == "1":
        return
    for name in ("deep_ep", "deep-ep"):
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        raise ImportError(
            "deep_ep: DeepEP itself is installed beside epx-deep-ep, and both are named deep_ep: "
            "uninstall one of them, or set PYTHON_EPX_DEEP_EP=1 to have EPX's"
        )


_refuse_two()

from ._config import Config  # noqa: E402
from ._events import EventHandle, EventOverlap  # noqa: E402
from .elastic import (  # noqa: E402
    ElasticBuffer,
    EPHandle,
    get_logical_domain_size,
    get_physical_domain_size,
)
from .legacy import Buffer  # noqa: E402

topk_idx_t = torch.int64
__version__ = DEEP_EP_VERSION
__epx_version__ = EPX_VERSION
__all__ = [
    "Buffer",
    "Config",
    "EPHandle",
    "ElasticBuffer",
    "EventHandle",
    "EventOverlap",
    "get_logical_domain_size",
    "get_physical_domain_size",
    "topk_idx_t",
]
