# SPDX-License-Identifier: BSD-3-Clause
"""``python -m epx.perf`` has every row; how large the figures are depends on the machine."""

import importlib
import json
import sys
import time

import pytest
import torch

from epx import _core, perf

ROWS = {
    ("torch", "dispatch"): 1,
    ("torch", "combine"): 1,
    ("torch", "layer"): 2,
    ("torch", "dispatch for gradients"): 1,
    ("torch", "layer for gradients"): 2,
    ("torch", "layer and its backward"): 4,
    ("torch", "layer, empty functions"): 2,
    ("torch", "and its backward, empty functions"): 4,
    ("jax", "another dispatch and combine"): 2,
}


def has_jax():
    try:
        importlib.import_module("epx.jax")
    except ImportError:
        return False
    return True


def measure(file):
    """The figures that rank 0 wrote; None on other ranks."""
    assert perf.main(["--repeats", "3", "--loops", "2", "--json", str(file)]) == 0
    return json.loads(file.read_text()) if _core.world()[0] == 0 else None


def test_every_row_is_there(capsys, tmp_path):
    told = measure(tmp_path / "figures")
    printed = capsys.readouterr().out.splitlines()
    if told is None:
        assert not printed
        return
    assert (told["ranks"], told["repeats"]) == (_core.world()[1], 3)
    assert told["torch"] == torch.__version__
    figures = {(each["framework"], each["name"]): each for each in told["figures"]}
    wanted = {key: ops for key, ops in ROWS.items() if key[0] == "torch" or has_jax()}
    assert {key: figure["ops"] for key, figure in figures.items()} == wanted
    assert len(printed) == 2 + len(figures)
    for (framework, name), line in zip(figures, printed[2:]):
        assert line.startswith(f"{framework}: {name} ")


def test_figures_are_positive_and_agree(tmp_path):
    told = measure(tmp_path / "figures")
    for figure in told["figures"] if told else []:
        is_empty = "empty functions" in figure["name"]
        assert figure["at_most"] is None if is_empty else figure["at_most"] > 0
        assert figure["c"] == 0 if is_empty else figure["c"] > 0
        assert figure["here"] > 0 or figure["framework"] == "jax"  # a difference of two programs
        each = (figure["here"] - figure["c"]) / figure["ops"]
        assert figure["over"] == pytest.approx(each)


def test_a_slow_call_costs_over_c(monkeypatch, capsys, tmp_path):
    """A millisecond that Python spends in each call stands in ``here``, and not in ``C``."""
    call = _core._run

    def slow(members):
        time.sleep(1e-3)
        return call(members)

    monkeypatch.setattr(_core, "_run", slow)
    monkeypatch.setitem(sys.modules, "epx._perf_jax", None)
    told = measure(tmp_path / "figures")
    if told:
        assert {figure["framework"] for figure in told["figures"]} == {"torch"}
        for figure in told["figures"]:  # empty functions call nothing
            is_empty = "empty functions" in figure["name"]
            assert (figure["here"] > 900 * figure["ops"]) != is_empty
        # On a busy machine C may take long now and then: not each time.
        assert max(figure["over"] for figure in told["figures"]) > 900
        assert "without jax" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--repeats", "0"], ["--loops", "-1"], ["--device", "disk"]])
def test_wrong_options_are_refused(capsys, words):
    with pytest.raises(SystemExit) as caught:
        perf.main(words)
    assert caught.value.code == 2
    assert "usage: python -m epx.perf" in capsys.readouterr().err
