"""`viaduct migrate`: flags, files written, output and exit codes."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from migration.small_project import make_project
from viaduct.errors import ViaductError
from viaduct.migration.options import Options
from viaduct.verbs.migrate import Command, main

PRECISION = "allow_mix_precision"


app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command(cls=Command)(main)


def call(*words: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that viaduct reads and parses from end to end."""
    folder = make_project(tmp_path / "project")
    (folder / "old.py").unlink()
    return folder


@pytest.fixture
def half_read(project: Path) -> Path:
    """The same with a script of Python 2, which makes every verdict incomplete."""
    (project / "old.py").write_text('import tensorflow as tf\nprint "two"\n')
    return project


def test_by_default_the_changes_are_shown_and_nothing_is_written(project: Path) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    result = call(project)
    assert result.exit_code == 0
    assert (
        "-    return ds.batch(32)  # keep me\n+    return ds.batch(32, drop_remainder=True)  # keep me" in result.stdout
    )
    assert "tf1.dataset_drop_remainder" in result.stdout
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_the_diff_can_be_applied_by_patch(project: Path, tmp_path: Path) -> None:
    diff = call(project).stdout.partition("\nChanged\n")[0]
    call(project, "--out", tmp_path / "out", "--quiet")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    applied = subprocess.run(
        ["git", "-C", str(project), "apply", "-p0", "-"], input=diff, text=True, capture_output=True
    )
    assert applied.returncode == 0, applied.stderr
    for name in ("train.py", "data/pipeline.py"):
        assert (project / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_all_that_goes_into_a_pipe_can_be_given_to_patch(project: Path, tmp_path: Path) -> None:
    (project / "crlf.py").write_bytes((project / "data/pipeline.py").read_bytes().replace(b"\n", b"\r\n"))
    (project / "tabs.py").write_text((project / "data/pipeline.py").read_text().replace("    ", "\t"))
    shown = subprocess.run([sys.executable, "-m", "viaduct", "migrate", str(project)], capture_output=True, check=True)
    call(project, "--out", tmp_path / "out", "--quiet")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run(["git", "-C", str(project), "apply", "-p0", "-"], input=shown.stdout, check=True)
    for name in ("train.py", "data/pipeline.py", "crlf.py", "tabs.py"):
        assert (project / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_check_says_by_its_exit_code_whether_something_would_change(project: Path) -> None:
    result = call(project, "--check")
    assert result.exit_code == 1
    assert "would change train.py" in result.stdout
    assert call(project / "plain.py", "--check").exit_code == 0


def test_strict_says_whether_something_is_left(half_read: Path) -> None:
    assert call(half_read, "--strict", "--quiet").exit_code == 1
    assert call(half_read / "plain.py", "--strict").exit_code == 0


def test_a_copy_with_start_scripts(project: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert call(project, "--out", out).exit_code == 0
    assert "NPURunConfig" in (out / "train.py").read_text()
    assert (out / "scripts/run_8p.sh").exists()
    assert call(out, "--check", "--skip", "D9").exit_code == 0, "a second run is still"
    with pytest.raises(ViaductError, match="not empty"):
        call(project, "--out", out)


def test_in_place_needs_a_clean_tree_or_force(project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    with pytest.raises(ViaductError, match="not committed"):
        call(project, "--in-place")
    assert "RunConfig(" in (project / "train.py").read_text()
    assert call(project, "--in-place", "--force").exit_code == 0
    assert "NPURunConfig(" in (project / "train.py").read_text()


def test_only_and_skip(project: Path) -> None:
    only = call(project, "--only", "dataset_drop_remainder").stdout
    assert "drop_remainder=True" in only
    assert "NPUEstimator" not in only
    skip = call(project, "--skip", "D1").stdout
    assert "NPUEstimator" in skip
    assert "+    return ds.batch(32, drop" not in skip


def test_reports_are_written_beside_what_is_shown(project: Path, tmp_path: Path) -> None:
    html, sarif, record = tmp_path / "r.html", tmp_path / "s.sarif", tmp_path / "j.json"
    call(project, "--quiet", "--report", html, "--sarif", sarif, "--json", record, "--lang", "zh")
    assert "丢弃" in html.read_text(encoding="utf-8")
    assert json.loads(sarif.read_text())["version"] == "2.1.0"
    assert json.loads(record.read_text())["summary"]["changed"] == 2


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["--only", "estimator_runconfig"], "estimator_run_config"),
        (["--skip", "nothing_like_it"], "no rule"),
        (["--precision", "allow_mixed_precision"], PRECISION),
        (["--precision", f"{PRECISION},mixed_float16"], "not both"),
        (["--loop", "0"], "1 or more"),
        (["--dump-step", "3"], "--dump DIR"),
        (["--dump", "d", "--dump-step", "x"], "names no steps"),
        (["--profile", "p", "--dump", "d"], "one after the other"),
        (["--preset", "resnet-sed"], "resnet-seed"),
        (["--entry", "none.py"], "no such script"),
        (["--check", "--in-place"], "together"),
        (["--force"], "for --in-place"),
        (["--to", "any"], "device-neutral"),
    ],
)
def test_wrong_values_are_answered_with_the_known_ones(project: Path, words: list[str], word: str) -> None:
    with pytest.raises(ViaductError, match=word):
        call(project, *words)


def test_a_path_is_needed_and_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ViaductError, match="migrate what"):
        call()
    with pytest.raises(ViaductError, match="there is no"):
        call(tmp_path / "none")
    with pytest.raises(ViaductError, match="no Python file"):
        call(tmp_path)


