"""The helper module of `--to any` as a script uses it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from forked_viaduct import python
from viaduct.cards.torch_api import NPU_AND_MLU_NAMES
from viaduct.migration import helper_text

ALL = [name[1:] for name in helper_text.read_parts() if name.startswith(".")]


SETS = [[], ["Event"], ["GradScaler"], ["device_index", "backend"], ["activity", "memory_allocated"], ALL]


@pytest.mark.slow
def test_its_types_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for number, uses in enumerate(SETS):
        (tmp_path / f"helper_{number}.py").write_text(helper_text.render_helper(uses))
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


EACH_ALONE = """
import json, types
import torch
CALLED = ("name", "backend", "map_location", "autocast", "GradScaler", "Event")
for name, text in json.loads(TEXTS).items():
    module = types.ModuleType("helper")
    exec(text, module.__dict__)
    found = getattr(module.accelerator, name)
    answer = found() if name in CALLED or name in module.ON_THE_CPU else ""
    print(name, type(answer).__name__, str(answer)[:9])
"""


def test_each_part_alone_works_on_the_cpu() -> None:
    texts = json.dumps({name: helper_text.render_helper([name]) for name in ALL if not name.startswith("__")})
    done = python(EACH_ALONE.replace("TEXTS", repr(texts)))
    assert done.returncode == 0, done.stderr
    output = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    assert (output["name"], output["backend"], output["map_location"]) == ("str cpu", "str gloo", "str cpu")
    assert (output["device_count"], output["is_available"]) == ("int 0", "bool False")
    assert [output[name].split()[0] for name in ("Event", "autocast", "GradScaler")] == [
        "HostEvent",
        "autocast",
        "GradScaler",
    ]


def test_no_answer_is_for_a_name_that_scripts_never_ask() -> None:
    """Names that the helper does not define must be torch.cuda's, and all cards must have them."""
    tree = ast.parse(helper_text.read_helper())
    (answers,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)]
    assert {key.value for key in answers.keys if isinstance(key, ast.Constant)} <= NPU_AND_MLU_NAMES
