"""A helper of an earlier `--to any` gets the members that scripts use, unless the user has changed it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from forked_viaduct import python, viaduct
from migration.test_helper_location import HELPER, migrate_to_any, project
from migration.test_writing import contents
from viaduct.migration import helper_text
from viaduct.migration.inplace import write_in_place
from viaduct.migration.summary import summarise
from viaduct.migration.writing import write_out

FIRST = "import torch\nprint(torch.ones(1).cuda().device)\n"
SECOND = "import torch\n\nwith torch.cuda.amp.autocast():\n    torch.cuda.empty_cache()\nprint('done')\n"


def make_migrated_project(folder: Path) -> Path:
    """Return a project that was migrated once, and then got another script."""
    write_in_place(migrate_to_any(project(folder, {"first.py": FIRST})))
    assert "autocast" not in (folder / HELPER).read_text()
    return project(folder, {"second.py": SECOND})


# ---- what its owner has changed


def test_a_changed_helper_stays_and_what_it_lacks_is_reported(tmp_path: Path) -> None:
    mine = helper_text.render_helper(["device"]) + "# mine\n"
    project(tmp_path, {"train.py": FIRST, "second.py": SECOND, HELPER: mine})
    outcome = migrate_to_any(tmp_path)
    write_in_place(outcome)
    assert (tmp_path / HELPER).read_text() == mine
    for again in (outcome, migrate_to_any(tmp_path)):
        found = [finding for finding in again.findings if finding.rule == "engine.helper"]
        assert [(finding.file, finding.line, finding.status, finding.risk) for finding in found] == [
            ("second.py", 3 if again is outcome else 4, "manual", "high"),
            ("second.py", 4 if again is outcome else 5, "manual", "high"),
        ]
        assert "has no autocast" in found[0].message
        assert "autocast" in found[0].message_zh
        assert found[0].before.startswith("with ")
        assert "has no empty_cache" in found[1].message
        assert summarise(again).verdict == "incomplete"


def test_beside_a_single_script_too(tmp_path: Path) -> None:
    mine = helper_text.render_helper([]) + "# mine\n"
    project(tmp_path, {"second.py": SECOND, HELPER: mine})
    done = viaduct("migrate", tmp_path / "second.py", "--to", "any", "--out", tmp_path / "out")
    assert f"{HELPER} has been changed since it was written, and has no autocast" in done.stdout
    assert (tmp_path / "out" / HELPER).read_text() == mine


def test_an_owner_who_wrote_it_otherwise_is_not_told_what_he_has(tmp_path: Path) -> None:
    mine = f"# {'Written by `viaduct migrate --to any`'}\ndef autocast(): ...\nANSWERS = {{'empty_cache': None}}\n"
    project(tmp_path, {"second.py": SECOND, HELPER: mine})
    assert not [finding for finding in migrate_to_any(tmp_path).findings if finding.rule == "engine.helper"]


# ---- what viaduct wrote


def test_it_grows_with_the_project_and_keeps_what_it_has(tmp_path: Path) -> None:
    write_in_place(migrate_to_any(make_migrated_project(tmp_path)))
    text = (tmp_path / HELPER).read_text()
    assert text == helper_text.render_helper(["device", "autocast", "empty_cache"])
    done = python(f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); runpy.run_path('{tmp_path}/second.py')")
    assert done.stdout == "done\n", done.stderr
    before = contents(tmp_path)
    outcome = migrate_to_any(tmp_path)
    assert not outcome.files_to_write
    assert not outcome.helper_files
    write_in_place(outcome)
    assert contents(tmp_path) == before


def test_a_script_that_goes_leaves_its_share(tmp_path: Path) -> None:
    write_in_place(migrate_to_any(make_migrated_project(tmp_path)))
    before = (tmp_path / HELPER).read_bytes()
    (tmp_path / "second.py").unlink()
    project(tmp_path, {"third.py": FIRST})
    write_in_place(migrate_to_any(tmp_path))
    assert (tmp_path / HELPER).read_bytes() == before


def test_what_its_owner_asks_of_it_by_hand_comes_too(tmp_path: Path) -> None:
    write_in_place(migrate_to_any(project(tmp_path, {"first.py": FIRST})))
    (tmp_path / "first.py").write_text((tmp_path / "first.py").read_text() + "print(accelerator.backend())\n")
    outcome = migrate_to_any(tmp_path)
    assert [file.path for file in outcome.files_to_write] == [HELPER]
    write_in_place(outcome)
    assert "def backend" in (tmp_path / HELPER).read_text()


def test_patch_folder_and_reports_show_what_it_gets(tmp_path: Path) -> None:
    folder = make_migrated_project(tmp_path / "project")
    (folder / HELPER).chmod(0o444)
    words = ["--json", str(tmp_path / "all.json"), "--report", str(tmp_path / "page.html")]
    done = viaduct("migrate", ".", "--to", "any", *words, cwd=folder)
    assert f"{HELPER} (extended)" in done.stdout
    record = json.loads((tmp_path / "all.json").read_text())
    assert [(addition["path"], addition["state"]) for addition in record["added"]] == [(HELPER, "extended")]
    assert HELPER not in [finding["path"] for finding in record["files"]]
    write_out(migrate_to_any(folder), tmp_path / "out", {})
    (folder / HELPER).chmod(0o644)
    patch = done.stdout.partition("\nChanged")[0]
    subprocess.run(["git", "apply", "-p0", "-"], input=patch, text=True, cwd=folder, check=True)
    assert contents(folder) == contents(tmp_path / "out")
    assert "+    def autocast" in patch
    assert "-    def device" not in patch


def test_windows_line_ends_are_no_change_and_stay(tmp_path: Path) -> None:
    folder = make_migrated_project(tmp_path)
    (folder / HELPER).write_bytes((folder / HELPER).read_bytes().replace(b"\n", b"\r\n"))
    write_in_place(migrate_to_any(folder))
    data = (folder / HELPER).read_bytes()
    assert b"def autocast" in data
    assert data.count(b"\n") == data.count(b"\r\n")


def test_one_that_got_lost_comes_back(tmp_path: Path) -> None:
    write_in_place(migrate_to_any(project(tmp_path, {"first.py": FIRST})))
    (tmp_path / HELPER).unlink()
    assert [file.path for file in migrate_to_any(tmp_path).files_to_write] == [HELPER]


def test_one_that_was_moved_does_not_come_twice(tmp_path: Path) -> None:
    write_in_place(migrate_to_any(project(tmp_path, {"first.py": FIRST})))
    (tmp_path / "lib").mkdir()
    (tmp_path / HELPER).rename(tmp_path / "lib" / HELPER)
    assert not migrate_to_any(tmp_path).files_to_write


# ---- in a notebook
