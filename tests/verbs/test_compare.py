"""viaduct compare, from the command line to the folder it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from comparison import foreign_dumps
from viaduct.errors import BadValue, ViaductError
from viaduct.verbs import compare


def dump_of(folder: Path, **arrays: np.ndarray[Any, Any]) -> Path:
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    arrays = {name: draw.standard_normal((4, 6)).astype(np.float32) for name in ("a", "b", "c")}
    return dump_of(tmp_path / "right", **arrays)


def change_dump(truth: Path, name: str = "left", **arrays: np.ndarray[Any, Any]) -> Path:
    held = {path.stem: np.load(path) for path in truth.glob("*.npy")}
    return dump_of(truth.parent / name, **{**held, **arrays})


def run(left: Path, right: Path, **flags: Any) -> int:
    """The exit code, as the shell would see it."""
    try:
        compare.main(left, right, **flags)
    except typer.Exit as done:
        return done.exit_code
    except ViaductError as error:
        return error.exit_code
    raise AssertionError("the verb did not end with an exit code")


def summary_in(out: Path) -> dict[str, Any]:
    record = json.loads((out / "summary.json").read_text())
    assert isinstance(record, dict)
    return record


def test_equal_dumps_end_with_0(truth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(change_dump(truth), truth) == 0
    assert "within their thresholds" in capsys.readouterr().out


def test_a_difference_ends_with_1_and_leaves_a_folder(truth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = truth.parent / "drift"
    left = change_dump(truth, b=np.load(truth / "b.npy") * 2)
    assert run(left, truth, out=out, explain=True) == 1
    assert sorted(path.name for path in out.iterdir()) == ["drift.csv", "report.html", "summary.json"]
    record = summary_in(out)
    assert record["origin"] == "b"
    assert record["cause"] == "wrong scale"
    assert record["counts"] == {"good": 2, "bad": 1, "flag": 0, "refused": 0, "new": 0}
    output = capsys.readouterr().out
    assert "likely cause" in output
    assert "what to try" in output


def test_what_could_not_be_compared_is_reported_where_all_else_is_good(
    truth: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = change_dump(truth)
    (left / "b.npy").write_bytes(b"cut")
    (left / "c.npy").unlink()
    assert run(left, truth) == 1
    output = capsys.readouterr().out
    assert "The one compared tensor is within its thresholds, but 2 could not be compared" in output
    assert "(exit code 1); the first: left: b.npy is not a .npy file" in output


def test_two_sides_of_nan_alone_are_not_called_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "n.npy", np.full((3, 4), np.nan, np.float32))
    assert run(tmp_path / "n.npy", tmp_path / "n.npy") == 2
    output = capsys.readouterr().out
    assert (
        "Nothing could be compared; the first: no finite element is left to compare: both sides have 12 NaN" in output
    )
    assert "is within" not in output


@pytest.mark.parametrize("flag", ["cosine", "euclid", "max_abs"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), -2.0])
def test_a_meaningless_threshold_is_refused(truth: Path, flag: str, value: float) -> None:
    assert run(truth, truth, **{flag: value}) == 2


def test_json_is_the_summary_and_nothing_else(truth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(change_dump(truth), truth, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "good"


def test_a_missing_tensor_is_never_a_pass(truth: Path) -> None:
    left = change_dump(truth)
    (left / "b.npy").unlink()
    out = truth.parent / "drift"
    assert run(left, truth, out=out) == 1
    assert summary_in(out)["counts"]["refused"] == 1


def test_a_truncated_file_is_named_and_the_rest_compared(truth: Path) -> None:
    left = change_dump(truth)
    (left / "b.npy").write_bytes((left / "b.npy").read_bytes()[:100])
    out = truth.parent / "drift"
    assert run(left, truth, out=out) == 1
    assert summary_in(out)["counts"] == {"good": 2, "bad": 0, "flag": 0, "refused": 1, "new": 0}
    assert "b.npy" in (out / "drift.csv").read_text()


def test_nothing_comparable_ends_with_2(truth: Path, tmp_path: Path) -> None:
    left = dump_of(tmp_path / "other", **{name: np.array([{}], dtype=object) for name in ("a", "b", "c")})
    assert run(left, truth) == 2


def test_flags_replace_the_default_thresholds(truth: Path) -> None:
    left = change_dump(truth, b=np.load(truth / "b.npy") * np.float32(1.01))
    assert run(left, truth) == 1
    assert run(left, truth, cosine=0.99, euclid=0.1, max_abs=5.0) == 0
    assert run(left, truth, euclid=0.001) == 1


@pytest.mark.parametrize(
    "flags",
    [
        *({"cosine": 1.5}, {"euclid": -0.1}, {"max_abs": float("nan")}),
        *({"steps": "x"}, {"steps": "7"}, {"only": "nothing.*"}),
        *({"graph": Path("absent.txt")}, {"rules": Path("absent.json")}),
    ],
)
def test_bad_usage_ends_with_2(truth: Path, flags: dict[str, Any]) -> None:
    assert run(change_dump(truth), truth, **flags) == 2


def test_only_compares_what_is_called_so(truth: Path) -> None:
    left, out = change_dump(truth, b=np.load(truth / "b.npy") * 2), truth.parent / "drift"
    assert run(left, truth, only="a,c", out=out) == 0
    assert summary_in(out)["counts"]["good"] == 2


def test_a_folder_that_holds_something_else_is_refused_before_any_work(truth: Path) -> None:
    out = truth.parent / "papers"
    out.mkdir()
    (out / "thesis.txt").write_text("ten years")
    with pytest.raises(BadValue, match="nor an earlier comparison"):
        compare.main(change_dump(truth), truth, out=out)
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    assert run(truth.parent / "left", truth, out=out, force=True) == 0
    assert (out / "thesis.txt").read_text() == "ten years"
    assert summary_in(out)["verdict"] == "good"


def test_an_earlier_comparison_is_replaced(truth: Path) -> None:
    out = truth.parent / "drift"
    assert run(change_dump(truth, "bad", b=np.zeros((4, 6), np.float32)), truth, out=out) == 1
    assert run(change_dump(truth), truth, out=out) == 0
    assert summary_in(out)["verdict"] == "good"
    assert not [path for path in truth.parent.iterdir() if "draft" in path.name]


def test_a_page_that_cannot_be_made_leaves_nothing_behind(truth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("viaduct.comparison.output.write_report", fail)
    left, out = change_dump(truth), truth.parent / "drift"
    before = sorted(truth.parent.iterdir())
    with pytest.raises(ViaductError, match="disk is full"):
        compare.main(left, truth, out=out)
    assert sorted(truth.parent.iterdir()) == before


def test_paths_that_do_not_exist_end_with_2(truth: Path) -> None:
    assert run(truth.parent / "absent", truth) == 2
    assert run(truth, truth.parent / "absent") == 2


def metrics(folder: Path, shift: float) -> Path:
    folder.mkdir()
    draw = np.random.default_rng(len(folder.name))
    losses = [float(loss) for loss in 2 + shift + 0.05 * draw.standard_normal(200)]
    line = {"kind": "log", "step": 200, "loss": losses[-1], "losses": losses}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    return folder


def test_runs_without_dumps_are_compared_by_their_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right, out = metrics(tmp_path / "npu", 0.5), metrics(tmp_path / "cuda", 0.0), tmp_path / "drift"
    assert run(left, right, out=out) == 1
    assert "part at step 1:" in capsys.readouterr().out
    assert summary_in(out)["curves"]["parting"]["step"] == 1
    assert (out / "report.html").is_file()
    assert run(metrics(tmp_path / "again", 0.0), right) == 0


def test_comparing_needs_no_torch(truth: Path) -> None:
    left = change_dump(truth, b=np.load(truth / "b.npy") * 2)
    words = ["-X", "importtime", "-m", "viaduct", "compare", str(left), str(truth), "--out", str(truth.parent / "d")]
    answer = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=dict(os.environ))
    assert answer.returncode == 1
    assert " torch\n" not in answer.stderr
    assert "| numpy" in answer.stderr or " numpy\n" in answer.stderr


def fused_pair(folder: Path, *faulty: str) -> tuple[Path, Path, Path]:
    """An NPU dump, the truth from tfdbg, and the compiled graph; the faulty operators and all behind them are off."""
    ops, truth = foreign_dumps.fused_network()
    off = False
    for op in ops:
        off = off or op.name in faulty
        noise = np.random.default_rng(5)
        op.dump = {
            slot: value + (0.5 * noise.standard_normal(value.shape)).astype(value.dtype)
            if off and (op.name not in faulty or slot.startswith("output"))
            else value
            for slot, value in op.dump.items()
        }
    graph = folder / "ge_proto_00292_Build.txt"
    graph.write_text(foreign_dumps.as_text(ops))
    return foreign_dumps.npu(folder / "npu", ops), foreign_dumps.tfdbg(folder / "tfdbg", truth), graph


def test_a_fused_graph_on_an_accelerator_agrees_with_the_original(tmp_path: Path) -> None:
    left, right, graph = fused_pair(tmp_path)
    assert run(left, right, graph=graph, out=tmp_path / "drift", cosine=0.99, euclid=0.1, max_abs=5.0) == 0
    found = summary_in(tmp_path / "drift")["counts"]
    assert found["bad"] == found["refused"] == 0
    assert found["good"] >= 10
    assert found["new"] >= 1


def test_a_fault_in_a_fused_operator_is_the_origin(tmp_path: Path) -> None:
    left, right, graph = fused_pair(tmp_path, "conv1/Conv2Dconv1/bnconv1/relu")
    assert run(left, right, graph=graph, out=tmp_path / "drift") == 1
    origin = summary_in(tmp_path / "drift")["origin"]
    assert origin is not None
    assert "conv1" in origin
    assert "follows from" in (tmp_path / "drift" / "drift.csv").read_text()


def test_swapped_sides_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right, _ = fused_pair(tmp_path)
    run(right, left)
    assert "belongs on the left" in capsys.readouterr().err


def test_control_characters_in_a_name_from_a_dump_are_escaped(truth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, values = "x\x1b[31m[red]y", np.ones((4, 6), np.float32)
    np.save(truth / f"{name}.npy", values)
    run(change_dump(truth, **{name: values * 2}), truth, explain=True)
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert "[red]y" in output


def test_dumps_of_modules_and_of_operators_are_refused_unless_rules_say_what_belongs_together(tmp_path: Path) -> None:
    from comparison.networks import train

    for level in ("module", "op"):
        train(tmp_path / level, length=1, level=level)
    with pytest.raises(BadValue, match="holds operators"):
        compare.main(tmp_path / "op", tmp_path / "module")
    (tmp_path / "rules.json").write_text('{"map": {"conv.convolution.0": "conv"}}')
    assert run(tmp_path / "op", tmp_path / "module", rules=tmp_path / "rules.json") == 1
