# SPDX-License-Identifier: BSD-3-Clause
"""Rows in fp8 with a scale for every 128 elements, and the layouts that scales have."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from epx.interfaces import LARGEST, exponents_above, largest, scaled

BLOCK = 128  # elements of a scale
_OF_CUDA = (torch.AcceleratorError,) if hasattr(torch, "AcceleratorError") else ()
_LEAST = 1e-4  # of a block: what is below has the scale of this


def align(value: int, to: int) -> int:
    """The least multiple of ``to`` that is not below the value."""
    return -(-value // to) * to


class _Triton:
    """The kernels of Triton, as long as there is nothing against them."""

    def __init__(self) -> None:
        self._is_looked_for = False
        self._kernels: Any = None

    def give_up(self, error: Exception) -> None:
        """Have torch take their place from now on, and say so."""
        self._kernels = None
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # an error on this rank would keep others waiting
            warnings.warn(f"deep_ep: torch takes the place of Triton: {error}", stacklevel=2)

    def kernels(self, like: Tensor) -> Any:
        """The kernels for tensors like this one, or None."""
        if not like.is_cuda:
            return None
        if not self._is_looked_for:
            self._is_looked_for = True
            try:
                from . import _fp8_kernels

                self._kernels = _fp8_kernels
            except ImportError:
                pass
            except Exception as error:  # of whatever is called triton here
                self.give_up(error)
        return self._kernels


_triton = _Triton()


class Quantizer(NamedTuple):
    """What makes rows in fp8 of rows.

    ``round_scale``: scales are powers of two; ``packed``: their exponents, four in an int32.
    """

    round_scale: bool
    packed: bool

    def prepare(self, x: Tensor, room: int) -> None:
        """Have what Triton does be compiled and loaded, before anything is sent.

        For rows like ``x`` [T, H], and for those that arrive, in slabs of ``room``. Once for each
        kind of rows; not in a capture, where torch takes the place of what is not ready.
        """
        kernels = _triton.kernels(x)
        if kernels is None:
            return
        num_scales = x.shape[1] // (4 * BLOCK if self.packed else BLOCK)
        try:
            kernels.make_ready(x, (room, num_scales), BLOCK, _LEAST, LARGEST, *self)
        except (torch.cuda.OutOfMemoryError, *_OF_CUDA):
            raise  # they say nothing of Triton
        except Exception as error:  # no C compiler, no Python.h, a GPU that it does not know
            _triton.give_up(error)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows in float8_e4m3fn, and their scales: float32 [T, H / 128], or int32 [T, H / 512]."""
        kernels = _triton.kernels(x)
        if kernels is not None and kernels.takes(x, *self):
            rows, scales = kernels.to_fp8(x, BLOCK, _LEAST, LARGEST, *self)
            return rows, scales.view(torch.int32) if self.packed else scales
        blocks = x.detach().view(x.shape[0], x.shape[1] // BLOCK, BLOCK)  # also without tokens
        most = largest(blocks).clamp_(min=_LEAST)
        scales = most * (1 / LARGEST)  # as DeepEP
        if self.round_scale:
            exponents = exponents_above(scales)
            scales = (exponents << 23).view(torch.float32)
            factors = scales.reciprocal()
        else:
            factors = torch.div(torch.tensor(LARGEST, device="cpu"), most)
        rows = scaled(blocks, factors).view(x.shape)
        if self.packed:
            return rows, exponents.to(torch.uint8).view(torch.int32)
        return rows, scales


def column_major(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty matrix whose columns lie one behind the other, each at a multiple of 16 bytes."""
    rows, columns = shape
    per_16 = 16 // dtype.itemsize
    return torch.empty((columns, align(rows, per_16)), dtype=dtype, device=device).T[:rows]


def in_columns(scales: Tensor) -> Tensor:
    """The scales in column-major, as GEMMs load them by TMA."""
    made = column_major((scales.shape[0], scales.shape[1]), scales.dtype, scales.device)
    return made.copy_(scales)


def copy_used(scales: Tensor, columns: Tensor, counts: Tensor) -> None:
    """Copies scales [L, rows, S] to slabs in column-major; it may leave out unused rows.

    ``counts`` int32 [L]: how many rows of each slab are used.
    """
    kernels = _triton.kernels(scales)
    if kernels is not None and kernels.copies(scales, columns, counts):
        kernels.copy_used(scales, columns, counts)
    else:
        columns.copy_(scales)