def test_a_report_that_cannot_be_written_is_reported(project: Path) -> None:
    for flag in ("--report", "--json", "--sarif"):
        with pytest.raises(ViaductError, match=r"README\.md"):
            call(project, "--quiet", flag, project / "README.md" / "x")


@pytest.mark.parametrize("flag", ["--report", "--json", "--sarif"])
def test_a_report_never_replaces_a_script(project: Path, flag: str) -> None:
    before = (project / "train.py").read_bytes()
    for more in ([], ["--force"], ["--in-place", "--force"]):
        with pytest.raises(ViaductError, match="script of the project"):
            call(project, flag, project / "train.py", *more)
    assert (project / "train.py").read_bytes() == before


@pytest.mark.parametrize("flag", ["--report", "--json", "--sarif"])
def test_a_report_replaces_its_predecessor_and_with_force_what_else_is_there(project: Path, flag: str) -> None:
    with pytest.raises(ViaductError, match="--force replaces it"):
        call(project, "--quiet", flag, project / "README.md")
    assert (project / "README.md").read_text() == "Read me.\n"
    assert call(project, "--quiet", flag, project / "README.md", "--force").exit_code == 0
    assert "drop_remainder" in (project / "README.md").read_text(encoding="utf-8")
    assert call(project, "--quiet", flag, project / "README.md").exit_code == 0


def test_a_folder_for_reports_is_not_made_unasked(project: Path) -> None:
    for flag in ("--report", "--json", "--sarif"):
        with pytest.raises(ViaductError, match="no folder"):
            call(project, "--quiet", flag, project.parent / "reports" / "x")
    assert not (project.parent / "reports").exists()


def test_a_report_may_lie_in_the_copy(project: Path) -> None:
    out = project.parent / "out"
    assert call(project, "--quiet", "--out", out, "--report", out / "report.html").exit_code == 0
    assert (out / "report.html").exists()
    assert (out / "train.py").exists()


def test_what_was_written_is_named(project: Path) -> None:
    assert "Nothing was changed" in call(project / "plain.py", "--in-place", "--quiet").stderr
    script = project / "data" / "pipeline.py"
    assert call(script, "--in-place", "--quiet").stderr.endswith(f"Written: {script}\n")
    (project / "again.py").write_text("import tensorflow as tf\nds = tf.data.TFRecordDataset([]).batch(3)\n")
    assert f"Written: 2 files in {project}\n" in call(project, "--in-place", "--quiet").stderr
    again = call(project, "--in-place", "--quiet")
    assert "Nothing was changed" in again.stderr
    assert "Written" not in again.stderr


def test_unread_files_are_not_said_to_need_no_change(half_read: Path) -> None:
    call(half_read, "--in-place", "--force", "--quiet")
    output = call(half_read, "--in-place", "--force", "--quiet")  # all files that can be read are migrated already
    assert output.exit_code == 1
    assert output.stderr.endswith("Nothing was changed.\n")


def test_reasons_are_chinese_with_lang_zh(half_read: Path, tmp_path: Path) -> None:
    (half_read / "__pycache__").mkdir()
    page, record = tmp_path / "r.html", tmp_path / "r.json"
    output = call(half_read, "--lang", "zh", "--report", page, "--json", record).stdout
    assert "第 2 行" in output
    assert "__pycache__: 缓存目录" in output
    assert '<html lang="zh">' in page.read_text(encoding="utf-8")
    assert "缓存目录" in page.read_text(encoding="utf-8")
    found = json.loads(record.read_text(encoding="utf-8"))
    assert found["skipped"] == [{"path": "__pycache__", "reason": "缓存目录"}]
    assert [file["reason"][:6] for file in found["files"] if "reason" in file] == ["第 2 行:"]
    call(half_read, "--quiet", "--report", page)
    assert '<html lang="en">' in page.read_text(encoding="utf-8")


def test_rules_are_listed_and_explained() -> None:
    listed = call("--list").stdout
    assert "tf1.estimator_run_config" in listed
    explained = call("--explain", "estimator_run_config").stdout
    assert "+" in explained
    assert "NPURunConfig" in explained
    with pytest.raises(ViaductError, match="estimator_run_config"):
        call("--explain", "estimator_run_confg")


def test_every_option_of_a_migration_has_its_flag() -> None:
    fields = {field.name for field in dataclasses.fields(Options)}
    assert fields <= set(inspect.signature(main).parameters)


def test_help_says_which_options_are_for_which_scripts() -> None:
    text = call("--help").stdout
    titles = ["Options:", "PyTorch scripts:", "TensorFlow 1 scripts:", "Rules:", "Reports:"]
    positions = [text.index(f"\n{title}\n") for title in titles]
    assert positions == sorted(positions)
    assert positions[1] < text.index("--data-parallel") < positions[2] < text.index("--precision") < positions[3]
    for parameter in inspect.signature(main).parameters.values():
        flag = {"show_rules": "list", "json_file": "json"}.get(parameter.name, parameter.name).replace("_", "-")
        assert flag == "path" or f"  --{flag} " in text, flag


def test_a_name_that_is_close_to_nothing_is_not_answered_with_a_list(project: Path) -> None:
    with pytest.raises(ViaductError) as refused:
        call(project, "--only", "zzzz9")
    assert len(str(refused.value)) < 200


def test_it_imports_no_package_that_takes_long(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import tensorflow as tf\ntf.data.Dataset.range(3).batch(2)\n")
    code = "import sys; from viaduct.cli import main\ntry:\n    main()\nfinally:\n    print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code, "migrate", str(tmp_path), "--quiet"], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    modules = answer.stdout.splitlines()[-1].split()
    assert "viaduct.migration.run" in modules
    assert not {"torch", "numpy", "tensorflow", "PIL", "jinja2", "optuna"} & set(modules)
