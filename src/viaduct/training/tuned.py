"""Tunes a recipe's operators (`viaduct tune run RECIPE`): searches for faster variants, then measures a whole step.

    report = tune_recipe(TuneRequest(loaded, location, mode="RL,GA", budget_s=600), report_line=print)

A tuning bank is a folder with entries: the fastest measured variant of each operator. An entry is in the bank as soon
as the search of its operator has ended. Training uses the variants only if a whole step was measured to be faster with
all of them: this measurement is the verdict.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from viaduct import devices
from viaduct.errors import BadValue, ViaductError
from viaduct.profiling.collector import Plan
from viaduct.recipes import LoadedRecipe
from viaduct.search_space import Parameter, Space
from viaduct.signals import collect_signals
from viaduct.training.images import check_path
from viaduct.training.profiled import BATCH_FIELD, RecipeJob
from viaduct.training.tuning_worker import MIN_VERDICT_TURNS, make_threads_space
from viaduct.tuning.bank import Bank, BankContents, Choice, DamagedBank, Verdict
from viaduct.tuning.fingerprint import Fingerprint, read_fingerprint
from viaduct.tuning.location import BUILT_IN_BANK, Location, prepare_writing, remove_empty_bank_on_failure
from viaduct.tuning.operators import list_kinds
from viaduct.tuning.result_file import write_result_file
from viaduct.tuning.search import make_searcher
from viaduct.tuning.signature import MAX_OTHER_LOAD, THREADS, Signature
from viaduct.tuning.table import TuneReport
from viaduct.tuning.tuner import Operator, Outcome, Tuner, collect_choices, divide_budget
from viaduct.tuning.worker_process import Interrupted, Worker, WorkerFailed

OBSERVING_LIMIT_S, VERDICT_LIMIT_S = 900.0, 1800.0  # after which the worker process counts as lost
VERDICT_STEPS = 60  # the time of so many steps is kept for the verdict
MAX_VERDICT_SHARE = 0.3  # share of the budget that is kept for the verdict, at most
VERDICT_MARGIN = 0.01  # share of the step's time that the variants must save to be installed
# Compiled variants, which compile for tens of seconds each, are tried if the budget has so many seconds an operator.
COMPILER_S = 90.0
NO_GAIN = "not installed: no gain in the whole step"  # note of a bank's entry


@dataclass(frozen=True)
class TuneRequest:
    """Options of a tuning run."""

    loaded: LoadedRecipe
    location: Location
    mode: str = "RL,GA"
    budget_s: float = 600.0
    device: str = "auto"
    data: Path | None = None
    settings: Sequence[tuple[str, str]] = ()  # changed fields of the recipe: path and value
    seed: int = 1
    repeat: bool = False  # search and measure again what the bank has already


def tune_recipe(request: TuneRequest, report_line: Callable[[str], None]) -> TuneReport:
    """Tune the operators of a recipe; an interruption keeps what was measured so far.

    The mode, the device, --data and the bank's location are checked before anything is written.
    """
    start = time.monotonic()
    make_searcher(request.mode, Space([Parameter("x", (1,))], default={"x": 1}), 1)  # refuses an unknown mode
    _, torch_device = devices.pick(request.device)
    job = make_job(request)
    check_path(job.change_recipe().data, request.data)
    with remove_empty_bank_on_failure(request.location):
        return search_and_judge(request, job, torch_device.type, start, report_line)


def search_and_judge(
    request: TuneRequest, job: RecipeJob, device_type: str, start: float, report_line: Callable[[str], None]
) -> TuneReport:
    """Tune in a worker process; the bank is created if it does not exist.

    `device_type` is torch's name of the device; the budget counts from `start`, a time of time.monotonic().
    """
    prepare_writing(request.location)
    fingerprint = read_fingerprint(device_type)
    check_bank(request.location.bank, fingerprint, report_line)
    report = TuneReport(request.location.path, fingerprint)
    with (
        tempfile.TemporaryDirectory(prefix="viaduct-tune-") as folder,
        collect_signals(lambda number: None) as received,
    ):
        path = Path(folder) / "job.json"
        path.write_text(job.encode())
        command = [sys.executable, "-m", "viaduct.training.tuning_worker", str(path)]
        worker = Worker(command, is_interrupted=lambda: bool(received))
        tuning = TuningSession(request, report, worker, device_type, start + request.budget_s, report_line)
        try:
            tuning.run()
        except Interrupted:
            report.signal = received[0]
            report.lines.append("Interrupted: what was found is kept; the same command continues.")
        finally:
            worker.stop()
            if report.outcomes:
                report.result_file = write_result_file(request.location.path, report.outcomes)
    report.seconds = time.monotonic() - start
    report.measurements, report.reused = tuning.tuner.measurements, tuning.tuner.reused
    report.other_load = median(tuning.tuner.other_loads) if tuning.tuner.other_loads else 0.0
    return report


def make_job(request: TuneRequest) -> RecipeJob:
    """Return the job for the worker process; it sets the recipe's batch, which otherwise would be reduced on CPUs."""
    plan = Plan(skip=0, timed=1, recorded=0)  # the worker uses neither the plan nor the output path
    job = RecipeJob(request.loaded, Path(), plan, request.device, request.data, list(request.settings))
    batch = str(job.change_recipe().data.global_batch)
    # No sink: a captured step would keep the variants that it was captured with.
    return replace(job, settings=[*request.settings, (BATCH_FIELD, batch), ("sink", "0")])


