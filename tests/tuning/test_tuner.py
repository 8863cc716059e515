"""The search of one operator: what is stored in the bank, failures, resuming."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tuning.bank_entries import HERE
from tuning.in_process import FakeWorker, make_operator, make_tuner
from viaduct.tuning.bank import Bank, BankContents, Choice, Entry
from viaduct.tuning.journal import Journal
from viaduct.tuning.result_file import Status
from viaduct.tuning.tuner import Outcome, divide_budget

DEFAULT = {"tile": 1, "fast": False}


def fast_tile(point: Choice) -> float:
    return 0.5 if point == {"tile": 4, "fast": True} else 1.0 if point == DEFAULT else 1.2


def no_gain(point: Choice) -> float:
    return 1.0 if point == DEFAULT else 0.98 if point["tile"] == 2 else 1.3


def tune(folder: Path, worker: FakeWorker, repeat: bool = False, built_in: BankContents | None = None) -> Outcome:
    return make_tuner(folder, worker, repeat, built_in).tune(make_operator(), 100.0, 60.0)


def test_an_unknown_operator_is_searched_and_the_better_variant_stored(tmp_path: Path) -> None:
    outcome = tune(tmp_path, FakeWorker(fast_tile))
    stored = Bank(tmp_path).read(HERE).entries["conv2d x=op"]
    assert dict(stored.choice) == {"tile": 4, "fast": True}
    assert stored.gain == pytest.approx(2.0)
    assert outcome.status == Status(bank_append=True)
    assert not stored.installed


def test_without_gain_above_the_margin_the_default_is_stored_and_not_searched_again(tmp_path: Path) -> None:
    outcome = tune(tmp_path, FakeWorker(no_gain))
    assert Bank(tmp_path).read(HERE).entries["conv2d x=op"].is_default
    assert outcome.status == Status(bank_append=True)
    second = FakeWorker(no_gain)
    assert tune(tmp_path, second).status == Status(bank_hit=True, bank_reserved=True)
    assert second.asked == []


def test_a_known_operator_is_searched_again_only_if_requested_and_replaced_only_if_better(tmp_path: Path) -> None:
    tune(tmp_path, FakeWorker(no_gain))
    assert tune(tmp_path, FakeWorker(fast_tile), repeat=True).status == Status(bank_hit=True, bank_update=True)
    assert tune(tmp_path, FakeWorker(no_gain), repeat=True).status == Status(bank_hit=True, bank_reserved=True)
    assert Bank(tmp_path).read(HERE).entries["conv2d x=op"].gain == pytest.approx(2.0)


def test_the_shipped_bank_is_a_hit_and_never_written(tmp_path: Path) -> None:
    operator = make_operator()
    shipped = BankContents(HERE).with_entry(
        Entry(operator.signature, {"tile": 8, "fast": True}, DEFAULT, 100.0, 70.0, 0.01, installed=True)
    )
    worker = FakeWorker(fast_tile)
    outcome = tune(tmp_path, worker, built_in=shipped)
    assert outcome.status == Status(bank_hit=True, bank_reserved=True)
    assert outcome.entry == shipped.entries["conv2d x=op"]
    assert worker.asked == []
    assert Bank(tmp_path).list_files() == []


def test_variants_that_crash_or_compute_wrong_values_are_stored_and_not_chosen(tmp_path: Path) -> None:
    def ratio(point: Choice) -> float | str:
        if point == {"tile": 4, "fast": True}:
            return "killed by SIGSEGV"
        return "output is off by 3e-01" if point["tile"] == 8 else fast_tile(point)

    tune(tmp_path, FakeWorker(ratio))
    entry = Bank(tmp_path).read(HERE).entries["conv2d x=op"]
    assert entry.is_default
    assert {row.reason for row in entry.failed} == {"killed by SIGSEGV", "wrong values: output is off by 3e-01"}
    again = FakeWorker(ratio)
    tune(tmp_path, again, repeat=True)
    assert {"tile": 4, "fast": True} not in again.asked


def test_an_interrupted_search_measures_nothing_twice(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def ratio(point: Choice) -> float:
        if len(first.asked) > 4:
            raise Killed
        return fast_tile(point)

    first = FakeWorker(ratio)
    with pytest.raises(Killed):
        tune(tmp_path, first)
    second = FakeWorker(fast_tile)
    outcome = tune(tmp_path, second)
    assert dict(outcome.entry.choice if outcome.entry else {}) == {"tile": 4, "fast": True}
    assert not [point for point in first.asked[:4] if point in second.asked]
    assert not Journal.of(Bank(tmp_path), HERE, make_operator().signature).path.exists()


def test_a_budget_that_is_over_stores_nothing(tmp_path: Path) -> None:
    outcome = make_tuner(tmp_path, FakeWorker(fast_tile)).tune(make_operator(), 100.0, -1.0)
    assert outcome.status == Status()
    assert "budget" in outcome.describe()
    assert Bank(tmp_path).read(HERE).entries == {}


def test_a_search_that_ended_early_says_how_many_variants_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("viaduct.tuning.tuner.time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(point: Choice) -> float:
        now[0] += 50.0
        return no_gain(point)

    outcome = make_tuner(tmp_path, FakeWorker(slow)).tune(make_operator(), 100.0, 60.0)
    assert outcome.describe() == "no better variant found among 2 of 8, stored"
    assert tune(tmp_path / "all", FakeWorker(no_gain)).describe() == "no better variant found, stored"
    failing = FakeWorker(lambda point: "off by 1" if point["tile"] == 8 else no_gain(point))
    tune(tmp_path / "failures", failing)
    again = tune(tmp_path / "failures", failing, repeat=True).describe()
    assert again == "searched again: not better, kept (no better variant was found)"


def test_the_budget_is_divided_by_share_of_the_step() -> None:
    assert divide_budget({"a": 0.6, "b": 0.2}, 80.0) == pytest.approx({"a": 60.0, "b": 20.0})


def test_a_search_starts_from_the_choices_of_similar_operators(tmp_path: Path) -> None:
    tune(tmp_path, FakeWorker(fast_tile))
    tuner = make_tuner(tmp_path, FakeWorker(fast_tile))
    assert tuner.list_neighbours(make_operator("other").signature) == [{"tile": 4, "fast": True}]
