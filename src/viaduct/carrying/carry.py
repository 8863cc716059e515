"""A carry from end to end: migrate, run both sides on stand-ins for their devices, compare, explain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from viaduct.carrying import coverage
from viaduct.carrying.agreement import Agreement, judge, needs_perturbed_run, pair_observations
from viaduct.carrying.causes import (
    ChangedSetting,
    Explanation,
    explain,
    find_idle_optimizers,
    find_ineffective_settings,
)
from viaduct.carrying.coverage import Edit
from viaduct.carrying.device_tests import DeviceTest, list_device_tests
from viaduct.carrying.doubts import Doubt, find_doubts
from viaduct.carrying.drift import compare_tensors
from viaduct.carrying.earlier import EarlierCarry, mark_executed_earlier, read_earlier, refuse_changed_files
from viaduct.carrying.further_results import ComparedRuns, FurtherResults, compare_further_results
from viaduct.carrying.observations import has_newly_joined_ranks
from viaduct.carrying.output_folder import check_output_folder, prepare_folder
from viaduct.carrying.repetition import Repetition, SecondRun, compare_runs, find_second_run
from viaduct.carrying.request import Request
from viaduct.carrying.running import (
    Interrupted,
    Run,
    choose_framework,
    derive_plan,
    execute,
    find_step_at,
    make_original_plan,
    move_step_at,
)
from viaduct.carrying.sides import (
    JOINED_RANKS,
    SIDE_NAMES,
    Side,
    Sides,
    find_change_times,
    find_changed_since,
    find_changing_rules,
    migrate,
    write_migrated_copy,
    write_reference,
)
from viaduct.carrying.speed import Speed, measure_speed
from viaduct.carrying.suspects import Suspect, find_suspects
from viaduct.carrying.written_files import WrittenFile, compare_written
from viaduct.comparison.drift import Drift
from viaduct.rehearsal.files import set_record_folder
from viaduct.rehearsal.inspection import Fact
from viaduct.rehearsal.plan import FrameworkName

Report = Callable[[str], None]  # prints one line of progress
Verdict = Literal["agrees", "differs", "not proved", "could not run"]  # of a whole carry
NO_PERTURBED_RUN = (
    "They are not exactly equal, and it is not known if rounding explains this: the run of the original with its "
    "weights moved by one unit in the last place failed ({reason})"
)
EXIT_CODES: dict[Verdict, int] = {"agrees": 0, "differs": 1, "could not run": 2, "not proved": 3}


@dataclass
class CarryResult:
    """Result of a carry.

    The migrated run is compared with the golden run: the original, or the original with the intended changes
    (sides.py). `perturbed` repeats the golden run with weights moved by one unit in the last place, if that was
    needed to measure rounding.
    """

    request: Request
    sides: Sides
    framework: FrameworkName  # torch or tf1: the stand-ins for it run both sides
    original: Run
    golden_run: Run
    verdict: Verdict = "could not run"  # until both sides have finished
    migrated: Run | None = None
    perturbed: Run | None = None
    agreement: Agreement | None = None
    drift: Drift | None = None  # comparison of the recorded tensors, as by `viaduct compare`
    explanation: Explanation | None = None  # only if the agreement's verdict is "differ"
    suspects: list[Suspect] = field(default_factory=list)  # changed lines that may cause a difference
    device_tests: list[DeviceTest] = field(default_factory=list)  # lines of the original that test the device
    intended_changes: list[str] = field(default_factory=list)  # changes of numbers that the golden run has, too
    # Numbers with which objects were created differently, although no loss, gradient or weight differs.
    ineffective_settings: list[ChangedSetting] = field(default_factory=list)
    idle_optimizers: list[Fact] = field(default_factory=list)  # optimizers that took no step on at least one side
    shared_paths: list[str] = field(default_factory=list)  # absolute paths in arguments, changed while the original ran
    edits: list[Edit] = field(default_factory=list)  # the changed lines, with counts of their executions
    earlier_carries: list[EarlierCarry] = field(default_factory=list)  # earlier carries, whose executed edits count
    repetitions: dict[Side, Repetition] = field(default_factory=dict)  # each side's second run, compared with its first
    speed: Speed | None = None  # on the stand-ins; not part of the verdict
    further_results: FurtherResults | None = None  # network inputs, evaluations and printed numbers, compared
    written_files: list[WrittenFile] = field(default_factory=list)  # files that the sides wrote, compared
    doubts: list[Doubt] = field(default_factory=list)  # reasons why the comparison is not a proof
    old_output: Path | None = None  # folder with the earlier content of OUT

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def failed_run(self) -> Run | None:
        """Return the original's or the migrated script's first run, whichever failed; None if neither did."""
        return next((run for run in (self.original, self.migrated) if run is not None and not run.is_finished), None)

    @property
    def finished_perturbed(self) -> Run | None:
        """Return the perturbed run, or None if it was not needed or failed."""
        return self.perturbed if self.perturbed is not None and self.perturbed.is_finished else None

    @property
    def met_limits(self) -> list[dict[str, Any]]:
        """Return the limits that the migrated run met: each with name, mode, place, what, card and change."""
        return self.migrated.summary.met_limits if self.migrated is not None else []


def carry(request: Request, report: Report, write_outputs: Callable[[CarryResult], None]) -> CarryResult:
    """Migrate, run, compare, and call `write_outputs` with the result. After an exception OUT is restored."""
    check_output_folder(request.source, request.out, request.force)
    earlier = [read_earlier(folder, request.out, request.to, request.limits) for folder in request.earlier]
    sides = migrate(request)
    framework = choose_framework(request, sides)
    move_step_at(find_step_at(request, sides), sides)  # refuses a --step-at that either side lacks, before any run
    report(f"this executes {sides.entry} with your rights, each run in a separate folder.")
    with prepare_folder(request.out) as old_output:
        write_migrated_copy(sides, request)
        refuse_changed_files(earlier, sides.original_root.resolve(), sides.migrated_root.resolve())
        result = run_both_sides(request, sides, framework, earlier, report)
        result.old_output = old_output
        write_outputs(result)
    return result


def run_both_sides(
    request: Request, sides: Sides, framework: FrameworkName, earlier: list[EarlierCarry], report: Report
) -> CarryResult:
    """Run both sides twice and compare them; stop if the first run of a side fails.

    The second run shows if the side is deterministic. It may run at the same time as the first (`SecondRun`).
    """
    plan = make_original_plan(request, sides, framework, report)
    options = f"its CUDA calls on the CPU, {request.steps} steps, seed {request.seed}"
    report(f"the original is run: {sides.entry}, {options}.")
    change_times = find_change_times(request.arguments)
    with SecondRun("original", plan) as second:
        original = execute("original", plan, sides, report)
        result = CarryResult(request, sides, framework, original, golden_run=original, earlier_carries=earlier)
        result.device_tests = list_device_tests(sides.original_script, sides.original_root.resolve())
        result.shared_paths = find_changed_since(change_times)
        if not original.is_finished:
            second.stop()
            return result
        original_again = finish_second_run(second, report)
    report(f"the migrated script is run, with a stand-in for the {request.to} on the CPU.")
    plan = derive_plan("migrated", plan, request, sides)
    with SecondRun("migrated", plan) as second:
        result.migrated = execute("migrated", plan, sides, report)
        if result.migrated.is_finished:
            if original_again is not None:
                result.repetitions["original"] = compare_runs(original, original_again)
            if (migrated_again := finish_second_run(second, report)) is not None:
                result.repetitions["migrated"] = compare_runs(result.migrated, migrated_again)
        else:
            second.stop()
    edits = coverage.read_edits(result.migrated.plan, sides, "migrated")
    edits += coverage.read_edits(original.plan, sides, "original")
    result.edits = mark_executed_earlier(edits, earlier)
    if not result.migrated.is_finished:
        return result
    result.speed = measure_speed(result)
    compare_sides(result, report)
    if any(hit["mode"] == "error" for hit in result.met_limits):  # the card would refuse what the stand-in ran
        result.verdict = "could not run"
    return result


def finish_second_run(second: SecondRun, report: Report) -> Run | None:
    """Return the second run of a side after its end, or None if it left no summary; raise Interrupted for a signal."""
    again, side = second.finish(), SIDE_NAMES[second.side][0]
    if again is None:
        report(f"the second run of {side} left no summary; its output is in {second.plan.record_folder}.")
    elif again.summary.interrupting_signal:
        raise Interrupted(again.summary.interrupting_signal, f"while {side} ran")
    return again


def compare_sides(result: CarryResult, report: Report) -> None:
    """Judge the agreement, find causes, suspects and doubts, and set the verdict.

    If something differs and the migration makes intended changes (of numbers, or ranks that train together), the
    migrated run is judged against a run of the original with these changes instead, unless that run fails.
    """
    assert result.migrated is not None
    migrated, migrated_root = result.migrated.observations, result.sides.migrated_root
    agreement = result.agreement = judge_agreement(result, report)
    if agreement.verdict != "differ":
        compare_results(result)  # for `has_differing_results`; repeated below, since the golden run may change
    if agreement.verdict == "differ" or has_differing_results(result):
        intended = find_changing_rules(result.sides)
        # If ranks of TensorFlow 1 train together only after the migration, this is an intended change as well.
        join_ranks = result.framework == "tf1" and has_newly_joined_ranks(result.original.observations, migrated)
        if intended or join_ranks:
            agreement = judge_with_intended_changes(result, intended, join_ranks, report) or agreement
    result.agreement = agreement
    perturbed = result.finished_perturbed.plan.record_folder if result.finished_perturbed is not None else None
    if agreement.pairs:
        # In a drift the migrated run is the left side; in an agreement it is the right one.
        result.drift = compare_tensors(
            result.migrated.plan.record_folder, result.golden_run.plan.record_folder, perturbed, agreement
        )
    golden = result.golden_run.observations
    result.idle_optimizers = find_idle_optimizers(golden, migrated)
    if agreement.verdict == "differ":
        assert result.drift is not None
        result.explanation = explain(agreement, golden, migrated, result.drift, result.request.to)
        result.suspects = find_suspects(result.sides, result.explanation)
        lines = [f"{(migrated_root / suspect.file).resolve()}:{suspect.line}" for suspect in result.suspects]
        keywords = result.explanation.keywords
        result.explanation.changed_settings.sort(key=lambda setting: make_relevance_key(setting, lines, keywords))
    else:
        lines_by_file = result.sides.deviating_lines.items()
        deviating = {(str((migrated_root / path).resolve()), line) for path, lines in lines_by_file for line in lines}
        result.ineffective_settings = find_ineffective_settings(golden, migrated, deviating)
    compare_results(result)
    result.doubts = find_doubts(result)
    result.verdict = choose_verdict(result)


def has_differing_results(result: CarryResult) -> bool:
    """Return True if network inputs, evaluations, printed numbers or written files differ."""
    has_differing = result.further_results is not None and bool(result.further_results.differing)
    return has_differing or any(file.state == "differs" for file in result.written_files)


def compare_results(result: CarryResult) -> None:
    """Compare network inputs, evaluations, printed numbers and written files.

    Runs that agree exactly must print the same numbers. Otherwise the numbers may differ by 1e-6 (relative), or by the
    largest tolerance of an informative loss if that is more.
    """
    assert result.agreement is not None
    assert result.migrated is not None
    tolerances = [pair.allowed for pair in result.agreement.informative_pairs("loss")]
    allowed = max([1e-6, *tolerances]) if result.agreement.verdict != "same" else 0.0
    # Of a golden run with intended changes there is no second run.
    golden_again = find_second_run(result.repetitions, "original") if result.golden_run is result.original else None
    migrated_again = find_second_run(result.repetitions, "migrated")
    perturbed = result.finished_perturbed if result.agreement.verdict != "same" else None
    runs = ComparedRuns(result.golden_run, result.migrated, golden_again, migrated_again, perturbed, allowed)
    result.further_results = compare_further_results(runs)
    result.written_files = compare_written(runs)


def choose_verdict(result: CarryResult) -> Verdict:
    """Return the verdict. A doubt that may hide differences comes first, then a difference, then other doubts."""
    assert result.agreement is not None
    if any(doubt.hides_differences for doubt in result.doubts):
        return "not proved"
    if result.agreement.verdict == "differ":
        return "differs"
    return "not proved" if result.doubts else "agrees"


def make_relevance_key(setting: ChangedSetting, suspected: list[str], keywords: tuple[str, ...]) -> tuple[bool, int]:
    """Return a sort key that puts a setting first if it has a keyword or was set at the likeliest line.

    The others follow in the order of the suspected lines. `suspected`: lines as FILE:LINE, the likeliest first.
    """
    location = f"{setting.right_at[0]}:{setting.right_at[1]}" if setting.right_at else ""
    has_keyword = any(keyword in f"{setting.name} {setting.what}" for keyword in keywords)
    is_likeliest = bool(suspected) and location == suspected[0]
    return not (has_keyword or is_likeliest), suspected.index(location) if location in suspected else len(suspected)


def judge_agreement(result: CarryResult, report: Report) -> Agreement:
    """Judge the migrated run against the golden run, which is repeated with perturbed weights if necessary."""
    assert result.migrated is not None
    golden = result.golden_run
    pairs = pair_observations(golden.observations, result.migrated.observations)
    if not needs_perturbed_run(pairs):
        return judge(pairs)
    report(
        "they are not exactly equal: to measure the effect of rounding, the original is run once more with its "
        "weights moved by one unit in the last place."
    )
    perturbed = result.perturbed = run_perturbed(result, report)
    if not perturbed.is_finished and any(pair.why for pair in pairs):
        return judge(pairs)
    if not perturbed.is_finished:
        reason = perturbed.summary.failure or f"exit code {perturbed.summary.script_exit_code}"
        return Agreement("unsure", pairs, [NO_PERTURBED_RUN.format(reason=reason.splitlines()[0].rstrip("."))])
    perturbed_pairs = pair_observations(golden.observations, perturbed.observations)
    repetition = result.repetitions.get("original")
    return judge(pairs, perturbed_pairs, is_deterministic=repetition is not None and repetition.is_equal)


def run_perturbed(result: CarryResult, report: Report) -> Run:
    """Repeat the golden run with its weights moved by one unit in the last place; its name is `shaken`."""
    golden_plan = result.golden_run.plan
    plan = derive_plan("shaken", result.original.plan, result.request, result.sides, Path(golden_plan.script))
    plan = replace(plan, join_ranks=golden_plan.join_ranks)
    if Path(plan.record_folder).exists():  # it holds the perturbed run of the original without the intended changes
        plan = set_record_folder(plan, Path(plan.record_folder).with_name("shaken_reference"))
    return execute("shaken", plan, result.sides, report)


def judge_with_intended_changes(
    result: CarryResult, rules: dict[str, str], join_ranks: bool, report: Report
) -> Agreement | None:
    """Judge against the original with only the intended changes; None if that run fails.

    `rules`: the rules that change numbers, with descriptions. `join_ranks`: let the ranks train together.
    """
    names = [*rules, *(["ranks that train together"] if join_ranks else [])]
    report(f"known to change numbers: {', '.join(names)}; the original is run once more with these changes alone.")
    script = write_reference(result.request, result.sides, tuple(rules)) if rules else None
    plan = derive_plan("reference", result.original.plan, result.request, result.sides, script)
    plan = replace(plan, join_ranks=join_ranks)
    golden = execute("reference", plan, result.sides, report)
    if not golden.is_finished:
        return None
    result.golden_run, result.perturbed = golden, None  # a perturbed run so far repeated the original
    result.intended_changes = [*rules.values(), *([JOINED_RANKS] if join_ranks else [])]
    return judge_agreement(result, report)
