"""The helper of `--to any` has only the members that a project's scripts use, and works with these."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from pathlib import Path

import pytest

from viaduct.migration import helper_text
from viaduct.migration.options import Options
from viaduct.migration.run import migrate_project

EXAMPLES = Path(__file__).parents[2] / "examples" / "torch"
ALL = [name[1:] for name in helper_text.read_parts() if name.startswith(".")]
SETS = [[], ["Event"], ["GradScaler"], ["device_index", "backend"], ["activity", "memory_allocated"], ALL]


def helper_of(example: str) -> str:
    (made,) = migrate_project(EXAMPLES / example, Options(to="any")).helper_files
    return made.new_text


def loose_names(text: str) -> set[str]:
    """Return the names that are read and nowhere bound."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    bound = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {alias.name.partition(".")[0] for node in nodes for alias in getattr(node, "names", [])}
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return read - bound - set(dir(builtins))


# ---- small


def test_what_nobody_asks_for_is_not_written() -> None:
    text = helper_of("imagenet_ddp.py")
    assert len(text.splitlines()) < 60
    assert len([line for line in text.splitlines() if line.strip()]) < 45
    for fragment in (
        "autocast",
        "GradScaler",
        "Event",
        "activity",
        "nullcontext",
        "perf_counter",
        "memory",
        "unless_cpu",
    ):
        assert fragment not in text, fragment


def test_what_is_requested_is() -> None:
    text = helper_of("imagenet_ddp.py")
    for fragment in ("def backend", "def device(", '"device_count": 0'):
        assert fragment in text, fragment
    text = helper_of("amp_grad_scaler.py")
    for fragment in ("def autocast", "def GradScaler", "def amp", "class HostEvent", "perf_counter", "def activity"):
        assert fragment in text, fragment
    assert "BACKENDS" not in text


def test_everything_is_the_whole_of_it() -> None:
    assert helper_text.render_helper(ALL) == helper_text.read_helper()


def test_its_documents_count_right() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "migrate-any.md").read_text().replace("\n", " ")
    lines = helper_of("imagenet_ddp.py").splitlines()
    assert f"{len(lines)} lines for an ImageNet script with DDP, {sum(map(bool, lines))} of them not empty" in page
    assert f"everything is written, {len(helper_text.read_helper().splitlines())} lines" in page


def test_the_order_of_the_questions_does_not_matter() -> None:
    assert helper_text.render_helper(["Event", "backend"]) == helper_text.render_helper(["backend", "backend", "Event"])


def test_an_object_that_is_handed_on_may_be_requested_everything() -> None:
    tree = ast.parse("\nf(accelerator)\naccelerator.name()\naccelerator.odd\n")
    assert {*ALL, "odd"} == set(helper_text.find_uses(tree, "accelerator"))
    assert helper_text.find_uses(ast.parse("other.backend()\nf(x.accelerator)\n"), "accelerator") == {}
    assert helper_text.find_uses(ast.parse("\na.b(a.b)\na.c\n"), "a") == {"b": 2, "c": 3}


def test_a_finding_may_tell_the_user_to_write_it(tmp_path: Path) -> None:
    script = "import torch\ntorch.cuda.init()\nnet.load_state_dict(torch.load(p, **options))\n"
    (tmp_path / "train.py").write_text(script)
    (made,) = migrate_project(tmp_path, Options(to="any")).helper_files
    assert "def map_location" in made.new_text
    assert "def backend" not in made.new_text


# ---- sound


@pytest.mark.parametrize("name", ALL)
def test_every_part_brings_along_what_it_needs(name: str) -> None:
    text = helper_text.render_helper([name])
    assert not loose_names(text)
    assert helper_text.is_as_written(text)
    assert not helper_text.is_as_written(text + "# mine\n")
    assert name in helper_text.find_definitions(text)


def test_nothing_is_imported_in_vain() -> None:
    for uses in SETS:
        text = helper_text.render_helper(uses)
        for name in ("nullcontext", "perf_counter", "importlib", "Any"):
            assert text.count(name) != 1, (uses, name)


def test_it_is_laid_out_as_ruff_lays_it_out(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    for number, uses in enumerate(SETS):
        (tmp_path / f"helper_{number}.py").write_text(helper_text.render_helper(uses))
    chosen = ["--isolated", "--line-length", "120", str(tmp_path)]
    for words in (["format", "--check"], ["check", "--select", "E,F,I,B,UP,RUF,C4,SIM"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *words, *chosen], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