def check_bank(bank: Bank, fingerprint: Fingerprint, report_line: Callable[[str], None]) -> None:
    """Rename a damaged file of the bank; tell the user if the bank only has entries for other devices."""
    try:
        stored = bank.read(fingerprint)
    except DamagedBank as error:
        renamed = bank.set_aside(error.path)
        report_line(f"{error.path} is damaged ({error.why}): set aside as {renamed.name}, a new file is begun.")
        return
    if not stored.entries and (others := bank.list_other_fingerprints(fingerprint)):
        differences = "; ".join(", ".join(fingerprint.list_differences(other)) for other in others[:3])
        report_line(f"{bank.path} has entries of other devices or versions only, which are not used ({differences}).")


class TuningSession:
    """One tuning run: observe a step, measure the defaults, search the operators, measure the verdict."""

    def __init__(
        self,
        request: TuneRequest,
        report: TuneReport,
        worker: Worker,
        device_type: str,
        end: float,
        report_line: Callable[[str], None],
    ) -> None:
        """`device_type` is torch's name of the device; the budget is spent at `end`, a time of time.monotonic()."""
        self.request, self.report, self.worker = request, report, worker
        self.device_type, self.end, self.report_line = device_type, end, report_line
        self.bank, built_in = request.location.bank, Bank(BUILT_IN_BANK).read(report.fingerprint)
        options = request.mode, request.seed, request.repeat, report_line
        self.tuner = Tuner(worker, self.bank, report.fingerprint, built_in, *options)

    def run(self) -> None:
        """Observe a step, search its operators, and measure the whole step with the choices."""
        start = time.monotonic()
        self.report_line(f"{self.request.loaded.name} on {self.report.fingerprint.describe()}")
        observed = self.request_answer({"do": "observe"}, OBSERVING_LIMIT_S, "observing a step")
        self.report.step_us = float(observed["step_us"])
        startup_s = time.monotonic() - start
        operators = self.list_operators(observed)
        if observed["obstacle"]:
            self.report.lines.append(f"Convolutions and linear layers keep their default: {observed['obstacle']}.")
        if not operators:
            nothing = "it has no convolution, linear layer or optimizer with variants on this device"
            reason = observed["obstacle"] or nothing
            raise BadValue(f"{self.request.loaded.name} has no tunable operators: {reason}.")
        self.report_line(
            f"a step of {observed['batch']} images takes {self.report.step_us / 1000:.1f} ms ({observed['mode']}); "
            f"{len(operators)} operators with variants"
        )
        self.search_all(operators)
        self.refuse_small_budget(startup_s)
        self.judge(Signature.decode_json(observed["threads"]))  # it is also the signature of the whole step

    def request_answer(self, request: dict[str, Any], seconds: float, activity: str) -> dict[str, Any]:
        """Return the worker's answer to a request; raise ViaductError with its message if it fails."""
        try:
            answer = self.worker.send_request(request, seconds)
        except WorkerFailed as error:
            raise ViaductError(f"{activity} failed: the process that measures was lost ({error}).") from None
        if "error" in answer:
            raise ViaductError(f"{activity} failed: {answer['error']}")
        return answer

    def list_operators(self, observed: dict[str, Any]) -> list[Operator]:
        """Return the operators of the step that have variants here."""
        operators = []
        kinds = list_kinds()
        allow_compiled = self.request.budget_s >= COMPILER_S * len(observed["operators"])
        for row in observed["operators"]:
            signature = Signature.decode_json(row["signature"])
            space = kinds[signature.kind].make_space(signature, self.device_type, allow_compiled)
            operators.append(Operator(signature, tuple(row["names"]), int(row["count"]), space))
        if self.device_type == "cpu":
            signature = Signature.decode_json(observed["threads"])
            space = make_threads_space(self.report.fingerprint.threads)
            operators.append(Operator(signature, ("the whole step",), 1, space))
        return [operator for operator in operators if operator.space.size > 1]

    def search_all(self, operators: list[Operator]) -> None:
        """Search each operator: the one with the largest share of the step first, the number of threads last.

        Time that a search has not used is given to the later ones. Operators in the bank are searched again only with
        `repeat`.
        """
        pending: list[tuple[Operator, float]] = []  # operators to search, and the time of their default
        outcomes = self.report.outcomes
        for operator in operators:
            entry = self.tuner.find_entry(operator.signature)  # of the bank
            if entry is not None and not self.request.repeat:
                outcomes.append(self.tuner.tune(operator, entry.default_us, 0.0))
                continue
            if time.monotonic() >= self.end:
                outcomes.append(Outcome(operator, note="the budget was spent before it was measured"))
                continue
            default_us = self.tuner.measure_default(operator)
            if default_us is None:
                outcomes.append(Outcome(operator, note="the default itself could not be measured"))
            else:
                pending.append((operator, default_us))
        step_us = self.report.step_us
        shares = {
            op.signature.key: Outcome(op, default_us=default_us).share_of_step(step_us) for op, default_us in pending
        }
        # The number of threads is last, because measuring it takes whole steps.
        pending.sort(key=lambda row: (row[0].signature.kind == THREADS, -shares[row[0].signature.key]))
        # Time for VERDICT_STEPS steps, at most MAX_VERDICT_SHARE of the budget, is kept for the verdict.
        end = self.end - min(MAX_VERDICT_SHARE * self.request.budget_s, VERDICT_STEPS * step_us / 1e6)
        for index, (operator, default_us) in enumerate(pending):
            remaining = {op.signature.key: shares[op.signature.key] for op, _ in pending[index:]}
            seconds = divide_budget(remaining, end - time.monotonic())[operator.signature.key]
            self.report_line(f"{operator.signature.kind} {operator.signature.shapes}: {operator.space.size} variants")
            outcomes.append(self.tuner.tune(operator, default_us, seconds))
            self.report_line(f"  {outcomes[-1].describe()}")
        outcomes.sort(key=lambda outcome: -outcome.share_of_step(step_us))

    def refuse_small_budget(self, startup_s: float) -> None:
        """Raise BadValue if no variant was measured within the budget, ViaductError if no operator can be."""
        if any(outcome.entry is not None for outcome in self.report.outcomes):
            return
        if all("could not be measured" in outcome.note for outcome in self.report.outcomes):
            raise ViaductError("no operator could be measured.", *[row.note for row in self.report.outcomes[:1]])
        raise BadValue(
            f"--budget {self.request.budget_s:g}s is too small: no variant of an operator could be measured in it.",
            f"Starting and observing a step took {startup_s:.0f} s of it; "
            f"try --budget {max(60, round(8 * startup_s))}s.",
        )

    def judge(self, step: Signature) -> None:
        """Measure the whole step without and with the choices (selected variants), and record the verdict in the bank.

        The choices are installed if the step is faster by VERDICT_MARGIN. An undecided or failed measurement records
        nothing; one on a busy machine is recorded, and a line says so. A verdict on the same choices is not measured
        again, unless the request repeats. `step` is the signature of the whole step.
        """
        choices = collect_choices(self.report.outcomes)
        stored = self.bank.read(self.report.fingerprint)
        if not choices:
            self.report.lines.append("No gain: no measured variant is clearly faster than its default.")
            return
        earlier = stored.verdicts.get(step.key)
        if earlier is not None and copy_choices(earlier.choices) == copy_choices(choices) and not self.request.repeat:
            self.report.verdict = earlier
            self.report.lines.append("The whole step was measured with these choices before; it is not repeated.")
            return
        self.report_line("measuring the whole step without and with the choices")
        seconds = max(5.0, min(60.0, self.end - time.monotonic()))  # some even if the budget is spent
        message = {"do": "judge", "choices": copy_choices(choices), "seconds": seconds}
        try:
            answer = self.worker.send_request(message, VERDICT_LIMIT_S)
        except WorkerFailed as error:
            answer = {"error": str(error)}
        if "error" in answer:
            self.report.lines.append(f"The whole step could not be measured ({answer['error']}): nothing is installed.")
            return
        if answer["others"] > MAX_OTHER_LOAD:
            self.report.lines.append(
                f"Other programs used {answer['others']:.0%} of the processors while the whole step was measured: "
                "its times are not those of a quiet machine."
            )
        if answer["turns"] < MIN_VERDICT_TURNS:
            self.report.lines.append(
                f"Whole step: undecided, there was time for {answer['turns']} turns of {MIN_VERDICT_TURNS}; nothing is "
                "installed. The same command measures it again."
            )
            return
        verdict = Verdict(
            step=step.key,
            choices=choices,
            without_us=answer["without_us"],
            with_us=answer["with_us"],
            gain=1 / answer["ratio"],  # ratio: time with the choices / time without
            turns=answer["turns"],
            is_gain=answer["is_faster"] and answer["ratio"] <= 1 - VERDICT_MARGIN,
            date=datetime.now().isoformat(timespec="seconds"),
        )
        self.report.verdict = verdict
        changed = self.bank.update(self.report.fingerprint, lambda bank: install(bank, verdict))
        for outcome in self.report.outcomes:
            if outcome.entry is not None:
                outcome.entry = changed.entries.get(outcome.entry.signature.key, outcome.entry)


