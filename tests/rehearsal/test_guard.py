"""What a mirror only links to can be read by the script, and not be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from command import viaduct
from rehearsal.rehearsing import TRAINS
from viaduct.rehearsal.guard import Guard
from viaduct.rehearsal.surroundings import ROOT

WAYS = {
    "open('link/a', 'w')": False,
    "open('link/a', 'r+b')": False,
    "open('link/new', 'x')": False,
    "open(os.path.realpath('link/a'), 'a')": False,
    "os.open('link/a', os.O_RDWR)": False,
    "os.truncate('link/a', 0)": False,
    "os.remove('link/a')": False,
    "os.rename('link/a', 'b')": False,
    "os.rename('own', 'link/own')": False,
    "os.mkdir('link/new')": False,
    "pathlib.Path('link/a').touch()": False,
    "os.chdir('link') or open('a', 'w')": False,
    "open('link/a').read()": True,
    "open('own', 'w')": True,
    "os.remove('link')": True,
    "os.makedirs('link', exist_ok=True)": True,
    "open(given + '/log', 'w')": True,
}


@pytest.mark.parametrize(("way", "allowed"), WAYS.items())
def test_writing_behind_a_link_is_refused_and_nothing_else(way: str, allowed: bool, tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    given = data / "given"
    given.mkdir(parents=True)
    work.mkdir()
    (data / "a").write_text("mine")
    (work / "own").touch()
    (work / "link").symlink_to(data)
    code = (
        f"import os, pathlib, sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom viaduct.rehearsal.guard import Guard\n"
        f"data, given = {str(data)!r}, {str(given)!r}\nsys.addaudithook(Guard([data], [given]).hear)\n{way}\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=work, capture_output=True, text=True, timeout=600)
    assert (ended.returncode == 0) is allowed, ended.stderr
    assert (data / "a").read_text() == "mine"
    if not allowed:
        assert "PermissionError" in ended.stderr
        assert f"your own {data}" in ended.stderr
        assert sorted(os.listdir(data)) == ["a", "given"]


def test_a_name_that_only_begins_alike_is_another(tmp_path: Path) -> None:
    Guard([str(tmp_path / "data")], []).hear("open", (str(tmp_path / "data2"), "w", os.O_WRONLY))


SOURCE = (
    TRAINS
    + """\
import os, subprocess

network = train(2)
code = "open('linked/a.txt', 'r+').write('XX')"
ways = {
    "open": lambda: open("linked/a.txt", "r+").write("XX"),
    "save": lambda: torch.save(network.state_dict(), "linked/model.pth"),
    "child": lambda: subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.DEVNULL),
}
for name, way in ways.items():
    try:
        way()
    except (PermissionError, subprocess.CalledProcessError):
        print(name, "refused")
print(open("linked/a.txt").read())
if sys.argv[1:]:
    subprocess.run(["cp", "train.py", "linked/new.txt"], check=True)
"""
)


def test_the_script_and_its_processes_are_refused_and_what_another_program_writes_is_told(tmp_path: Path) -> None:
    here, data = tmp_path / "here", tmp_path / "data"
    here.mkdir()
    data.mkdir()
    (data / "a.txt").write_text("mine")
    (here / "linked").symlink_to(data)
    (here / "train.py").write_text(SOURCE)
    answer = viaduct("rehearse", "train.py", "--on", "original", cwd=here)
    assert answer.stdout.splitlines() == ["open refused", "save refused", "child refused", "mine"], answer.stderr
    assert answer.returncode == 0, answer.stderr
    assert "ATTENTION" not in answer.stderr
    assert os.listdir(data) == ["a.txt"]
    answer = viaduct("rehearse", "train.py", "--on", "original", "--", "copies", cwd=here)
    assert f"ATTENTION: your own {data / 'new.txt'} was changed" in answer.stderr
