"""Status of each operator after a tuning run, and the result file of the run, both as in Ascend's auto-tune.

docs/tune.md lists the cases. The default is stored, too, if no better variant was found, so that the next run does not
search again. An operator without a result (out of time, or machine busy) has no status.

The file is tune_result_pid<pid>_<YYYYmmdd>_<HHMMSSmmm>.json. Its keys are lists of lists of names, written as text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.atomic_files import write_file
from viaduct.tuning.bank import RESULT_PREFIX, Entry

if TYPE_CHECKING:
    from viaduct.tuning.tuner import Outcome


@dataclass(frozen=True)
class Status:
    """Change of an operator's entry in the bank, with the field names of the result file."""

    bank_append: bool = False
    bank_hit: bool = False
    bank_reserved: bool = False
    bank_update: bool = False


def decide_status(earlier: Entry | None, result: Entry | None) -> tuple[Entry | None, Status]:
    """Return the entry to store (or None) and the status.

    `earlier` is the operator's entry in the bank, `result` the entry of a new search.
    """
    if earlier is None:
        return result, Status(bank_append=result is not None)
    if result is not None and result.gain > earlier.gain and not result.is_default:
        return result, Status(bank_hit=True, bank_update=True)
    return None, Status(bank_hit=True, bank_reserved=True)


def name_result_file(moment: datetime, pid: int) -> str:
    return f"{RESULT_PREFIX}pid{pid}_{moment:%Y%m%d_%H%M%S}{moment.microsecond // 1000:03d}.json"


def encode_results(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return a record for each module that calls an operator; the record of an operator not searched is its status."""
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
