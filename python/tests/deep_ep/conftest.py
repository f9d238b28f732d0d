# SPDX-License-Identifier: BSD-3-Clause
"""The package deep_ep of this tree."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "deep_ep"))
os.environ["PYTHON_EPX_DEEP_EP"] = "1"  # also where DeepEP itself is installed
