"""An overlay shows every file at its usual path, and keeps what the script writes in the record."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from rehearsal.rehearsing import TRAINS, rehearse_script
from viaduct.rehearsal import overlay
from viaduct.rehearsal.overlay import Layout, OverlayError, View, choose_folders, find_obstacle, open_view


def layout_for(around: Path, **more: str) -> Layout:
    record = around / "project" / "out"
    record.mkdir(parents=True)
    folders = choose_folders([str(around)])
    return Layout(folders, str(record / "overlay"), folders, (str(record),), **more)


def is_possible(folder: Path) -> bool:
    folders = choose_folders([str(folder)])
    return not find_obstacle(Layout(folders, str(folder), folders), folder)


@pytest.fixture
def around(tmp_path: Path) -> Path:
    if not is_possible(tmp_path):
        pytest.skip("this system does not let us mount overlays")
    (tmp_path / "around" / "project").mkdir(parents=True)
    (tmp_path / "around" / "project" / "train.py").write_text("mine")
    (tmp_path / "around" / "data.txt").write_text("mine")
    return tmp_path / "around"


def run_in(view: View, folder: Path, line: str) -> str:
    try:
        command = view.wrap_command(str(folder), ["sh", "-ec", line])
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    finally:
        view.close()


def test_every_program_writes_to_the_layer_and_reads_it_back(around: Path) -> None:
    view = open_view(layout_for(around))
    line = "pwd; echo x >> ../data.txt; cat ../data.txt; rm train.py; mkdir ../runs; echo y > ../runs/z; ls"
    output = run_in(view, around / "project", line)
    assert output.split() == [str(around / "project"), "minex", "out"]
    assert (around / "data.txt").read_text() == (around / "project" / "train.py").read_text() == "mine"
    assert sorted(os.listdir(around)) == ["data.txt", "project"]
    assert {name for name, _ in view.find_written()} == {f"{around}/data.txt", f"{around}/runs/z"}


def test_the_migrated_files_stand_in_the_originals_place(around: Path) -> None:
    tree = around / "project" / "out" / "migrated"
    layout = layout_for(around, original_tree=str(around / "project"), variant_tree=str(tree))
    tree.mkdir()
    (tree / "train.py").write_text("theirs")
    (tree / "added.py").write_text("new")
    view = open_view(layout)
    output = run_in(view, around / "project", "cat train.py added.py ../data.txt; echo x > kept; echo more >> added.py")
    assert output == "theirsnewmine"
    assert {name for name, _ in view.find_written()} == {f"{around}/project/{name}" for name in ("kept", "added.py")}
    assert (around / "project" / "train.py").read_text() == "mine"
    assert (tree / "added.py").read_text() == "new"


def test_a_settings_file_of_equal_size_and_time_is_compared_by_content(tmp_path: Path) -> None:
    original, migrated = tmp_path / "original.yaml", tmp_path / "migrated.yaml"
    for path, device in ((original, "gpu"), (migrated, "npu")):
        path.write_text(f"device: {device}\n")
        os.utime(path, (1e9, 1e9))  # as an archive with fixed times leaves them
    assert not overlay.is_same_file(str(migrated), str(original))
    assert overlay.is_same_file(str(migrated), str(migrated))


def test_the_record_is_shared_with_the_outside(around: Path) -> None:
    view = open_view(layout_for(around))
    run_in(view, around, "echo x > project/out/note")
    assert (around / "project" / "out" / "note").read_text() == "x\n"


def test_a_folder_that_cannot_be_overlaid_stays_as_it_is_unless_it_is_required(around: Path) -> None:
    layout = layout_for(around)
    refused = replace(layout, folders=(*layout.folders, "/proc"))
    output = run_in(open_view(refused), around, "echo x >> data.txt; cat data.txt; test -e /proc/self/status")
    assert output == "minex\n"
    with pytest.raises(OverlayError):
        open_view(replace(refused, required=("/proc",)))


def test_a_folder_right_below_the_root_is_chosen_for_root_and_an_own_one_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert choose_folders(["/usr/share/x", "/usr/lib", "/", "/nothing/there"]) == ("/usr",)
    assert choose_folders(["/dev/shm/x"]) == ("/dev/shm",)
    monkeypatch.setattr(os, "geteuid", lambda: 987654)
    assert choose_folders(["/usr/share"]) == ("/usr/share",)


def test_a_system_that_refuses_is_reported_as_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(overlay.OVERLAY_VARIABLE, "off")
    assert "off" in find_obstacle(Layout((str(tmp_path),), str(tmp_path)), tmp_path)


SOURCE = (
    TRAINS
    + """\
