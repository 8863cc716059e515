"""Search for the fastest variant of one operator.

A point is a configuration of the operator. A searcher proposes a point, the worker process measures it, and the
searcher receives the time. The fastest point, if it is not the default, is measured again against the default.
`result_file.decide_status` says whether the result is stored in the bank or an earlier entry stays.

Each measurement is written to the journal before the next one begins, so a killed search can resume. The confirmation
of the winner is not journaled: a resumed search measures it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from viaduct.search_space import Space
from viaduct.tuning.bank import Bank, BankContents, Choice, Entry, FailedPoint, describe_choice, encode_point
from viaduct.tuning.fingerprint import Fingerprint
from viaduct.tuning.journal import Journal
from viaduct.tuning.measuring import CONFIRMING_TURNS, MARGIN, MAX_TURNS, MIN_TURNS
from viaduct.tuning.result_file import Status, decide_status
from viaduct.tuning.search import make_searcher
from viaduct.tuning.signature import MAX_OTHER_LOAD, THREADS, Signature
from viaduct.tuning.worker_process import Worker, WorkerFailed

MEASUREMENT_LIMIT_S = 60.0
"""Time after which a worker without an answer is killed; it is asked to measure for a quarter of this time."""
COMPILING_LIMIT_S = 240.0  # the same limit for a variant that must be compiled first
NEIGHBOURS = 4  # largest number of similar operators whose choices a search begins with


@dataclass(frozen=True)
class Operator:
    """An operator of the network and the names of the modules that call it."""

    signature: Signature
    names: tuple[str, ...]
    count: int  # number of calls in a step
    space: Space

    @property
    def is_thread_count(self) -> bool:
        """True for the number of threads, which is an operator here; its time is that of a complete step."""
        return self.signature.kind == THREADS


@dataclass
class Outcome:
    """Result of tuning one operator."""

    operator: Operator
    status: Status = field(default_factory=Status)
    entry: Entry | None = None
    """The operator's entry after this run, from the user's bank or the one shipped with viaduct."""
    search_result: Entry | None = None  # result of a search in this run, stored or not
    default_us: float = 0.0  # the default's microseconds, measured before the search
    rounds: list[tuple[float, datetime]] = field(default_factory=list)
    """Microseconds of each new best point of the search, or of the default alone, and the date and time."""
    is_complete: bool = False  # True: the search measured every variant, except those that failed in an earlier search
    note: str = ""  # reason why a search gave no result

    def share_of_step(self, step_us: float) -> float:
        """Return the default's time as a share of a step of `step_us`: an upper estimate; 0 if `step_us` is 0."""
        if self.operator.is_thread_count:
            return 1.0
        return self.default_us * self.operator.count / step_us if step_us else 0.0

    def describe(self) -> str:
        """Return a short description of the result."""
        if self.note:
            return self.note
        if self.status.bank_update:
            return "searched again: better, stored"
        is_default = self.entry is not None and self.entry.is_default
        if self.status.bank_reserved:
            again = f"searched again: not better{self.describe_coverage()}, kept"
            searched = again if self.search_result else "in the bank, not searched again"
            return f"{searched} (no better variant was found)" if is_default else searched
        if self.status.bank_append:
            return f"no better variant found{self.describe_coverage()}, stored" if is_default else "better, stored"
        return "not searched"

    def describe_coverage(self) -> str:
        """Return " among 12 of 40" if the time ended before all variants were measured; else an empty text."""
        if self.is_complete or self.search_result is None:
            return ""
        return f" among {self.search_result.measurements} of {self.operator.space.size}"


