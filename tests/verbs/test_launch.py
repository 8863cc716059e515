"""viaduct launch: the flags, the refusals, and each of its three uses once."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from viaduct.verbs.launch import predict_scaling


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the logs of failed ranks in this test's folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("logs")))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture(autouse=True)
def no_ranks_are_running(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK_SIZE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


DOCUMENT = Path(__file__).parents[2] / "docs" / "launch.md"
TABLE = ("ranktable", "make", "--servers", "10.255.255.1,10.255.255.2", "--device-ips", "auto", "--out", "t.json")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--ranks", "2"], "nothing to launch"),
        (["--", "true"], "how many ranks?"),
        (["--ranks", "2", "--", "python", "gone.py"], "no script gone.py"),
        (["--ranks", "2", "--", "gone"], "no program 'gone'"),
        (["--ranks", "2", "--server", "10.0.0.1", "--", "true"], "--server is for --ranktable"),
        (["--ranks", "2", "--nodes", "2", "--", "true"], "2 machines need a rendezvous."),
        (["--ranks", "2", "--servers", "2", "--", "true"], "no option called '--servers'"),
        (["--ranktable", "gone.json", "--", "true"], "there is no file gone.json"),
        (["--ranktable", "x", "--rdzv", "a:1", "--", "true"], "--rdzv and --ranktable"),
        (["--write-scripts", "d", "--", "train", "x"], "scripts for which devices?"),
        (["--write-scripts", "d", "--target", "npu"], "scripts for which command?"),
        (["--plan", "no_such_recipe"], "no recipe called 'no_such_recipe'"),
        (["plan", "no_such_recipe"], "no recipe called 'no_such_recipe'"),
        (["plan", "shapes_taster", "--nodes", "2"], "no option called '--nodes'"),
        (["plan", "shapes_taster", "--", "train", "x"], "train"),
        (["plan", "shapes_taster", "--link", "inf"], "--link is inf; it must be a finite number"),
        (["--plan", "shapes_taster", "--write-scripts", "d"], "no option called '--write-scripts'"),
        (["--plan", "shapes_taster", "--link", "inf"], "--link is inf; it must be a finite number"),
        (["scripts", "d", "--", "train", "x"], "scripts for which devices?"),
        (["scripts", "d", "--target", "npu"], "scripts for which command?"),
        (["--ranks", "2", "--port", "80000", "--", "true"], "there is no port 80000"),
        (["--ranks", "2", "--port", "8000", "--", "true"], "--port is for --ranktable"),
        (["--ranks", "2", "--rdzv", "a:1", "--", "true"], "how many machines meet at a:1?"),
        (["--ranks", "2", "--log-dir", "/dev/null/x", "--", "true"], "--log-dir /dev/null/x is a file, or within one"),
        (["--ranks", "2", "--log-dir", "/proc/x", "--", "true"], "--log-dir /proc/x cannot be written"),
        (["--ranks", "2", "--", "train"], "which recipe?"),
        (["--ranks", "2", "--", "train", "nosuch"], "no recipe called 'nosuch'"),
        (["--ranks", "8", "--", "train", "shapes_taster", "--batch", "4"], "some of 8 ranks without an image"),
        (["--ranks", "2", "--", "train", "shapes_taster", "--device", "cuda:1"], "'cuda:1' is one card"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_started(words: list[str], expected: str, tmp_path: Path) -> None:
    answer = viaduct("launch", *words, cwd=tmp_path)
    assert answer.returncode == 2
    assert expected in answer.stderr
    assert answer.stderr.startswith("viaduct launch")
    assert "Traceback" not in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_flag_of_the_command_asks_for_the_dashes(tmp_path: Path) -> None:
    answer = viaduct("launch", "--ranks", "2", "python", "ok.py", "--epochs", "3", cwd=tmp_path)
    assert answer.returncode == 2
    assert "no option called '--epochs'." in answer.stderr
    assert "What follows `--` is the command's own" in answer.stderr
    answer = viaduct("launch", "--rnks", "2", "--", "python", "ok.py", cwd=tmp_path)
    assert "no option called '--rnks'." in answer.stderr
    assert "What follows" not in answer.stderr


def test_a_machine_that_the_table_does_not_know_is_refused(tmp_path: Path) -> None:
    assert viaduct(*TABLE, cwd=tmp_path).returncode == 0
    answer = viaduct("launch", "--ranktable", "t.json", "--", "true", cwd=tmp_path)
    assert answer.returncode == 2
    assert "this machine is not in t.json" in answer.stderr
    assert "10.255.255.1, 10.255.255.2" in answer.stderr
    answer = viaduct("launch", "--ranktable", "t.json", "--", "true", cwd=tmp_path, RANK_SIZE="8")
    assert "RANK_SIZE is '8' in the environment, but t.json has 16 devices" in answer.stderr


def test_help_and_refusals_need_no_torch(tmp_path: Path) -> None:
    for words in (["--help"], ["--ranks", "2"]):
        answer = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "viaduct", "launch", *words], capture_output=True, text=True
        )
        assert not re.search(r"\| +(torch|numpy)$", answer.stderr, re.MULTILINE)


def test_cards_that_are_not_here_are_reported_once(tmp_path: Path) -> None:
    answer = viaduct("launch", "--ranks", "2", "--", "train", "shapes_taster", "--device", "mlu", cwd=tmp_path)
    assert answer.returncode == 2
    assert answer.stderr.count("no mlu to run on") == 1


def test_scripts_are_written_and_listed(tmp_path: Path) -> None:
    words = ["scripts", "d", "--target", "mlu", "--", "train", "resnet50_imagenet"]
    answer = viaduct("launch", *words, cwd=tmp_path)
    assert answer.returncode == 0
    listed = [line.split()[0] for line in answer.stdout.splitlines()]
    assert sorted(listed) == sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "d").iterdir())
    assert "there already" in viaduct("launch", *words, cwd=tmp_path).stderr


def test_a_plan_is_printed_as_text_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "resnet50_imagenet", "--servers", "16", "--batch", "8192", "--step-ms", "150", "--json"]
    plan = json.loads(viaduct("launch", *words, cwd=tmp_path).stdout)
    assert plan["batch_per_device"] == 64
    assert plan["gradient_bytes"] == pytest.approx(4 * 25.6e6, rel=0.01)
    assert plan["sent_bytes"] == pytest.approx(2 * 127 / 128 * plan["gradient_bytes"])
    assert 0.5 < plan["efficiency"] <= 1
    assert plan["step_ms"] >= 150
    predict_scaling("resnet50_imagenet", 16, 8, 8192, 12.5, 30.0, 150.0, 60.0, as_json=False)
    shown = capsys.readouterr().out
    assert "128 (16 servers of 8)" in shown
    assert f"{plan['step_ms']:.2f} ms" in shown
    assert f"{plan['efficiency']:.1%}" in shown


def test_the_old_flags_work_with_a_notice(tmp_path: Path) -> None:
    scripts = ["--target", "mlu", "--write-scripts=d", "--", "train", "resnet50_imagenet", "--plan"]
    answer = viaduct("launch", *scripts, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == (
        "viaduct launch: --write-scripts is now `viaduct launch scripts DIR`; the next release removes the flag.\n"
    )
    assert (tmp_path / "d").is_dir()
    answer = viaduct("launch", "--servers", "2", "--plan", "resnet50_imagenet", "--json", cwd=tmp_path)
    assert json.loads(answer.stdout)["servers"] == 2
    assert "is now `viaduct launch plan RECIPE`" in answer.stderr


def test_help_shows_the_flags_and_both_subcommands(tmp_path: Path) -> None:
    shown = viaduct("launch", "--help", cwd=tmp_path).stdout
    assert all(argument in shown for argument in ("--ranktable", "--max-restarts", "  plan ", "  scripts "))
    assert "--step-ms" not in shown
    assert "--step-ms" in viaduct("launch", "plan", "--help", cwd=tmp_path).stdout
    assert "--force" in viaduct("launch", "scripts", "--help", cwd=tmp_path).stdout


def test_the_exit_code_of_the_ranks_becomes_ours(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import os\nprint('rank', os.environ['RANK'])\n")
    answer = viaduct("launch", "--ranks", "2", "--show", "all", "--", "python", "work.py", cwd=tmp_path)
    assert answer.returncode == 0
    assert sorted(answer.stdout.splitlines()) == ["[rank 0] rank 0", "[rank 1] rank 1"]
    (tmp_path / "work.py").write_text("raise SystemExit(3)\n")
    answer = viaduct("launch", "--ranks", "1", "--max-restarts", "0", "--", "python", "work.py", cwd=tmp_path)
    assert answer.returncode == 1
    assert "rank 0 ended with exit code 3" in answer.stderr


def test_every_command_of_the_document_is_understood(tmp_path: Path) -> None:
    commands = re.findall(r"^    viaduct launch (.+)$", DOCUMENT.read_text(), re.MULTILINE)
    assert len(commands) >= 8
    known = {name: viaduct("launch", *name, "--help", cwd=tmp_path).stdout for name in ((), ("plan",), ("scripts",))}
    for command in commands:
        words = shlex.split(command)
        shown = known[(words[0],)] if words[0] in ("plan", "scripts") else known[()]
        for argument in words[: words.index("--")] if "--" in words else words:
            assert not argument.startswith("--") or f"{argument} " in shown, f"{argument} of {command}"
