"""Complete scripts: the examples run, their migration does what each style needs, and the results run too.

`stand_in/` has the part of the NPU adapter's API that the migrated scripts call, on the CPU and with one rank. The
tests show that the migrated text is a working program, not how it runs on a device.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from migration.checking import migrate_source

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "tf1"
TUTORIAL = ROOT / "docs" / "migrate-tutorial.md"
STAND_IN = Path(__file__).parent / "stand_in"
STYLES = {path.stem: path for path in sorted(EXAMPLES.glob("*.py"))}
# What is printed last, and what it must at least (or at most) say.
PROMISES: dict[str, tuple[list[str], str, float, float]] = {
    "autoencoder_monitored": ([], r"final error ([\d.]+)", 0.0, 0.036),
    "leaves_keras": ([], r"final accuracy ([\d.]+)", 0.9, 1.0),
    "resnet_estimator": ([], r"final accuracy ([\d.]+)", 0.8, 1.0),
    "sentences_session": ([], r"final accuracy ([\d.]+)", 0.9, 1.0),
    "waves_horovod": (["--single"], r"final error ([\d.]+)", 0.0, 0.4),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"distributed": True},
    {"distributed": True, "rank": "env", "style": "wrapper", "imports": "star"},
    {"precision": "allow_mix_precision", "loop": 10, "keep_defaults": True, "profile": "profiles"},
    {"device": "cpu", "preset": "resnet-seed", "pad_predict": True},
    {"to": "mlu"},
)


def source(name: str) -> str:
    return STYLES[name].read_text()


def run(path: Path, arguments: list[str], where: Path, *extra: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, extra)), "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=where, env=environment, timeout=300)


def check_promise(name: str, answer: subprocess.CompletedProcess[str]) -> None:
    _, pattern, low, high = PROMISES[name]
    assert answer.returncode == 0, answer.stderr[-3000:]
    found = re.findall(pattern, answer.stdout)
    assert found, answer.stdout[-2000:]
    assert low <= float(found[-1]) <= high, answer.stdout[-2000:]


# ---- the text


def test_there_is_an_example_of_each_style_and_none_is_a_toy() -> None:
    assert set(STYLES) == set(PROMISES)
    for name in STYLES:
        assert len(source(name).splitlines()) >= 150, name


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("name", STYLES)
def test_an_example_parses_keeps_its_comments_and_is_migrated_once(name: str, options: dict[str, Any]) -> None:
    result = migrate_source(source(name), path=f"{name}.py", **options)  # `migrated` looks at all three
    claimed = any(finding.status == "changed" for finding in result.findings)
    assert result.changed == claimed


NEEDED = {
    "autoencoder_monitored": {
        "dataset_drop_remainder",
        "dropout",
        "session_config",
        "session_config_helper",
        "session_xla",
    },
    "leaves_keras": {"session_config", "keras_clear_session"},
    "resnet_estimator": {
        *("dataset_drop_remainder", "estimator_class", "estimator_run_config", "precision_graph_rewrite"),
    },
    "sentences_session": {
        "dataset_drop_remainder",
        "device_block",
        "dropout",
        "gelu",
        "session_close",
        "session_config",
    },
    "waves_horovod": {"dataset_drop_remainder", "horovod_broadcast", "horovod_optimizer", "horovod_ranks"},
}


@pytest.mark.parametrize("name", STYLES)
def test_each_style_gets_the_rules_that_it_needs(name: str) -> None:
    result = migrate_source(source(name), path=f"{name}.py")
    changed = {finding.rule.removeprefix("tf1.") for finding in result.findings if finding.status == "changed"}
    assert changed >= NEEDED[name], changed


def test_nothing_of_the_gpu_is_left_in_the_session_example() -> None:
    tree = ast.parse(migrate_source(source("sentences_session"), path="sentences_session.py").after)
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not calls & {"tf.device", "tf.nn.dropout"}
    assert {"npu_ops.dropout", "npu_unary_ops.gelu", "sess.close"} <= calls


@pytest.mark.parametrize("distributed", [False, True], ids=["single", "distributed"])
def test_nothing_of_horovod_is_left_in_its_example(distributed: bool) -> None:
    result = migrate_source(source("waves_horovod"), path="waves_horovod.py", distributed=distributed)
    tree = ast.parse(result.after)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in imported if "horovod" in name]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "hvd"]
    assert "horovod_leftovers" not in {finding.rule.removeprefix("tf1.") for finding in result.findings}


# ---- the tutorial


def list_shown_diffs() -> list[tuple[str, str]]:
    """Return each command of the tutorial with the diff that the page shows for it."""
    blocks = re.findall(r"```(console|diff)\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    pairs, command = [], ""
    for kind, text in blocks:
        if kind == "console":
            command = text.strip().removeprefix("$ ")
        else:
            pairs.append((command, text))
    return pairs


def options_of(command: str) -> tuple[str, dict[str, Any]]:
    words = command.split()
    assert words[:2] == ["viaduct", "migrate"], command
    options: dict[str, Any] = {}
    for position, argument in enumerate(words):
        if argument.startswith("--") and argument not in ("--out", "--report"):
            following = (
                words[position + 1] if position + 1 < len(words) and not words[position + 1].startswith("--") else ""
            )
            options[argument[2:].replace("-", "_")] = following or True
    return Path(words[2]).stem, options


@pytest.mark.parametrize(("command", "diff"), list_shown_diffs(), ids=lambda text: text.split("\n")[0][:60])
def test_the_tutorial_shows_what_happens(command: str, diff: str) -> None:
    name, options = options_of(command)
    before = source(name)
    after = migrate_source(before, path=f"{name}.py", **options).after.decode()
    actual = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))
    position = 0
    for line in diff.splitlines():
        if line.strip() != "…":
            assert line in actual[position:], f"not in the diff of `{command}`, or not in this order: {line}"
            position = actual.index(line, position) + 1


def test_the_tutorial_shows_every_example() -> None:
    assert {options_of(command)[0] for command, _ in list_shown_diffs()} == set(STYLES)


# ---- running


needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="pip install 'viaduct[tf]' to run the examples"
)


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.parametrize("name", STYLES)
def test_an_example_runs_and_learns(name: str, tmp_path: Path) -> None:
    check_promise(name, run(STYLES[name], PROMISES[name][0], tmp_path))


@pytest.mark.slow
@needs_tensorflow
def test_without_horovod_the_example_says_so(tmp_path: Path) -> None:
    answer = run(STYLES["waves_horovod"], [], tmp_path)
    assert answer.returncode == 1
    assert "Horovod is not installed" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.parametrize("distributed", [False, True], ids=["single", "distributed"])
@pytest.mark.parametrize("name", STYLES)
def test_a_migrated_example_runs_and_learns(name: str, distributed: bool, tmp_path: Path) -> None:
    after = migrate_source(source(name), path=f"{name}.py", distributed=distributed).after
    script = tmp_path / f"{name}.py"
    script.write_bytes(after)
    assert b"npu_bridge" in after
    check_promise(name, run(script, PROMISES[name][0], tmp_path, STAND_IN))
