"""A script gets its own copy of a linked file before it writes to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from forked_viaduct import viaduct
from rehearsal.plans import make_plan
from rehearsal.rehearsing import TRAINS
from viaduct.rehearsal import guard
from viaduct.rehearsal.guard import Guard
from viaduct.scripts.child_process import VIADUCT_ROOT

WAYS = [
    "open('link/a', 'w')",
    "open('link/a', 'r+b').write(b'their')",
    "open('link/new', 'x').write('new'); assert open('link/new').read() == 'new'",
    "open('link/a', 'a').write('more'); assert open('link/a').read() == 'minemore'",
    "open('file', 'a').write('more'); assert open('file').read() == 'minemore'",
    "os.open('link/a', os.O_RDWR)",
    "os.truncate('link/a', 0)",
    "os.remove('link/a'); assert not os.path.exists('link/a')",
    "os.remove('file'); assert not os.path.exists('file')",
    "os.rename('link/a', 'b'); assert open('b').read() == 'mine'",
    "os.rename('own', 'link/own'); assert os.listdir('link').count('own') == 1",
    "os.mkdir('link/new')",
    "os.makedirs('link', exist_ok=True)",
    "pathlib.Path('link/a').touch()",
    "os.chdir('link'); open('a', 'w')",
    "shutil.rmtree('link'); assert not os.path.exists('link')",
    "assert sorted(sum((names for _, _, names in os.walk('.')), [])) == ['a', 'file', 'file', 'own']",
    "sqlite3.connect('link/a')",
    "subprocess.run('echo x > new; rm a', shell=True, cwd='link', check=True)",
    "open('link/a').read(); open('own', 'w')",
    "open(given + '/log', 'w'); os.remove(given + '/log')",
]


def test_a_copy_above_half_of_the_free_space_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, link = tmp_path / "file", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=7))
    with pytest.raises(OSError, match="its copy of 4 bytes would take more than half of the free space"):
        guard.copy_file(str(link), str(target), is_empty=False)


def run_guarded(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    data, work = tmp_path / "data", tmp_path / "mirror" / "work"
    given = data / "given"
    given.mkdir(parents=True)
    work.mkdir(parents=True)
    (data / "a").write_text("mine")
    (data / "file").write_text("mine")
    (work / "own").touch()
    (work / "link").symlink_to(data)
    (work / "file").symlink_to(data / "file")
    before = (
        f"import os, pathlib, shutil, sqlite3, subprocess, sys\nsys.path.insert(0, {str(VIADUCT_ROOT)!r})\n"
        f"from viaduct.rehearsal.guard import Guard\ndata, given = {str(data)!r}, {str(given)!r}\n"
        f"sys.addaudithook(Guard({str(work.parent)!r}, [data], [given]).audit)\n"
    )
    return subprocess.run([sys.executable, "-c", before + code], cwd=work, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_behind_a_link_is_the_runs_own(way: str, tmp_path: Path) -> None:
    ended = run_guarded(way, tmp_path)
    data = tmp_path / "data"
    assert ended.returncode == 0, ended.stderr
    assert (data / "a").read_text() == (data / "file").read_text() == "mine"
    assert sorted(os.listdir(data)) == ["a", "file", "given"]
    assert os.listdir(data / "given") == []


@pytest.mark.parametrize("way", ["open(data + '/a', 'w')", "os.remove(data + '/a')", "os.mkdir(data + '/new')"])
def test_a_full_path_into_the_users_own_folder_is_refused(way: str, tmp_path: Path) -> None:
    ended = run_guarded(way, tmp_path)
    assert "PermissionError" in ended.stderr
    assert f"your own {tmp_path / 'data'}" in ended.stderr
    assert (tmp_path / "data" / "a").read_text() == "mine"
    assert sorted(os.listdir(tmp_path / "data")) == ["a", "file", "given"]


def test_a_name_that_only_begins_alike_is_another(tmp_path: Path) -> None:
    guard = Guard(str(tmp_path / "mirror"), [str(tmp_path / "data")], [])
    guard.audit("open", (str(tmp_path / "data2"), "w", os.O_WRONLY))


SOURCE = (
    TRAINS
    + """\
import os, subprocess

network = train(2)
open("linked/a.txt", "r+").write("XX")
torch.save(network.state_dict(), "linked/model.pth")
subprocess.run([sys.executable, "-c", "open('linked/a.txt', 'a').write('YY')"], check=True)
print(open("linked/a.txt").read(), sorted(os.listdir("linked")))
if sys.argv[1:]:
    subprocess.run(["cp", "train.py", "large.bin"], check=True)
"""
)


def test_a_mirror_keeps_what_python_writes_and_says_what_another_program_changed(tmp_path: Path) -> None:
    here, data = tmp_path / "here", tmp_path / "data"
    here.mkdir()
    data.mkdir()
    (data / "a.txt").write_text("mine")
    (here / "linked").symlink_to(data)
    (here / "large.bin").write_bytes(b"0" * (1 << 19))
    (here / "train.py").write_text(SOURCE)
    answer = viaduct("rehearse", "train.py", "--on", "original", cwd=here, VIADUCT_OVERLAY="off")
    assert answer.stdout.splitlines() == ["XXneYY ['a.txt', 'model.pth']"], answer.stderr
    assert answer.returncode == 0, answer.stderr
    assert "no overlay is used here" in answer.stderr
    assert "ATTENTION" not in answer.stderr
    assert os.listdir(data) == ["a.txt"]
    assert (data / "a.txt").read_text() == "mine"
    words = ("rehearse", "train.py", "--on", "original", "--", "copies")
    answer = viaduct(*words, cwd=here, VIADUCT_OVERLAY="off")
    assert f"ATTENTION: your own {here / 'large.bin'} was changed" in answer.stderr


def test_a_name_that_only_begins_alike_is_not_within() -> None:
    assert not guard.is_within("/a/bc", ["/x", "/a/b"])
    assert guard.is_within("/a/b", ["/x", "/a/b"])
    assert guard.is_within("/a/b/c", ["/x", "/a/b"])


def test_paths_into_the_project_lead_to_the_mirror_with_a_flag_or_with_an_equals_sign_in_them(tmp_path: Path) -> None:
    project = str(tmp_path / "project")
    arguments = (f"--out={project}/runs", f"{project}/lr=0.1/runs", "--lr=0.1", "relative=1", "/other/lr=0.1")
    plan = make_plan(tmp_path, arguments=arguments, file_view="mirror")
    moved = (f"--out={plan.mirror}{project}/runs", f"{plan.mirror}{project}/lr=0.1/runs", *arguments[2:])
    assert guard.redirect_arguments_to_mirror(plan) == moved
