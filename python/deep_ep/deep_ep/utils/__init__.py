# SPDX-License-Identifier: BSD-3-Clause
"""What callers of DeepEP import from here."""

from .event import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap"]
