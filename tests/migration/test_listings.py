"""The listings of the two guides that this migration follows: what we make of each "before" is its "after", or the
difference is pinned here in `ours.py` and explained in docs/migrate-listings.md.

Compared is what Python sees: layout, comments, the place of imports and imports that nothing uses do not count.
"""

from __future__ import annotations

import ast
import difflib
import re
from pathlib import Path
from typing import Any

import pytest

from migration.checking import migrate_source
from viaduct.migration.engine import migrate_bytes
from viaduct.migration.options import Options
from viaduct.migration.project import survey
from viaduct.migration.results import FileResult

HERE = Path(__file__).parent / "listings"
PAGE = Path(__file__).parents[2] / "docs" / "migrate-listings.md"
LISTINGS: dict[str, dict[str, Any]] = {
    "batch": {},
    "distributed_optimizer": {"distributed": True},
    "dropout": {},
    "dtype_assert": {},
    "dump_estimator": {"dump": "/home/HwHiAiUser/output", "dump_step": "0|5|10"},
    "dump_session": {"dump": "/home/HwHiAiUser/output", "dump_step": "0|5|10"},
    "estimator": {},
    "gelu": {},
    "global_step": {"preset": "resnet-seed"},
    "initialise": {"distributed": True, "precision": "allow_mix_precision"},
    "input_fn": {},
    "input_fn_train": {},
    "max_pool": {"preset": "resnet-seed"},
    "metrics": {"distributed": True, "metrics_allreduce": True, "preset": "resnet-seed"},
    "profiling_estimator": {"profile": "/tmp/profiling", "imports": "star"},
    "profiling_session": {"profile": "/tmp/profiling"},
    "release": {"distributed": True},
    "resnet_estimator": {},
    "resnet_optimizer": {"distributed": True},
    "resnet_run_config": {"precision": "allow_mix_precision", "preset": "resnet-seed"},
    "run_config": {},
    "session": {},
    "session_002": {},
    "session_close": {},
    "session_training": {},
    "shard": {"distributed": True},
    "star_import": {"imports": "star"},
    "torch_header": {},
    "torch_model": {"data_parallel": "unwrap"},
    "torch_options": {},
    "torch_set_device": {},
    "torch_targets": {"int32_targets": True},
}


def meaning(text: str) -> tuple[list[str], list[str]]:
    """Return the imports that are used, and the remaining syntax tree."""
    tree = ast.parse(text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports: set[str] = set()
    lines: list[str] = []
    for statement in tree.body:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            lines.append(ast.dump(statement))
            continue
        module = statement.module if isinstance(statement, ast.ImportFrom) else ""
        names = [(alias.name, alias.asname or alias.name) for alias in statement.names]
        imports |= {f"{module}:{name}:{local}" for name, local in names if local == "*" or local in used}
    return sorted(imports), lines


def text(name: str, which: str) -> str:
    return (HERE / name / f"{which}.py").read_text()


def rows() -> dict[str, str]:
    """Return "same" or "differs" for each listing on the page."""
    found = re.findall(r"^\| `(\w+)` \|[^|]*\|(?:[^|\\]|\\.)*\| (same|differs) \|", PAGE.read_text(), re.MULTILINE)
    return dict(found)


def test_every_listing_is_tried_and_stands_on_the_page() -> None:
    folders = {folder.name for folder in HERE.iterdir() if folder.is_dir() and (folder / "before.py").exists()}
    assert folders == set(LISTINGS) == set(rows())


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_becomes_what_the_guide_shows_or_differs_as_explained(name: str) -> None:
    after = migrate_source(text(name, "before"), **LISTINGS[name]).after.decode()
    if rows()[name] == "same":
        assert meaning(after) == meaning(text(name, "after")), after
        assert not (HERE / name / "ours.py").exists()
    else:
        assert after == text(name, "ours"), after
        assert meaning(after) != meaning(text(name, "after")), "they have come to agree: say so on the page"


def test_the_comparison_sees_what_matters() -> None:
    code = "import a\nimport b\nx = a.f(1,  # why\n  2)\n"
    assert meaning(code) == meaning("import a\nx = a.f(1, 2)\n")
    assert meaning(code) != meaning("import a\nx = a.f(1, 3)\n")
    assert meaning(code) != meaning("import b as a\nx = a.f(1, 2)\n")


# ---- the ResNet of the guide, as a project

RESNET = Path(__file__).parent / "resnet_project"
CHANGES = {
    "tf1.dataset_drop_remainder",
    "tf1.dataset_shard",
    "tf1.distribute_optimizer",
    "tf1.estimator_class",
    "tf1.estimator_run_config",  # and train_distribute gone
    "tf1.lifecycle_cycles",
    "tf1.lifecycle_init",
    "tf1.precision_graph_rewrite",
}


def resnet(files: dict[str, bytes]) -> dict[str, FileResult]:
    project = survey(files.items())
    return {path: migrate_bytes(path, data, Options(distributed=True), project) for path, data in files.items()}


def resnet_files() -> dict[str, bytes]:
    return {path.relative_to(RESNET).as_posix(): path.read_bytes() for path in sorted(RESNET.rglob("*.py"))}


def difference(results: dict[str, FileResult]) -> str:
    lines: list[str] = []
    for path, result in results.items():
        before, after = result.before.decode().splitlines(), result.after.decode().splitlines()
        lines += difflib.unified_diff(before, after, path, path, lineterm="", n=0)
    return "\n".join(lines) + "\n"


def test_resnet_gets_its_seven_changes_and_the_rewrite_of_the_graph_goes() -> None:
    results = resnet(resnet_files())
    changed = {f.rule for result in results.values() for f in result.findings if f.status == "changed"}
    assert changed == CHANGES
    assert [path for path, result in results.items() if result.changed] == [
        "models/resnet/imagenet_main.py",
        "models/resnet/run_loop.py",
    ]


def test_resnet_is_edited_nowhere_else() -> None:
    assert difference(resnet(resnet_files())) == (RESNET / "expected.diff").read_text()


def test_resnet_is_left_alone_by_a_second_run() -> None:
    once = {path: result.after for path, result in resnet(resnet_files()).items()}
    assert {path: result.after for path, result in resnet(once).items()} == once
