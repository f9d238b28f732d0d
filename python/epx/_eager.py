# SPDX-License-Identifier: BSD-3-Clause
"""What spares a call of epx.torch the time of PyTorch's dispatcher where nobody needs it."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

_PLAIN = (Tensor, torch.nn.Parameter)
_c: Any = torch._C
_is_batch = _c._functorch.is_legacy_batchedtensor  # of autograd.grad(..., is_grads_batched=True)
_empty_on_host = getattr(_c._dynamo.guards, "_empty_strided_cpu", None)
_empty_on_gpu = getattr(_c._dynamo.guards, "_empty_strided_cuda", None)


def is_observed(*tensors: object) -> bool:
    """Whether something of PyTorch wants to see ops of these tensors: they go by its dispatcher.

    A compiler, a mode, a transform of functorch, a trace, a profiler, a batch of gradients, or a
    class derived from Tensor.
    """
    if (
        torch.compiler.is_compiling()
        or _c._len_torch_dispatch_stack() > 0
        or _c._len_torch_function_stack() > 0
        or _c._functorch.peek_interpreter_stack() is not None
        or _c._get_tracing_state() is not None
        or _c._autograd._profiler_enabled()
        or torch.autograd.profiler._is_profiler_enabled
    ):
        return True
    for tensor in tensors:
        if type(tensor) in _PLAIN:
            if _is_batch(tensor):
                return True
        elif isinstance(tensor, Tensor):
            return True
    return False


def empty(like: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An empty tensor, of one or two dimensions, on the device of ``like``.

    Made as compiled programs make theirs, which takes half the time of torch.empty, where that
    gives the same: on the current device, and where empty tensors need not be filled.
    """
    if type(like) in _PLAIN and not torch.are_deterministic_algorithms_enabled():
        make = None
        if like.is_cpu:
            make = _empty_on_host
        elif like.is_cuda and like.get_device() == _c._cuda_getDevice():
            make = _empty_on_gpu
        if make is not None:
            stride = (1,) if len(shape) == 1 else (max(shape[1], 1), 1)
            return cast(Tensor, make(shape, stride, dtype))
    return like.new_empty(shape, dtype=dtype)


def host_word(like: Tensor) -> Tensor:
    """An empty int64 [1] on the host, without memory if ``like`` has none."""
    if type(like) in _PLAIN and _empty_on_host is not None:
        return cast(Tensor, _empty_on_host((1,), (1,), torch.int64))
    return torch.empty((1,), dtype=torch.int64, device="cpu")
