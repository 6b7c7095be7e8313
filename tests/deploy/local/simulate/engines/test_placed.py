"""Arrays that several processes map."""

import numpy as np
import pytest

from deploy.local.simulate.engines.placed import place, taken
from support.simulated import SOURCE
from support.studies import tiny_study


def mapped(array):
    """Whether an array lies in a file's pages."""
    base = array
    while getattr(base, "base", None) is not None:
        base = base.base
    return type(getattr(base, "obj", base)).__name__ == "mmap"


def test_a_value_comes_back_with_arrays_that_are_mapped_aligned_and_read_only(tmp_path):
    value = {"a": np.arange(5, dtype=np.float32), "b": [np.ones((3, 2)), "text"], "c": np.zeros(0), "d": np.arange(7)}
    place(tmp_path, value)
    back = taken(tmp_path)
    assert back["b"][1] == "text"
    for one, other in ((value["a"], back["a"]), (value["b"][0], back["b"][0]), (value["d"], back["d"])):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype
        assert mapped(other)
        assert other.ctypes.data % 64 == 0
        with pytest.raises(ValueError, match="read-only"):
            other[0] = 1
    assert back["c"].shape == (0,)


def test_a_value_without_arrays_comes_back_too(tmp_path):
    place(tmp_path, ("text", 3))
    assert taken(tmp_path) == ("text", 3)


def test_records_are_mapped(tmp_path):
    cohorts = SOURCE.draw(tiny_study(), 1)
    place(tmp_path, cohorts)
    back = taken(tmp_path)
    for name, silo in cohorts.silos.items():
        assert np.array_equal(back.silos[name].training.inputs, silo.training.inputs)
        assert back.silos[name].training.identities == silo.training.identities
        assert mapped(back.silos[name].training.inputs)
