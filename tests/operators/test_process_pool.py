"""What processes of the pool have of this one."""

import sys

from rejuice.operators.process_pool import python_path


def test_modules_beside_a_notebook_are_found_after_all_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/a", "finder"])
    assert python_path() == ["/a", "finder", str(tmp_path)]
    monkeypatch.setattr(sys, "path", ["/a"])
    assert python_path() == ["/a"]
