"""Fate of an operator's entry in the bank."""

from __future__ import annotations

from tuning.bank_entries import make_entry
from viaduct.tuning.decision import Status, decide

SLOWER, FASTER = make_entry("a", 100, 90), make_entry("a", 100, 50)
DEFAULT_IS_BEST = make_entry("a", 100, 100, choice={"layout": "as_given"})


def test_nothing_is_stored_without_a_search_or_a_larger_gain() -> None:
    kept = None, Status(bank_hit=True, bank_reserved=True)
    assert decide(None, None) == (None, Status())
    assert decide(SLOWER, None) == kept
    assert decide(FASTER, SLOWER) == kept
    assert decide(FASTER, FASTER) == kept


def test_a_measured_default_does_not_replace_an_entry() -> None:
    worse_than_default = make_entry("a", 100, 110)
    assert decide(worse_than_default, DEFAULT_IS_BEST)[0] is None


def test_a_first_result_is_appended_and_a_better_one_replaces_the_entry() -> None:
    assert decide(None, DEFAULT_IS_BEST) == (DEFAULT_IS_BEST, Status(bank_append=True))
    assert decide(SLOWER, FASTER) == (FASTER, Status(bank_hit=True, bank_update=True))
