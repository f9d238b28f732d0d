# SPDX-License-Identifier: BSD-3-Clause
"""What interfaces of other libraries over ``epx.torch`` have in common: ``deep_ep``, ``epx.te``."""

from __future__ import annotations

from epx.interfaces.ground import Ground, check_experts, refuse
from epx.interfaces.powers import exponents_above

__all__ = ["Ground", "check_experts", "exponents_above", "refuse"]