import os, sqlite3, subprocess
from pathlib import Path
import numpy

HERE = Path(__file__).resolve().parent
os.makedirs("../runs")
torch.save(train(2).state_dict(), "../runs/model.pt")
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "large.bin")
numpy.memmap("../data/array.bin", dtype="uint8", mode="r+")[0] = 7
sqlite3.connect("../data/base.db").execute("create table t (a int)")
subprocess.run("echo x >> ../data/log.txt; rm ../data/gone.txt", shell=True, check=True)
(HERE / "note.txt").write_text("x")
Path(sys.argv[1]).write_text("x")
os.rename("../data", "../moved")
os.chdir("../moved")
Path("here.txt").touch()
print(open("log.txt").read(), sorted(os.listdir(".")))
"""
)


def test_whatever_a_script_writes_and_however_the_users_files_stay_as_they_are(around: Path) -> None:
    data, here = around / "data", around / "elsewhere"
    data.mkdir()
    here.mkdir()
    for name in ("array.bin", "base.db", "log.txt", "gone.txt"):
        (data / name).write_bytes(b"" if name == "base.db" else b"mine")
    (here / "large.bin").write_bytes(b"0" * (1 << 20))
    before = take_stock(around)
    answer = rehearse_script(around, SOURCE, "--on", "original", "--", str(around / "full.txt"))
    assert answer.stdout == "minex\n ['array.bin', 'base.db', 'here.txt', 'log.txt']\n", answer.stderr
    (around / "train.py").unlink()
    assert take_stock(around, without="record") == before
    inside = (
        "full.txt",
        "note.txt",
        "runs/model.pt",
        *(f"moved/{name}" for name in ("array.bin", "base.db", "here.txt")),
    )
    assert {f"{around}/{name}" for name in inside} <= set(answer.summary["wrote"])
    assert "large.bin" in answer.summary["wrote"]
    assert (answer.record / "elsewhere" / str(around)[1:] / "full.txt").read_text() == "x"


def test_temporary_files_beside_a_project_are_not_taken_for_the_users(around: Path) -> None:
    source = TRAINS + (
        "import tempfile\nfrom pathlib import Path\ntrain(2)\n"
        "Path(tempfile.mkdtemp(prefix='mine_'), 'x').write_text('x')\nPath('../kept.txt').write_text('x')\n"
    )
    answer = rehearse_script(around, source, "--on", "original", TMPDIR=str(around))
    assert answer.code == 0, answer.stderr
    assert answer.summary["wrote"] == [f"{around}/kept.txt"]
    assert sorted(path.name for path in around.iterdir() if path.is_dir()) == ["elsewhere", "project", "record"]


def take_stock(folder: Path, without: str = "") -> dict[str, tuple[int, int, int, bytes]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and without not in path.relative_to(folder).parts:
            state = path.stat()
            found[str(path)] = (state.st_ino, state.st_mtime_ns, state.st_size, path.read_bytes())
    return found


def test_here_writes_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS + "train(1)\nopen('note.txt', 'w').write('x')\n")
    answer = viaduct("rehearse", "train.py", "--on", "original", "--here", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "note.txt").read_text() == "x"
