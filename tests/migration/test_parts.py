"""A large project is migrated in parts: which files stay together, and that the parts are no loss."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from viaduct.errors import OutOfMemory
from viaduct.migration import parts, run
from viaduct.migration.options import Options
from viaduct.migration.parts import Part, find_imports, split_parts
from viaduct.migration.run import migrate_project

TF = "import tensorflow as tf\n"
DATA = f"{TF}def load():\n    return tf.data.Dataset.range(3)\n"
TRAIN = f"{TF}from data import load\nds = load()\nds = ds.batch(8)\n"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MIN_SPLIT_BYTES", 0)
    monkeypatch.setattr(parts, "MAX_PART_BYTES", 1500)
    monkeypatch.setattr(parts, "MAX_PIECE_BYTES", 700)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def texts(**files: str) -> dict[str, bytes]:
    return {f"{name.replace('__', '/')}.py": text.encode() for name, text in files.items()}


def test_a_project_of_usual_size_is_one_part() -> None:
    assert split_parts(texts(a="import b\n", b="", c__d="")) == [Part(("a.py", "b.py", "c/d.py"))]


@pytest.mark.parametrize(
    ("importer", "text", "imported"),
    [
        ("zoo__a__train", "import data\n", "zoo/a/data.py"),
        ("zoo__a__train", "from data import load, \\\n    save\n", "zoo/a/data.py"),
        ("zoo__a__train", "import os, data as d\n", "zoo/a/data.py"),
        ("zoo__a__sub__train", "from ..data import load\n", "zoo/a/data.py"),
        ("zoo__a__sub__train", "from .. import data\n", "zoo/a/data.py"),
        ("zoo__a__sub__train", "def f():\n    from data import load\n", "zoo/a/data.py"),
        ("zoo__a__train", "from a import (\n    other,\n    data,\n)\n", "zoo/a/data.py"),
        ("main", "from zoo.a.data import load\n", "zoo/a/data.py"),
        ("main", "import a.data\n", "zoo/a/data.py"),
        ("main", "from data import *\n", None),  # of which one nobody knows
        ("zoo__a__train", "import os\n# import data\n", None),
    ],
)
def test_an_import_is_matched_with_the_file_that_is_meant(importer: str, text: str, imported: str | None) -> None:
    files = texts(**{importer: text}, zoo__a__data="", zoo__b__data="")
    path = f"{importer.replace('__', '/')}.py"
    assert find_imports(files)[path] == ({imported} if imported else set())


@pytest.mark.usefixtures("small_parts")
def test_files_that_import_each_other_stay_together_also_in_a_circle() -> None:
    filler = "#" * 690
    files = texts(x__a="import b\n", x__b="import c\n", x__c="import a\n", y__a=filler, z__a=filler)
    members = [part.members for part in split_parts(files)]
    assert sorted(map(sorted, members)) == [["x/a.py", "x/b.py", "x/c.py"], ["y/a.py"], ["z/a.py"]]
    assert all(not part.around for part in split_parts(files))


@pytest.mark.usefixtures("small_parts")
def test_every_file_is_in_one_part_and_no_part_is_large() -> None:
    files = {f"p{n % 7}/q{n % 3}/m{n}.py": f"import m{n * 7 % 90}\n".encode() + b"#" * (n * 5) for n in range(90)}
    files["big/alone.py"] = b"#" * 5000
    found = split_parts(files)
    assert sorted(path for part in found for path in part.members) == sorted(files)
    for part in found:
        sizes = [len(files[path]) for path in (*part.members, *part.around)]
        assert sum(sizes) <= 1500 or len(part.members) == 1


@pytest.mark.usefixtures("small_parts")
def test_a_piece_of_a_large_part_knows_what_its_files_import_and_who_imports_them() -> None:
    big = "import common\n" + "#" * 650
    files = texts(a=big, b=big, c="import a\n", common="#" * 20, d=big)
    around = {part.members: part.around for part in split_parts(files)}
    assert around == {
        ("a.py",): ("common.py", "c.py"),
        ("b.py", "c.py", "common.py"): ("a.py",),
        ("d.py",): ("common.py",),
    }


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("jobs", [1, 2])
def test_parts_are_migrated_as_the_whole_would_be(tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        filler = "# text\n" * (number * 8)
        write(tmp_path / f"zoo/p{number}", {"data.py": DATA, "train.py": TRAIN + filler, "none.py": "x = 1\n"})
    seen: list[tuple[int, int]] = []
    outcome = migrate_project(tmp_path, Options(), jobs, progress=lambda done, total: seen.append((done, total)))
    assert len(split_parts({file.path: (tmp_path / file.path).read_bytes() for file in outcome.files})) > 3
    assert seen[-1] == (36, 36)
    assert [file.path for file in outcome.changed_files] == [f"zoo/p{n}/train.py" for n in sorted(range(12), key=str)]
    monkeypatch.setattr(parts, "MIN_SPLIT_BYTES", 10**9)
    result = migrate_project(tmp_path, Options(), 1)
    assert [(file.path, file.after, file.findings, file.places) for file in outcome.files] == [
        (file.path, file.after, file.findings, file.places) for file in result.files
    ]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("stage", ["survey", "rewrite"])
def test_a_file_that_takes_too_long_is_named_and_left_out(
    tmp_path: Path, jobs: int, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MAX_FILE_SECONDS", 0.3)
    monkeypatch.setattr(run, "MIN_SURVEY_BYTES_A_SECOND", 1e6)
    monkeypatch.setattr(run, "MIN_PARALLEL_BYTES", 0)
    migrate, survey = run.migrate_bytes, run.survey

    def spin(path: str) -> None:
        while path.endswith("slow.py"):
            pass

    def slow_migrate(path: str, *more: object) -> object:
        spin(path)
        return migrate(path, *more)  # type: ignore[arg-type]

    def slow_survey(files: object) -> object:
        listed = list(files)  # type: ignore[call-overload]
        for path, _ in listed:
            spin(path)
        return survey(listed)

    monkeypatch.setattr(run, *(("survey", slow_survey) if stage == "survey" else ("migrate_bytes", slow_migrate)))
    write(tmp_path, {"data.py": DATA, "train.py": TRAIN, "slow.py": f"{TF}x = 1\n"})
    outcome = migrate_project(tmp_path, Options(), jobs)
    assert [file.path for file in outcome.changed_files] == ["train.py"]
    (slow,) = outcome.unread
    assert slow.path == "slow.py"
    assert "longer than the 0.3 s" in slow.unread_reason
    assert [finding.status for finding in outcome.by_path["slow.py"].findings] == ["unresolved"]


def test_a_worker_that_is_killed_ends_the_migration_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MIN_PARALLEL_BYTES", 0)
    parent = os.getpid()

    def die(*_: object) -> None:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(run, "migrate_bytes", die)
    write(tmp_path, {"data.py": DATA, "train.py": TRAIN})
    with pytest.raises(OutOfMemory, match="a process of the migration was killed"):
        migrate_project(tmp_path, Options(), 2)


def test_ctrl_c_ends_it_with_one_line_and_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "project", {"data.py": DATA, "train.py": TRAIN})
    code = """
        import os, signal, sys, time
        from viaduct.migration import run
        run.MIN_PARALLEL_BYTES = 0
        def wait(path, *_):
            if path == "train.py":
                os.killpg(0, signal.SIGINT)
            time.sleep(100)
        run.migrate_bytes = wait
        from viaduct.cli import main
        sys.argv = ["viaduct", "migrate", *sys.argv[1:]]
        main()
    """
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), "project", "--out", "out", "--jobs", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        check=False,
    )
    assert made.returncode == 130
    assert made.stderr.splitlines() == ["viaduct migrate: interrupted; nothing was written."]
    assert [path.name for path in tmp_path.iterdir()] == ["project"]
