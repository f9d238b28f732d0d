# SPDX-License-Identifier: BSD-3-Clause
"""The package deep_ep of this tree, and a group of torch.distributed over all ranks."""

import os
import sys
from pathlib import Path

import pytest

import epx.launch

sys.path.insert(0, str(Path(__file__).parents[2] / "deep_ep"))
os.environ["PYTHON_EPX_DEEP_EP"] = "1"  # also where DeepEP itself is installed


@pytest.fixture(scope="session")
def group(comm):
    import torch.distributed as dist

    epx.launch.environment()
    dist.init_process_group("gloo")
    yield dist.group.WORLD
    dist.destroy_process_group()