def copy_choices(choices: Any) -> dict[str, dict[str, Any]]:
    """Return choices as plain dicts, which can be compared and sent as JSON."""
    return {key: dict(choice) for key, choice in choices.items()}


def install(stored: BankContents, verdict: Verdict) -> BankContents:
    """Return the bank with the verdict; entries of its choices are marked as installed or as without gain.

    An entry that the verdict of another step has installed stays installed.
    """
    entries = dict(stored.entries)
    for key in verdict.choices:
        entry = entries.get(key)
        if entry is None or dict(entry.choice) != dict(verdict.choices[key]):
            continue
        if verdict.is_gain:
            entries[key] = replace(entry, installed=True, note="")
        elif not entry.installed:
            entries[key] = replace(entry, note=NO_GAIN)
    return replace(stored, entries=entries).with_verdict(verdict)


def choose_for_training(stored: BankContents, step_key: str) -> dict[str, Choice]:
    """Return the choices that training applies: those of this step's verdict if they were a gain, else none.

    Without a verdict these are all installed entries.
    """
    verdict = stored.verdicts.get(step_key)
    if verdict is not None:
        return dict(verdict.choices) if verdict.is_gain else {}
    return {key: entry.choice for key, entry in stored.entries.items() if entry.installed and not entry.is_default}
