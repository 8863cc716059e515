"""Predictions written as a table, as JSON and as CSV."""

from __future__ import annotations

import io
import json

import pytest

from viaduct.handover.predicting import Prediction, Result
from viaduct.handover.prediction_output import JsonOutput, TableOutput


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_has_a_line_for_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result("photo.jpg", (Prediction("a long name of a class", 0, 0.9), Prediction("b", 1, 0.1)))
    for columns, expected in (
        ("30", "photo.jpg\n   90.00 %  a long name of a class\n   10.00 %  b\n"),
        ("120", "photo.jpg  a long name of a class  90.00 %  b  10.00 %\n"),
    ):
        monkeypatch.setenv("COLUMNS", columns)
        terminal = Terminal()
        TableOutput(terminal).write([result])
        assert terminal.getvalue() == expected


def test_a_document_without_images_is_json() -> None:
    stream = io.StringIO()
    output = JsonOutput({"step": 1}, stream)
    output.write([Result("a", error="why.")])
    output.finish({"passed_over": 0})
    assert json.loads(stream.getvalue()) == {
        "step": 1,
        "images": [],
        "errors": [{"file": "a", "reason": "why."}],
        "passed_over": 0,
    }
