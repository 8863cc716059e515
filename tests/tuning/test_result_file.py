"""tune_result_pid….json: name, fields and statuses as in Ascend's auto-tune."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

from tuning.bank_entries import make_entry
from tuning.in_process import FakeWorker, make_operator, make_tuner
from viaduct.tuning.result_file import Status, decide_status, name_result_file, write_result_file


def test_its_name_has_process_date_and_milliseconds() -> None:
    moment = datetime(2020, 8, 8, 18, 3, 38, 70_500)
    assert name_result_file(moment, 4711) == "tune_result_pid4711_20200808_180338070.json"


def test_every_operator_has_its_status_and_searched_ones_their_times(tmp_path: Path) -> None:
    tuner = make_tuner(tmp_path, FakeWorker(lambda point: 0.5 if point["tile"] == 8 else 1.0))
    searched = tuner.tune(make_operator("a"), 100.0, 60.0)
    known = tuner.tune(make_operator("a"), 100.0, 60.0)
    known.operator = make_operator("b")
    file = write_result_file(tmp_path, [searched, known])
    found = json.loads(file.read_text())
    record = found["[['layer.a']]"]
    assert record["result_data"] == {"after_tune": 50, "before_tune": 100}
    assert record["status_data"] == {
        "bank_append": True,
        "bank_hit": False,
        "bank_reserved": False,
        "bank_update": False,
    }
    assert all(re.fullmatch(r"\[\d+, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]", tick) for tick in record["ticks_best"])
    assert found["[['layer.b']]"] == {
        "status_data": {"bank_append": False, "bank_hit": True, "bank_reserved": True, "bank_update": False}
    }
    assert file not in tuner.bank.list_files()


SLOWER, FASTER = make_entry("a", 100, 90), make_entry("a", 100, 50)
DEFAULT_IS_BEST = make_entry("a", 100, 100, choice={"layout": "as_given"})


def test_nothing_is_stored_without_a_search_or_a_larger_gain() -> None:
    kept = None, Status(bank_hit=True, bank_reserved=True)
    assert decide_status(None, None) == (None, Status())
    assert decide_status(SLOWER, None) == kept
    assert decide_status(FASTER, SLOWER) == kept
    assert decide_status(FASTER, FASTER) == kept


def test_a_measured_default_does_not_replace_an_entry() -> None:
    worse_than_default = make_entry("a", 100, 110)
    assert decide_status(worse_than_default, DEFAULT_IS_BEST)[0] is None


def test_a_first_result_is_appended_and_a_better_one_replaces_the_entry() -> None:
    assert decide_status(None, DEFAULT_IS_BEST) == (DEFAULT_IS_BEST, Status(bank_append=True))
    assert decide_status(SLOWER, FASTER) == (FASTER, Status(bank_hit=True, bank_update=True))