@dataclass
class Tuner:
    """Searches operators and stores the results in the bank."""

    worker: Worker
    bank: Bank
    fingerprint: Fingerprint
    built_in: BankContents
    mode: str  # search method: "GA", "RL", …
    seed: int
    repeat: bool  # search operators again that have an entry in the bank
    print_progress: Callable[[str], None]
    measurements: int = 0  # number of measurements in this run
    reused: int = 0  # number of measurements taken from the journal of an interrupted run
    other_loads: list[float] = field(default_factory=list)
    """Share of the processors that other programs used during each measurement that states it."""

    def find_entry(self, signature: Signature) -> Entry | None:
        """Return the entry of an operator in the bank, else in the bank that is shipped with viaduct."""
        return self.bank.read(self.fingerprint).entries.get(signature.key) or self.built_in.entries.get(signature.key)

    def measure_default(self, operator: Operator) -> float | None:
        """Return the default's microseconds, from the journal if it has them; None if the default fails."""
        default = operator.space.default
        return self.measure(operator, default, default, MIN_TURNS, MIN_TURNS).get("us")

    def tune(self, operator: Operator, default_us: float, seconds: float) -> Outcome:
        """Search one operator for about `seconds`, and store the result unless the bank has an entry as good.

        An operator with an entry in the user's bank or the one shipped with viaduct is searched only with `repeat`.
        """
        earlier = self.find_entry(operator.signature)
        outcome = Outcome(operator, entry=earlier, default_us=default_us)
        if earlier is not None and not self.repeat:
            _, outcome.status = decide_status(earlier, result=None)
            return outcome
        outcome.search_result = self.search(operator, outcome, earlier, time.monotonic() + seconds)
        stored, outcome.status = decide_status(earlier, outcome.search_result)
        if stored is not None:
            self.bank.update(self.fingerprint, lambda bank: bank.with_entry(stored))
            outcome.entry = stored
        if outcome.search_result is not None:
            self.open_journal(operator).remove()
        return outcome

    def open_journal(self, operator: Operator) -> Journal:
        return Journal.of(self.bank, self.fingerprint, operator.signature)

    def search(self, operator: Operator, outcome: Outcome, earlier: Entry | None, end: float) -> Entry | None:
        """Return the entry of the best variant, or of the default if no variant is significantly better.

        Return None, with a note in `outcome`, if the time ended before a variant was measured, or if thread counts
        cannot be compared because the machine is busy. `earlier` is the operator's entry in the bank. After `end`, a
        time of time.monotonic, only measurements in the journal are used.
        """
        space, default = operator.space, operator.space.default
        neighbours = self.list_neighbours(operator.signature)
        searcher = make_searcher(self.mode, space, self.seed, neighbours=neighbours)
        searcher.tell(default, outcome.default_us)
        best, best_ratio = default, 1.0  # the fastest point, and its time as a share of the default's
        failed = {encode_point(row.configuration): row for row in (earlier.failed if earlier else ())}
        measurement_count = 0  # without the default
        journal = self.open_journal(operator)
        measured = journal.read()
        while (point := searcher.ask()) is not None:
            key = encode_point(point)
            if key in failed and key not in measured:  # failed in an earlier search, according to the bank's entry
                searcher.tell(point, None)
                continue
            if key not in measured and time.monotonic() > end:
                break
            result = self.measure(operator, point, best, MIN_TURNS, MAX_TURNS)
            measurement_count += 1
            if operator.is_thread_count and result.get("others", 0.0) > MAX_OTHER_LOAD:
                outcome.note = f"not compared: other programs used {result['others']:.0%} of the processors"
                journal.remove()
                return None
            if "us" not in result:
                failed[key] = FailedPoint(point, result["failed"])
                searcher.tell(point, None)
                continue
            searcher.tell(point, outcome.default_us * result["ratio"])
            if result["beats_incumbent"] and result["ratio"] < best_ratio:
                best, best_ratio = point, result["ratio"]
                outcome.rounds.append((outcome.default_us * result["ratio"], datetime.now()))
                self.print_progress(f"  {describe_choice(point, default)}: {1 / result['ratio']:.2f}x")
        else:
            outcome.is_complete = True
        if not measurement_count and not outcome.is_complete:
            outcome.note = "the budget was spent before a variant was measured"
            return None
        if not outcome.rounds:
            outcome.rounds.append((outcome.default_us, datetime.now()))
        return self.confirm(operator, outcome, best, tuple(failed.values()), measurement_count)

    def confirm(
        self,
        operator: Operator,
        outcome: Outcome,
        winner: Choice,
        failed: tuple[FailedPoint, ...],
        measurement_count: int,
    ) -> Entry:
        """Measure the winner again; return its entry or, without a significant gain of at least MARGIN, the default's.

        `measurement_count`: variants that were measured in the search.
        """
        default = operator.space.default
        entry = Entry(
            signature=operator.signature,
            choice=default,
            default=default,
            default_us=outcome.default_us,
            best_us=outcome.default_us,
            spread=0.0,
            mode=self.mode,
            seed=self.seed,
            measurements=measurement_count + 1,  # and the default
            date=datetime.now().isoformat(timespec="seconds"),
            failed=failed,
        )
        if winner == default:
            measured = self.open_journal(operator).read()
            return replace(entry, spread=float(measured.get(encode_point(default), {}).get("spread", 0.0)))
        result = self.measure(operator, winner, default, CONFIRMING_TURNS, MAX_TURNS, confirming=True)
        if "us" not in result:
            return replace(entry, failed=(*failed, FailedPoint(winner, result["failed"])))
        default_us, ratio = result["default_us"], result["ratio"]
        entry = replace(entry, spread=result["spread"], default_us=default_us, best_us=default_us)
        if ratio <= 1 - MARGIN and result["beats_default"]:
            return replace(entry, choice=winner, best_us=default_us * ratio)
        self.print_progress(f"  {describe_choice(winner, default)}: {1 / ratio:.2f}x when measured again, not enough")
        return entry

    def measure(
        self,
        operator: Operator,
        point: Choice,
        incumbent: Choice,
        min_turns: int,
        max_turns: int,
        confirming: bool = False,
    ) -> dict[str, Any]:
        """Return the measurement of a point, from the journal if it has one.

        It is the answer of `request_server.measure`, or has only the key `failed` with the reason: crashed, hung, or
        wrong values. `incumbent` is the best point so far. With `confirming`, the journal is neither read nor written.
        """
        journal = self.open_journal(operator)
        recorded = None if confirming else journal.read().get(encode_point(point))
        if recorded is not None and ("us" in recorded or "failed" in recorded):
            self.reused += 1
            return recorded
        request = {
            "do": "measure",
            "signature": operator.signature.encode(),
            "candidate": dict(point),
            "default": dict(operator.space.default),
            "incumbent": dict(incumbent),
            "min_turns": min_turns,
            "max_turns": max_turns,
            "seconds": MEASUREMENT_LIMIT_S / 4,
        }
        limit_s = COMPILING_LIMIT_S if point.get("implementation") == "compiled" else MEASUREMENT_LIMIT_S
        try:
            answer = self.worker.send_request(request, limit_s)
        except WorkerFailed as error:
            answer = {"failed": str(error)}
        self.measurements += 1
        if "others" in answer:
            self.other_loads.append(float(answer["others"]))
        if "wrong" in answer:
            answer = {"failed": f"wrong values: {answer['wrong']}"}
        elif "error" in answer:
            answer = {"failed": answer["error"]}
        if "failed" in answer:
            self.print_progress(f"  {describe_choice(point, operator.space.default)}: discarded, {answer['failed']}")
        if not confirming:
            journal.append(point, answer)
        return answer

    def list_neighbours(self, signature: Signature) -> list[Choice]:
        """Return up to NEIGHBOURS choices of operators of the same kind, those with most equal fields first.

        They are from the user's bank; operators whose choice is the default are left out.
        """
        stored = self.bank.read(self.fingerprint).entries.values()
        entries = [row for row in stored if row.signature.kind == signature.kind and not row.is_default]
        fields = set(signature.fields)
        entries.sort(key=lambda entry: (-len(fields & set(entry.signature.fields)), entry.signature.key))
        return [entry.choice for entry in entries[:NEIGHBOURS]]


def divide_budget(shares: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return the seconds for each operator, in proportion to its share of the step; {} if all shares are 0.

    `shares` and the result are by key of the operator's signature.
    """
    total = sum(shares.values())
    return {key: seconds * share / total for key, share in shares.items()} if total else {}


def collect_choices(outcomes: Sequence[Outcome]) -> dict[str, Choice]:
    """Return the choices that differ from the default, by key of the operator's signature."""
    entries = (outcome.entry for outcome in outcomes)
    return {entry.signature.key: entry.choice for entry in entries if entry is not None and not entry.is_default}
