"""Paths that a view of the user's files covers, and copies of files that a script wrote."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from rehearsal.plans import make_plan
from viaduct.rehearsal import files
from viaduct.rehearsal.plan import Plan


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return a plan whose home and temporary folder are below the test's folder."""
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return make_plan(tmp_path / "tmp")


@pytest.mark.parametrize(
    "text",
    [
        *("data/x", "/", "//", "/usr/lib/x", "//usr/lib/x", "///etc/passwd", "/etc/passwd", "/no_such_folder_here/x"),
        *("//host/x", "//div[@class='x']", "/tmp", "//tmp", "/tmp/..", "/tmp/../etc/passwd", "/tmp/\0", "~\0/x"),
        *("/tmp/" + "x" * 2000, "/tmp/\ud800", "~\ud800/x", "~no_such_user/x", "http://tmp/x", "s3://tmp/x"),
        *("hdfs:///tmp/x", "file://host/tmp/x", "C:\\tmp\\x", "\\\\tmp\\x", "tmp:/tmp/x"),
    ],
)
def test_what_is_no_path_of_the_users_is_not_covered(text: str) -> None:
    assert files.expand_users_path(text) == ""


def test_full_paths_are_covered_however_they_are_written(plan: Plan, tmp_path: Path) -> None:
    for text in (f"{tmp_path}/a.txt", f"/{tmp_path}/a.txt", f"//{tmp_path}//x/../a.txt", f"file://{tmp_path}/a.txt"):
        assert files.expand_users_path(text) == f"{tmp_path}/a.txt"
    assert files.expand_users_path("~/a.txt") == f"{tmp_path}/home/a.txt"


def test_full_paths_in_arguments_a_script_and_links_beside_it_are_covered(plan: Plan, tmp_path: Path) -> None:
    Path(plan.script).write_text(
        f"import torch\nopen('{tmp_path}/in_script')\nx = ['~/c', 3, '~\\0', '/tmp/\\ud800']\n"
    )
    (tmp_path / "data").mkdir()
    (Path(plan.start_folder) / "link").symlink_to(tmp_path / "data")
    arguments = (f"--out={tmp_path}/option", f"{tmp_path}/lr=0.1/run", "--home=~/d", "relative=1")
    paths = {*files.find_paths(replace(plan, arguments=arguments))}
    assert {f"{tmp_path}/{name}" for name in ("in_script", "data", "option", "lr=0.1/run", "home/c", "home/d")} <= paths
    assert all(os.path.isabs(path) for path in paths if path)
    assert files.find_links(str(tmp_path / "nothing")) == []


def test_bytecode_temporary_files_and_hidden_entries_of_the_home_folder_are_not_listed(
    plan: Plan, tmp_path: Path
) -> None:
    ignored = [
        f"{plan.start_folder}/__pycache__/train.pyc",
        f"{files.find_scratch_folder(plan)}/x",
        f"{plan.record_folder}/summary.json",
        f"{tmp_path}/home/.cache/torch/x",
    ]
    assert [name for name in ignored if files.is_kept(name, plan)] == []
    listed = [
        f"{plan.start_folder}/model.pth",
        f"{tmp_path}/tmp/beside.txt",
        f"{tmp_path}/home/model.pth",
        "/data/model.pth",
    ]
    assert [name for name in listed if not files.is_kept(name, plan)] == []


def test_written_files_lie_in_the_record_by_their_names(plan: Plan, tmp_path: Path) -> None:
    written = []
    for number, name in enumerate(
        [
            f"{plan.start_folder}/runs/model.pth",
            f"{tmp_path}/other/log.txt",
            f"{plan.start_folder}/..odd",
            f"{plan.start_folder}/__pycache__/a.pyc",
        ]
    ):
        path = tmp_path / f"layer-{number}"
        path.write_text(name)
        written.append((name, path))
    names = files.keep_written(plan, [*written, (f"{plan.start_folder}/gone", tmp_path / "gone")])
    assert names == ["..odd", f"{tmp_path}/other/log.txt", "runs/model.pth"]
    assert [files.find_written_file(plan.record_folder, name).read_text() for name in names] == [
        written[i][0] for i in (2, 1, 0)
    ]
    assert files.find_written_file(plan.record_folder, "runs/model.pth") == Path(
        plan.record_folder, "work", "runs", "model.pth"
    )


def test_the_script_runs_in_the_mirror_or_at_the_originals_path(plan: Plan, tmp_path: Path) -> None:
    record = tmp_path / "new"
    overlaid = files.set_record_folder(
        make_plan(tmp_path / "tmp", file_view="overlay", replaced_source_tree="/original"), record
    )
    assert (overlaid.record_folder, overlaid.visible_start_folder, overlaid.visible_project_root) == (
        str(record),
        plan.start_folder,
        "/original",
    )
    mirrored = files.set_record_folder(make_plan(tmp_path / "tmp", file_view="mirror"), record)
    assert Path(mirrored.visible_start_folder).is_relative_to(record)
    assert Path(mirrored.visible_project_root).is_relative_to(record)


def test_where_no_overlay_can_be_mounted_the_script_runs_in_a_mirror_and_the_reason_is_reported(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(files, "find_obstacle", lambda layout, folder: "no user namespaces")
    assert files.choose_file_view(plan, messages.append).file_view == "mirror"
    assert "no user namespaces" in messages[0]
    monkeypatch.setattr(files, "find_obstacle", lambda layout, folder: "")
    monkeypatch.setattr(files, "find_uncovered", lambda plan: "")
    assert files.choose_file_view(plan, messages.append).file_view == "overlay"
    assert len(messages) == 1


def test_with_here_nothing_is_moved(plan: Plan) -> None:
    view = files.open_file_view(plan)
    assert view.wrap_command(["python", "train.py"]) == ["python", "train.py"]
    assert view.close() == ([], [])
