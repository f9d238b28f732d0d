# SPDX-License-Identifier: BSD-3-Clause
"""Versions, in a file that imports nothing."""

EPX_VERSION = "0.3.0"
DEEP_EP_VERSION = "2.1.0"  # of DeepEP, whose interface this is
