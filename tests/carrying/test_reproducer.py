"""Details for a report about a fault of viaduct."""

from __future__ import annotations

from pathlib import Path

import viaduct
from carrying.failed_runs import make_failed_run
from carrying.sample_carries import make_carry_result
from viaduct.carrying.reproducer import CONTEXT_LINES, MAX_TRACEBACK_LINES, extract_traceback, quote_lines, write

OURS = str(Path(viaduct.__file__).parent / "rehearsal" / "torch_stage" / "device.py")


def test_a_mistake_in_the_script_leaves_no_reproducer(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, ["OWN"], "TypeError: unsupported operand type(s) for +: 'int' and 'str'")
    write(make_carry_result(tmp_path, run), tmp_path / "reproducer.txt")
    assert not (tmp_path / "reproducer.txt").exists()


def test_a_fault_of_viaduct_is_written_with_command_versions_lines_and_traceback(tmp_path: Path) -> None:
    failure = "AttributeError: 'Device' object has no attribute 'index'"
    run = make_failed_run(tmp_path, ["OWN", OURS], failure, versions={"torch": "2.4.0"})
    (tmp_path / "train.py").write_text("import torch\nx = 1\ny = torch.device('cuda').index\n")
    write(make_carry_result(tmp_path, run), tmp_path / "reproducer.txt")
    text = (tmp_path / "reproducer.txt").read_text()
    assert "Command: viaduct carry train.py" in text
    assert f"viaduct {viaduct.__version__}, python " in text
    assert "torch 2.4.0" in text
    assert ">     3  y = torch.device('cuda').index" in text
    assert text.endswith(f"{failure}\n")


def test_of_the_script_only_the_lines_around_the_failure_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("".join(f"line {number}\n" for number in range(1, 100)))
    lines = list(quote_lines(tmp_path / "train.py", 50))
    assert len(lines) == 2 * CONTEXT_LINES + 1
    assert [line for line in lines if line.startswith(">")] == [">    50  line 50"]
    assert len(list(quote_lines(tmp_path / "train.py", 1))) == CONTEXT_LINES + 1
    assert not list(quote_lines(tmp_path / "gone.py", 1))


def test_a_form_feed_does_not_end_a_quoted_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1\n\x0c\ny = 1 / 0\n")
    assert list(quote_lines(tmp_path / "train.py", 3))[-1] == ">     3  y = 1 / 0"


def test_the_last_traceback_is_quoted_and_never_a_whole_log(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, ["OWN"], "ValueError: last")
    path = tmp_path / "runs" / "original" / "output.txt"
    path.write_text("Traceback (most recent call last)\nKeyError: first\n" + path.read_text())
    assert extract_traceback(run)[-1] == "ValueError: last"
    assert "KeyError: first" not in extract_traceback(run)
    path.write_text("step\n" * 1000 + "Killed\n")
    assert len(extract_traceback(run)) == MAX_TRACEBACK_LINES
    assert extract_traceback(run)[-1] == "Killed"
