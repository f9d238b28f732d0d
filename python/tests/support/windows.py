# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of reserved memory share."""

import pytest
import torch

from epx import EPXError, _window


def take(comm, bytes):
    """So many bytes of reserved memory, or None."""
    return _window._on_host(torch.empty(0, dtype=torch.uint8), (bytes, 1), comm._arena)


def expect(code, match, call, *arguments):
    with pytest.raises(EPXError, match=match) as caught:
        call(*arguments)
    assert caught.value.code == code
