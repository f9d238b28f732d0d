# SPDX-License-Identifier: BSD-3-Clause
"""Rows in MXFP8: float8_e4m3fn, and for every 32 elements the exponent of their scale, a byte."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from epx.interfaces import LARGEST, exponents_above, largest, scaled
from epx.te._group import refuse

BLOCK = 32  # elements of a scale
_BIAS = 127  # of an exponent; 255 is NaN


class MXFP8BlockScaling:
    """The recipe, where Transformer Engine is not installed: its own of this name does as well."""


def known(recipe: Any) -> Any:
    """None or the one recipe that there is; another is refused."""
    name = type(recipe).__name__
    if recipe is not None and name != "MXFP8BlockScaling":
        refuse(f"recipe {name}", "MXFP8BlockScaling, or scales of epx.torch.dispatch for others")
    return recipe


def num_scales(hidden: int) -> int:
    """The scales of a row."""
    if hidden % BLOCK:
        refuse(f"MXFP8 in rows of {hidden} elements", f"a multiple of {BLOCK}")
    return hidden // BLOCK


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [T, H] in float8_e4m3fn, and their scales, uint8 [T, H / 32]."""
    blocks = x.detach().reshape(x.shape[0], num_scales(x.shape[1]), BLOCK)
    exponents = exponents_above(largest(blocks) / LARGEST)
    factors = ((2 * _BIAS - exponents).clamp(min=1) << 23).view(torch.float32)
    return scaled(blocks, factors).view(x.shape), exponents.to(torch.uint8)


def dequantize(rows: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows times their scales."""
    exponents = scales.to(torch.int32)[:, :, None]
    blocks = rows.float().view(*scales.shape, BLOCK)
    made = torch.ldexp(blocks, exponents - _BIAS).masked_fill(exponents == 255, torch.nan)
    return made.view(rows.shape).to(dtype)


class GroupedTensor(torch.Tensor):
    """Rows [rows, H] in MXFP8, those of one expert behind those of another.

    To autograd it is a tensor of ``dtype``; ops of torch take what dequantize() gives. Kernels take
    its attributes, flat as in Transformer Engine: ``rowwise_data`` uint8 [rows * H], ``scale_inv``
    uint8 [rows * H / 32], ``first_dims`` int64, the rows of each expert, and ``tensor_offsets``
    int64, where their data begins, with the end.
    """

    rowwise_data: Tensor
    scale_inv: Tensor
    first_dims: Tensor
    tensor_offsets: Tensor

    @staticmethod
    def of(rows: Tensor, scales: Tensor, first_dims: Tensor, dtype: torch.dtype) -> GroupedTensor:
        """Of rows [rows, H] in float8_e4m3fn, scales uint8 [rows, H / 32], and rows of experts."""
        make: Any = torch.Tensor
        made: GroupedTensor = make._make_wrapper_subclass(
            GroupedTensor, rows.shape, dtype=dtype, device=rows.device
        )
        made.rowwise_data = rows.view(torch.uint8).view(-1)
        made.scale_inv = scales.view(-1)
        made.first_dims = first_dims
        ends = first_dims.cumsum(0) * rows.shape[1]
        made.tensor_offsets = torch.cat([torch.zeros_like(ends[:1]), ends])
        return made

    def _rows(self) -> tuple[Tensor, Tensor]:
        shape = (self.shape[0], self.shape[1])
        rows = self.rowwise_data.view(torch.float8_e4m3fn).view(shape)
        return rows, self.scale_inv.view(shape[0], shape[1] // BLOCK)

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The rows in ``dtype``, or in that which they had. Those without a token are undefined."""
        with torch.no_grad():
            return dequantize(*self._rows(), dtype or self.dtype)

    def split_into_quantized_tensors(self) -> list[GroupedTensor]:
        """The rows of each expert. The host waits for their numbers."""
        rows, scales = self._rows()
        counts = self.first_dims.tolist()
        ends = list(itertools.accumulate(counts))
        return [
            GroupedTensor.of(
                rows[end - count : end],
                scales[end - count : end],
                self.first_dims[at : at + 1],
                self.dtype,
            )
            for at, (count, end) in enumerate(zip(counts, ends))
        ]

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"GroupedTensor({list(self.shape)}, {self.dtype}, {len(self.first_dims)} groups)"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            whole: GroupedTensor = args[0]
            rows, scales = whole._rows()
            return GroupedTensor.of(rows, scales, whole.first_dims, whole.dtype)
        plain: Any = tree_map_only(cls, cls.dequantize, (args, kwargs or {}))
        return func(*plain[0], **plain[1])
