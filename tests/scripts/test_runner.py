"""A script runs here as it would under Python itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from viaduct.errors import BadData, BadValue
from viaduct.scripts.runner import ScriptResult, StopScript, load_script, run_script


def script(folder: Path, text: str, name: str = "job.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def ran(folder: Path, text: str, *arguments: str) -> ScriptResult:
    return run_script(load_script(script(folder, text), arguments))


def test_a_script_gets_name_arguments_and_path_as_under_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "import sys\nprint(__name__, __file__, sys.argv, sys.path[0], sys.modules['__main__'].__dict__ is globals())\n"
    )
    path = script(tmp_path, text)
    expected = subprocess.run([sys.executable, path, "--epochs", "1"], capture_output=True, text=True, check=True)
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    assert run_script(load_script(path, ["--epochs", "1"])) == ScriptResult(0)
    assert capsys.readouterr().out == expected.stdout
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_a_script_imports_modules_of_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(tmp_path, "word = 'beside'\n", "neighbour_of_the_job.py")
    assert ran(tmp_path, "import neighbour_of_the_job\nprint(neighbour_of_the_job.word)\n").code == 0
    assert "beside" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ending", "code"), [("0", 0), ("", 0), ("3", 3), ("'no data'", 1), ("None", 0), ("True", 1), ("256", 0)]
)
def test_exit_codes_are_those_of_the_script(
    tmp_path: Path, ending: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(tmp_path, f"import sys\nsys.exit({ending})\n").code == code
    assert ("no data" in capsys.readouterr().err) == ("no data" in ending)


def test_a_traceback_begins_with_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = ran(tmp_path, "def work():\n    return 1 / 0\nwork()\n")
    shown = capsys.readouterr().err
    assert ended.code == 1
    assert ended.failure.startswith("ZeroDivisionError")
    assert shown.startswith("Traceback")
    assert "runner.py" not in shown
    assert 'job.py", line 3' in shown


def test_a_stop_runs_finally_and_is_not_caught_by_except_exception(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "from viaduct.scripts.runner import StopScript\n"
        "try:\n    try:\n        raise StopScript\n    except Exception:\n        print('caught')\n"
        "finally:\n    print('cleaned')\n"
    )
    assert ran(tmp_path, text) == ScriptResult(0, stopped=True)
    assert capsys.readouterr().out == "cleaned\n"
    assert not issubclass(StopScript, Exception)


def test_an_error_of_a_hook_is_not_the_scripts_failure(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="disk"):
        ran(tmp_path, "from viaduct.errors import BadData\nraise BadData('disk')\n")


def test_a_module_runs_as_with_python_m(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "trainer_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("rate = 0.1\n")
    text = "import sys\nfrom . import parts\nprint(__name__, __package__, parts.rate, sys.argv[1:])\n"
    (package / "__main__.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run_script(load_script("trainer_of_tests", ["x"], module=True)).code == 0
    assert capsys.readouterr().out == "__main__ trainer_of_tests 0.1 ['x']\n"


@pytest.mark.parametrize("name", ["no_such_module_here", "json.decoder.nothing", "sys", "a b"])
def test_a_module_that_does_not_exist_is_named(name: str) -> None:
    with pytest.raises(BadValue, match="no module"):
        load_script(name, module=True)


@pytest.mark.parametrize(("name", "remark"), [("math", "has no Python source"), ("email", "without __main__")])
def test_a_module_that_cannot_be_run_has_the_right_reason(name: str, remark: str) -> None:
    with pytest.raises(BadValue, match=remark):
        load_script(name, module=True)


def test_a_script_that_does_not_exist_is_named_with_its_neighbours(tmp_path: Path) -> None:
    script(tmp_path, "", "train.py")
    with pytest.raises(BadValue, match=r"no script .*trian[\s\S]*train\.py"):
        load_script(str(tmp_path / "trian.py"))


@pytest.mark.parametrize("content", [b"def broken(:\n", b"\x7fELF\x00\x01", b"\xff\xfe\x00"])
def test_what_is_not_python_is_refused_before_it_runs(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "job.py").write_bytes(content)
    with pytest.raises(BadValue, match="not Python"):
        load_script(str(tmp_path / "job.py"))
