"""The book's decision for one operator: use the bank's choice, or search, and what is written then.

hit and not repeated        use it                                                       hit, reserved
hit and repeated            search; better than what the banks have?   yes: update       hit, update
                                                                       no: keep          hit, reserved
miss                        search; better than the default?           yes: store it     append
                                                                       no: store the default, so that the next
                                                                           run does not search again   append
                            search without a result (time was over, machine busy): nothing is stored, no status
"""

from __future__ import annotations

from dataclasses import dataclass

from viaduct.tuning.bank import Entry

MOST_OTHERS = 0.1
"""Share of the processors used by other programs above which a machine counts as busy. Thread counts are not compared
on a busy machine: waiting for threads that other programs hold up makes a single thread look best."""


@dataclass(frozen=True)
class Status:
    """Change of an operator's record, as the result file states it."""

    bank_append: bool = False
    bank_hit: bool = False
    bank_reserved: bool = False
    bank_update: bool = False


def must_search(hit: Entry | None, repeat: bool) -> bool:
    """Return True if an operator must be searched: the banks have no entry of it, or REPEAT_TUNE is set."""
    return hit is None or repeat


def decide(hit: Entry | None, found: Entry | None) -> tuple[Entry | None, Status]:
    """Return the entry to store (None: store nothing) and the status.

    `hit` is the entry of a bank, `found` the result of a search; None if there is none.
    """
    if hit is None:
        return found, Status(bank_append=found is not None)
    if found is not None and found.gain > hit.gain and not found.is_default:
        return found, Status(bank_hit=True, bank_update=True)
    return None, Status(bank_hit=True, bank_reserved=True)
