"""Reports of a limit: each line of the user once, as an error or warning by the limit's mode."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from viaduct.errors import BadValue, UnknownName
from viaduct.rehearsal import limits

FIELDS = {"device": "npu", "dtype": "float64"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "record").mkdir()
    monkeypatch.setenv(limits.PROJECT_VARIABLE, str(folder))
    monkeypatch.setenv(limits.RECORD_VARIABLE, str(tmp_path / "record"))
    monkeypatch.setenv(limits.LIMITS_VARIABLE, "error")
    monkeypatch.setattr(limits, "violations", [])
    return folder


def run(folder: Path, source: str, name: str = "train.py") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    exec(compile(source, str(path), "exec"), {"violated": lambda: limits.report_violation("float64", **FIELDS)})


def read_limits(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder.parent / "record" / "limits.jsonl").read_text().splitlines()]


def test_a_limit_that_is_off_does_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(limits.LIMITS_VARIABLE, "error,float64=off")
    run(project, "violated()\n")
    assert limits.violations == []
    assert capsys.readouterr().err == ""


def test_a_package_installed_inside_the_project_is_not_the_users_line(project: Path) -> None:
    inside = project / ".venv" / "lib" / "site-packages"
    run(inside, "def call(f):\n    f()\n", "library.py")
    library: dict[str, object] = {}
    path = inside / "library.py"
    exec(compile(path.read_text(), str(path), "exec"), library)
    source = "\n\ncall(violated)\n"
    (project / "train.py").write_text(source)
    with pytest.raises(limits.CardRefuses):
        exec(
            compile(source, str(project / "train.py"), "exec"),
            {"call": library["call"], "violated": lambda: limits.report_violation("float64", **FIELDS)},
        )
    assert limits.violations[0].place == limits.Line(str(project / "train.py"), 3)


def test_the_card_refuses_with_the_line_of_the_script(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(limits.CardRefuses, match="A float64 tensor is made"):
        run(project, "x = 1\nviolated()  # here\n")
    output = capsys.readouterr().err
    assert "train.py:2" in output
    assert "violated()  # here" in output
    assert "script: A float64 tensor is made on the device." in output
    assert "card: Most operators of the NPU have no float64" in output
    assert "change: Use torch.float32" in output
    assert limits.LIMITS["float64"].reason[0] in output
    recorded = read_limits(project)[0]
    assert recorded["place"] == {"file": str(project / "train.py"), "line": 2}
    assert recorded["what"] == "A float64 tensor is made on the device."
    assert str(recorded["change"]).startswith("Use torch.float32")


def test_a_file_of_the_project_in_another_folder_is_the_users_too(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(limits.PROJECT_VARIABLE, f"{tmp_path / 'nowhere'}:{project}")
    with pytest.raises(limits.CardRefuses):
        run(project, "violated()\n", "deep/net.py")
    assert "viaduct rehearse: deep/net.py:1: limit float64" in capsys.readouterr().err


def test_a_warning_goes_on_and_is_reported_once(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(limits.LIMITS_VARIABLE, "warn")
    run(project, "for _ in range(3):\n    violated()\nviolated()\n")
    assert capsys.readouterr().err.count("limit float64") == 2
    assert len(read_limits(project)) == 2


def test_what_is_found_at_the_end_is_kept_and_raises_nothing(project: Path) -> None:
    limits.report_violation("session-not-closed", at=(str(project / "train.py"), 7), fatal=False)
    assert read_limits(project)[0]["mode"] == "error"


def test_a_violation_is_reported_in_chinese_throughout(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(limits.LANGUAGE_VARIABLE, "zh")
    with pytest.raises(limits.CardRefuses):
        run(project, "violated()\n")
    _, _, *explained = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0].strip() for line in explained] == ["脚本", "加速卡", "修改", "原因"]
    assert not [line for line in explained if re.search(r"(?:\b[A-Za-z]{2,} ){3}", line)]
    assert read_limits(project)[0]["what"] == "在设备上创建了 float64 张量。"


def test_every_limit_has_its_row_in_the_documents() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rehearse.md").read_text()
    assert limits.format_table() in page


@pytest.mark.parametrize("switches", ["strict", "float64=maybe"])
def test_a_mode_that_does_not_exist_is_refused(switches: str) -> None:
    with pytest.raises(BadValue, match="off, warn or error"):
        limits.parse_modes(switches)


def test_a_limit_that_does_not_exist_is_answered_with_the_closest() -> None:
    with pytest.raises(UnknownName, match="drop-remainder"):
        limits.parse_modes("error,drop_remaindr=off")
