# SPDX-License-Identifier: BSD-3-Clause
"""Events, by the name that DeepEP has for them."""

from .._events import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap"]
