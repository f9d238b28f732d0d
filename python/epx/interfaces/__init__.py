# SPDX-License-Identifier: BSD-3-Clause
"""What interfaces of other libraries over ``epx.torch`` have in common: ``deep_ep``, ``epx.te``."""

from __future__ import annotations

from epx.interfaces.fp8 import LARGEST, exponents_above, largest, scaled
from epx.interfaces.ground import Ground, check_experts, refuse

__all__ = [
    "LARGEST",
    "Ground",
    "check_experts",
    "exponents_above",
    "largest",
    "refuse",
    "scaled",
]
