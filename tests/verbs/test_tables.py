"""Tables lose nothing on their way into a pipe, however narrow the terminal beside it is."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from cluster.rank_tables import table_1
from viaduct import cli
from viaduct.benching import table as bench_table
from viaduct.benching.record import COLUMNS
from viaduct.terminal import make_number_columns, print_table
from viaduct.verbs import data, evaluate

Call = Callable[..., str]
LONG = "a_pipeline_or_network_with_a_name_that_no_narrow_terminal_has_room_for"


@pytest.fixture(params=[None, "40"], ids=["COLUMNS unset", "COLUMNS=40"])
def piped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return the output of a command or a printing function in a pipe, where nothing is cut or coloured."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    if request.param:
        monkeypatch.setenv("COLUMNS", request.param)
    else:
        monkeypatch.delenv("COLUMNS", raising=False)

    def call(*words: Any) -> str:
        if callable(words[0]):
            words[0](*words[1:])
        else:
            monkeypatch.setattr("sys.argv", ["viaduct", *map(str, words)])
            with pytest.raises(SystemExit):
                cli.main()
        text = capsys.readouterr().out
        assert "…" not in text
        assert "\x1b" not in text
        return text

    return call


def row_with(text: str, name: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if name in line)


def test_recipes_keep_their_expectations(piped: Call) -> None:
    row = row_with(piped("train", "--list"), "resnet56_cifar10")
    assert row[-3:] == ["93", "%", "top-1"]


def test_networks_keep_their_counts(piped: Call) -> None:
    assert {"25,559,081", "4,089,186,304"} <= set(row_with(piped("models"), "resnet50_v1"))


def test_weights_keep_their_names_and_shapes(piped: Call, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({LONG: np.zeros((2048, 512, 3, 1), np.float32)}, tmp_path / "w.safetensors")
    assert row_with(piped("weights", "show", tmp_path / "w.safetensors"), LONG) == [LONG, "2048x512x3x1", "float32"]


def test_a_comparison_keeps_its_measures_and_reasons(piped: Call, tmp_path: Path) -> None:
    values = np.linspace(0, 1, 64, dtype=np.float32)
    for side, array in (("left", values * 1.234567), ("right", values)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / f"{LONG}.npy", array)
    row = row_with(piped("compare", tmp_path / "left", tmp_path / "right"), LONG)
    assert row[0] == "bad"
    assert "0.234567" in row
    assert len(row) > 6  # and why


def test_an_evaluation_keeps_its_losses(piped: Call) -> None:
    score = {"top1": 0.33333, "top5": 1.0, "loss": 4.685e8, "precision": 0.25, "recall": 0.5, "f1": 0.125}
    rows = [{"step": 1_000_000 + step, "epoch": 10.0, "count": 50_000, **score} for step in range(3)]
    rows = [{**row, "checkpoint_time": "2026-01-02 03:04:05"} for row in rows]
    row = row_with(piped(evaluate.print_evaluations, rows), "1000002")
    figures = ["1000002", "10.0", "33.33", "100", "4.685e+08", "0.25", "0.5", "0.125", "50000"]
    assert row == [*figures, "2026-01-02", "03:04:05"]


def test_a_measurement_keeps_its_figures(piped: Call) -> None:
    figures = ["8,739.123", "29.300 ms", "1.2 %", "1.29 x", "41.25 GiB", "3.21 s", "71.5 %", "42.0 %"]
    time = {"ms": {"convolution": 12345.678}, "host_gaps_ms": 0.0, "data_wait_ms": 0.0}
    ours = {"variant": LONG, "time": time, "ms_per_step": 20000.0}
    record = {
        **{"title": "t", "machine": {"description": "m"}, "precision": "bf16", "data": "synthetic", "notes": []},
        **{"rows": [dict(zip(COLUMNS, [LONG, *figures], strict=True))], "peers": [ours], "left_out": {}, **ours},
        **{"ceilings": {"bandwidth_bytes_per_s": 1e12, "matrix_flop_per_s": 1e15}, "counted": {}},
    }
    text = piped(bench_table.print_record, record, None)
    assert " ".join(row_with(text, "8,739.123")) == " ".join([LONG, *figures])
    assert row_with(text, "12,345.68").count("12,345.68") == 2


def test_the_input_pipelines_keep_theirs(piped: Call) -> None:
    row = {"pipeline": LONG, "images_per_s": 12345.6, "turns_images_per_s": [12345.6] * 9, "memory_mib": 1234.5}
    result = {"rows": [{**row, "ratio_to_tf_data": 1.901}], "decoder": "d", "stages_ms": {}, "left_out": {}}
    assert row_with(piped(data.show_bench, result), LONG) == [LONG, *["12,346"] * 10, "1,234", "1.90"]


def test_a_rank_table_keeps_every_address(piped: Call, tmp_path: Path) -> None:
    for servers in (2, 20):
        table = table_1(servers, list(range(8)))
        (tmp_path / "r.json").write_text(json.dumps(table))
        text = piped("ranktable", "show", tmp_path / "r.json")
        addresses = re.findall(r'"device_ip": "([^"]+)"', json.dumps(table))
        assert all(re.search(rf"{re.escape(address)}\b", text) for address in addresses[:: 1 if servers == 2 else 8])


def test_devices_are_described_whole(piped: Call) -> None:
    assert re.search(r"fp32( bf16)?( fp16)? ", piped("devices"))


def on_a_terminal(width: int) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=width)
    table = Table("name", *make_number_columns("loss", "parameters"), "why", box=None)
    table.add_row(LONG, "4.685e+08", "25,559,081", "a reason of several words")
    print_table(table, console)
    assert console.width == width
    return out.getvalue()


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200])
def test_on_a_terminal_words_fold_and_figures_stay_whole(width: int) -> None:
    text = on_a_terminal(width)
    assert "…" not in text
    assert {"4.685e+08", "25,559,081"} <= set(text.split())
    assert LONG in "".join(cell for line in text.splitlines() for cell in line.split()[:1])


def test_a_table_that_fits_is_as_wide_as_the_terminal_at_most() -> None:
    assert max(len(line.rstrip()) for line in on_a_terminal(80).splitlines()) <= 80
