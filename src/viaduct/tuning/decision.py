"""Decision for one operator, as Ascend's auto-tune makes it: what is written to the bank, and the status.

REPEAT_TUNE is the environment variable that asks for another search of operators that the bank knows.

the bank has an entry, REPEAT_TUNE is off    not searched                                       hit, reserved
the bank has an entry, REPEAT_TUNE is on     a larger gain was found: replace the entry         hit, update
                                             otherwise: keep it                                 hit, reserved
the bank has no entry                        store the result; that may be the default,         append
                                             so that the next run does not search again
                                             no result (time was over, machine busy)            none
"""

from __future__ import annotations

from dataclasses import dataclass

from viaduct.tuning.bank import Entry

MOST_OTHER_LOAD = 0.1
"""Share of the processors used by other programs above which a machine counts as busy. Thread counts are not compared
on a busy machine: waiting for threads that other programs hold up makes a single thread look best."""


@dataclass(frozen=True)
class Status:
    """What happened to an operator's entry in the bank, by the names of the result file."""

    bank_append: bool = False
    bank_hit: bool = False
    bank_reserved: bool = False
    bank_update: bool = False


def decide(hit: Entry | None, result: Entry | None) -> tuple[Entry | None, Status]:
    """Return the entry to store (None: store nothing) and the status.

    `hit` is the entry of a bank, `result` that of a search; None if there is none.
    """
    if hit is None:
        return result, Status(bank_append=result is not None)
    if result is not None and result.gain > hit.gain and not result.is_default:
        return result, Status(bank_hit=True, bank_update=True)
    return None, Status(bank_hit=True, bank_reserved=True)
