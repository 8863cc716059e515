"""Decide what is written to the bank for one operator, and its status, as Ascend's auto-tune does.

The environment variable REPEAT_TUNE requests another search of operators with an entry in the bank. The last column has
the status: the fields of `Status` that are True.

the bank has an entry, REPEAT_TUNE is off    not searched                                       hit, reserved
the bank has an entry, REPEAT_TUNE is on     a larger gain was found: replace the entry         hit, update
                                             otherwise: keep it                                 hit, reserved
the bank has no entry                        store the result, even if it is the default, so    append
                                             that the next run does not search again
                                             no result (out of time, or machine busy)           none
"""

from __future__ import annotations

from dataclasses import dataclass

from viaduct.tuning.bank import Entry

MAX_OTHER_LOAD = 0.1
"""A machine is busy if other programs use a larger share of the processors. Thread counts are not compared on a busy
machine, where threads wait for each other and a single thread seems fastest."""


@dataclass(frozen=True)
class Status:
    """Change of an operator's entry in the bank, with the field names of the result file."""

    bank_append: bool = False
    bank_hit: bool = False
    bank_reserved: bool = False
    bank_update: bool = False


def decide(hit: Entry | None, result: Entry | None) -> tuple[Entry | None, Status]:
    """Return the entry to store, or None, and the status, given the bank's entry (`hit`) and that of a new search."""
    if hit is None:
        return result, Status(bank_append=result is not None)
    if result is not None and result.gain > hit.gain and not result.is_default:
        return result, Status(bank_hit=True, bank_update=True)
    return None, Status(bank_hit=True, bank_reserved=True)
