"""A complete project: which files are analysed, which are left alone, and that nothing is imported or run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from migration.notebook_files import code, dump, notebook
from migration.small_project import make_project, migrated_project
from viaduct.errors import BadValue
from viaduct.migration import run
from viaduct.migration.results import Outcome
from viaduct.migration.summary import headline, summarise


def states(outcome: Outcome) -> dict[str, str]:
    return {file.path: "changed" if file.changed else file.unread_reason or "same" for file in outcome.files}


def test_files_that_need_nothing_are_left_alone(tmp_path: Path) -> None:
    outcome = migrated_project(make_project(tmp_path))
    assert [file.path for file in outcome.changed_files] == ["data/pipeline.py", "train.py"]
    assert states(outcome)["plain.py"] == states(outcome)["data/__init__.py"] == "same"


def test_the_order_is_that_of_names_whatever_the_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    for number in range(12):
        (tmp_path / f"more_{number}.py").write_text((tmp_path / "data/pipeline.py").read_text())
    single = migrated_project(tmp_path, jobs=1)
    monkeypatch.setattr(run, "MIN_PARALLEL_BYTES", 0)
    two = migrated_project(tmp_path, jobs=2)
    strip = [(file.path, file.after, file.findings, file.original_lines) for file in single.files]
    assert strip == [(file.path, file.after, file.findings, file.original_lines) for file in two.files]
    assert [file.path for file in single.files] == sorted(file.path for file in single.files)


def test_python_2_is_copied_and_left_for_manual_review(tmp_path: Path) -> None:
    outcome = migrated_project(make_project(tmp_path))
    (left,) = [finding for finding in outcome.unfinished_findings if finding.file == "old.py"]
    assert left.risk == "high"
    assert "line 2: this is Python 2" in left.message
    assert summarise(outcome).verdict == "incomplete"


@pytest.mark.parametrize(
    ("data", "word"),
    [(b"\0\1\2\xff", "decoded"), (b"x = 1\0", "NUL"), (b"def f(:\n", "line 1"), (b"x = " + b"(" * 5000, "")],
)
def test_files_that_are_not_python_are_named_and_do_not_stop_the_run(tmp_path: Path, data: bytes, word: str) -> None:
    make_project(tmp_path)
    (tmp_path / "odd.py").write_bytes(data)
    outcome = migrated_project(tmp_path)
    assert word in states(outcome)["odd.py"]
    assert states(outcome)["odd.py"] not in ("same", "changed")
    assert len(outcome.changed_files) == 2
    (output,) = [finding for finding in outcome.findings if finding.file == "odd.py"]
    assert output.risk == "low", "it mentions no framework"


@pytest.mark.parametrize(
    "data", [b"import tensorflow as tf  # caf\xe9\n", b"# coding: klingon\nimport tensorflow as tf\n"]
)
def test_of_an_unknown_encoding_the_encoding_is_reported(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "odd.py").write_bytes(data)
    (output,) = migrated_project(tmp_path).findings
    assert output.risk == "high"
    assert "UTF-8" in output.message
    assert "encoding" in output.message
    assert "2to3" not in output.message + output.message_zh
    assert "编码" in output.message_zh


def test_a_script_without_a_suffix_is_migrated(tmp_path: Path) -> None:
    script = make_project(tmp_path) / "train"
    (tmp_path / "train.py").rename(script)
    script.write_text("#!/usr/bin/env python3\n" + script.read_text())
    outcome = migrated_project(tmp_path)
    assert states(outcome)["train"] == "changed"
    assert outcome.entry == "train"
    assert [file.path for file in migrated_project(script).changed_files] == ["train"]


def test_a_large_file_of_data_is_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "table.py").write_text("TABLE = [\n" + "    123456789,\n" * 700_000 + "]\n")
    (tmp_path / "large.py").write_text("import tensorflow as tf\n" + "x = '%s'\n" % ("a" * 5_100_000))
    outcome = migrated_project(tmp_path)
    assert "mentions no framework" in states(outcome)["table.py"]
    assert [finding.file for finding in outcome.unfinished_findings] == ["large.py"]


def test_fifty_thousand_lines_are_migrated(tmp_path: Path) -> None:
    text = "import tensorflow as tf\n" + "x = 1\n" * 50_000 + "ds = tf.data.TFRecordDataset([]).batch(3)\n"
    (tmp_path / "long.py").write_text(text)
    (file,) = migrated_project(tmp_path).changed_files
    assert file.line_count == 50_002
    assert b"drop_remainder=True" in file.after


def test_an_empty_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    assert states(migrated_project(tmp_path)) == {"empty.py": "same"}


def test_a_mistake_of_ours_costs_one_file_and_not_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path)
    migrate = run.migrate_bytes

    def failing(path: str, *rest: object) -> object:
        if path == "train.py":
            raise KeyError("oh")
        return migrate(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "migrate_bytes", failing)
    outcome = migrated_project(tmp_path)
    assert "KeyError" in states(outcome)["train.py"]
    assert "failing" in outcome.by_path["train.py"].traceback
    assert states(outcome)["data/pipeline.py"] == "changed"


def test_to_any_is_refused_for_tensorflow_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="no device-neutral API"):
        migrated_project(make_project(tmp_path), to="any")


def test_the_script_that_is_started_is_found_if_there_is_only_one(tmp_path: Path) -> None:
    make_project(tmp_path)
    assert migrated_project(tmp_path).entry == "train.py"
    (tmp_path / "second.py").write_text((tmp_path / "train.py").read_text())
    assert migrated_project(tmp_path).entry == ""
    assert migrated_project(tmp_path, entry="second.py").entry == "second.py"
    assert migrated_project(tmp_path, entry=str(tmp_path / "second.py")).entry == "second.py"
    with pytest.raises(BadValue, match="no such script"):
        migrated_project(tmp_path, entry="third.py")


def test_a_second_run_changes_no_byte(tmp_path: Path) -> None:
    make_project(tmp_path)
    for file in migrated_project(tmp_path).changed_files:
        (tmp_path / file.path).write_bytes(file.after)
    assert migrated_project(tmp_path).changed_files == []


def test_nothing_of_the_project_is_run_and_no_framework_is_imported(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    ran = tmp_path / "ran"
    (project / "trap.py").write_text(f"import tensorflow as tf\nopen({str(ran)!r}, 'w')\n")
    code = (
        f"import sys; sys.argv = ['viaduct', 'migrate', {str(project)!r}, '--quiet']\n"
        "from viaduct.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "bad = {'torch', 'tensorflow', 'numpy', 'jinja2'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert "edits in" in answer.stdout
    assert not ran.exists()


def test_the_summary_counts_what_was_done(tmp_path: Path) -> None:
    summary = summarise(migrated_project(make_project(tmp_path)))
    assert (summary.files, summary.changed, summary.unchanged, summary.unread) == (5, 2, 2, 1)
    assert summary.edits == sum(counts["changed"] for counts in summary.rules.values()) >= 3
    assert headline(summary).startswith("incomplete: 1 path not read; ")
    assert headline(summary).endswith(f"; {summary.edits} edits in 2 files of 5")
    assert "nothing was run" in summary.reasons[-1]


def test_some_rules_alone_are_never_called_complete(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import tensorflow as tf\nds = tf.data.TFRecordDataset([]).batch(3)\n")
    summary = summarise(migrated_project(tmp_path, only=("dataset_drop_remainder",)))
    assert summary.statuses["changed"] == 1
    assert summary.verdict == "incomplete"
    assert "--only" in summary.reasons[0]
    assert summarise(migrated_project(tmp_path)).verdict == "complete"


def test_a_notebook_whose_cells_or_commands_were_not_analysed_is_not_complete(tmp_path: Path) -> None:
    plain = [
        code("import torch\nx = torch.zeros(3).cuda()"),
        code("!ls /usr/local/cuda\n%time x.cpu()"),
        code("%%bash\nls"),
    ]
    (tmp_path / "a.ipynb").write_bytes(dump(notebook(*plain)))
    assert summarise(migrated_project(tmp_path)).verdict == "complete"
    for text in (
        "%%bash\nDEVICE=cuda python train.py",
        "%%bash\npython -c 'import torch; torch.zeros(3).cuda()'",
        "!python train.py --device cuda:0",
        "%env CUDA_VISIBLE_DEVICES=1",
        "if True: !NCCL_DEBUG=INFO python train.py",
        "print 'Python 2'",
    ):
        (tmp_path / "a.ipynb").write_bytes(dump(notebook(*plain, code(text))))
        outcome = migrated_project(tmp_path)
        assert summarise(outcome).verdict == "incomplete", text
        (finding,) = outcome.unfinished_findings
        assert outcome.locate(finding) == "a.ipynb cell 4:1"
        assert finding.message_zh
        assert len(outcome.places) == 3
