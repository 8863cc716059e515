"""Choice of a project's script; where it is unclear, the candidates are listed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from viaduct.carrying.sides import MAX_LISTED_SCRIPTS, find_entry
from viaduct.errors import BadValue


def outcome(*mains: str) -> Any:
    files = [SimpleNamespace(path=path, mentions_main=True) for path in mains]
    files.append(SimpleNamespace(path="model.py", mentions_main=False))
    return SimpleNamespace(root=Path("project"), files=files)


def test_a_project_without_a_script_is_not_reported_to_have_several() -> None:
    with pytest.raises(BadValue) as caught:
        find_entry(outcome())
    assert caught.value.message == "none of the Python files of project mentions `__main__`."
    assert "--entry PATH" in caught.value.hints[0]


def test_several_scripts_are_listed_and_one_is_taken() -> None:
    assert find_entry(outcome("train.py", "tool.ipynb")) == "train.py"
    with pytest.raises(BadValue) as caught:
        find_entry(outcome("a.py", "b.py"))
    assert caught.value.message == "project has 2 files that mention `__main__`: a.py, b.py."
    many = [f"{number}.py" for number in range(MAX_LISTED_SCRIPTS + 2)]
    with pytest.raises(BadValue, match="and 2 more"):
        find_entry(outcome(*many))
