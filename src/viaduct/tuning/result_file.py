"""Write tune_result_pid<pid>_<YYYYmmdd>_<HHMMSSmmm>.json, the results of a tuning run for each operator.

Keys and fields are those of Ascend's auto-tune; a key is a list of lists of names, written as text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.atomic_files import write_file
from viaduct.tuning.bank import RESULT_PREFIX

if TYPE_CHECKING:
    from viaduct.tuning.tuner import Outcome


def name_result_file(moment: datetime, pid: int) -> str:
    return f"{RESULT_PREFIX}pid{pid}_{moment:%Y%m%d_%H%M%S}{moment.microsecond // 1000:03d}.json"


def encode_results(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return one record for each module that calls an operator; if it was not searched, only with the status."""
    records: dict[str, Any] = {}
    for outcome in outcomes:
        record: dict[str, Any] = {"status_data": asdict(outcome.status)}
        if outcome.rounds and outcome.default_us:
            best = outcome.search_result.best_us if outcome.search_result else outcome.default_us
            record = {
                "result_data": {"after_tune": round(best), "before_tune": round(outcome.default_us)},
                **record,
                "ticks_best": [f"[{round(us)}, {moment:%Y-%m-%d %H:%M:%S}]" for us, moment in outcome.rounds],
            }
        for name in outcome.operator.names:
            records[str([[name]])] = record
    return records


def write_result_file(folder: Path, outcomes: Sequence[Outcome]) -> Path:
    """Write the result file into a folder; return its path."""
    path = folder / name_result_file(datetime.now(), os.getpid())
    write_file(path, (json.dumps(encode_results(outcomes), indent=1) + "\n").encode())
    return path
