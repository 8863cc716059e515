"""A carry from end to end: migrate, rehearse both sides, compare, explain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from viaduct.carrying import agreement as judging
from viaduct.carrying import coverage, reference, shared_paths
from viaduct.carrying.agreement import Agreement
from viaduct.carrying.causes import ChangedSetting, Explanation, explain, find_idle_optimizers, find_ineffective
from viaduct.carrying.coverage import Edit
from viaduct.carrying.device_branches import Branch, find_branches
from viaduct.carrying.doubts import Doubt, find_doubts
from viaduct.carrying.drift import compare_tensors
from viaduct.carrying.earlier import Earlier, mark_executed_earlier, read_earlier, refuse_changed_files
from viaduct.carrying.observed import did_ranks_train_together
from viaduct.carrying.outcomes import Outcomes, compare_outcomes
from viaduct.carrying.output_folder import check_output_folder, prepare_folder
from viaduct.carrying.repetition import Repetition, SecondRun, compare_runs, find_second_run
from viaduct.carrying.request import Request
from viaduct.carrying.running import (
    Interrupted,
    Run,
    choose_stage,
    derive_plan,
    describe_side,
    find_step_at,
    make_original_plan,
    move_step_at,
    run_side,
)
from viaduct.carrying.sides import Sides, migrate, write_migrated_copy
from viaduct.carrying.speed import Speed, measure_speed
from viaduct.carrying.suspects import Suspect, find_suspects
from viaduct.carrying.written_files import Runs, WrittenFile, compare_written
from viaduct.comparison.drift import Drift
from viaduct.rehearsal.files import set_record
from viaduct.rehearsal.inspection import Fact
from viaduct.rehearsal.plan import StageName

Report = Callable[[str], None]  # prints one line of progress
Verdict = Literal["agrees", "differs", "not proved", "could not run"]
NO_PERTURBED_RUN = (
    "They are not exactly equal, and it is not known if rounding explains this: the run of the original with its "
    "weights moved by one unit in the last place failed ({reason})"
)
EXIT_CODES: dict[Verdict, int] = {"agrees": 0, "differs": 1, "could not run": 2, "not proved": 3}


@dataclass
class Carried:
    """Result of a carry.

    The migrated run is compared with `base`: the original, or the original with the intended changes only. `perturbed`
    is `base` run with its weights moved by one unit in the last place, if that was needed.
    """

    request: Request
    sides: Sides
    stage: StageName  # the framework whose stand-in runs both sides: torch or tf1
    original: Run
    base: Run
    verdict: Verdict = "could not run"
    migrated: Run | None = None
    perturbed: Run | None = None
    agreement: Agreement | None = None
    drift: Drift | None = None  # comparison of the recorded tensors, as by `viaduct compare`
    explanation: Explanation | None = None
    suspects: list[Suspect] = field(default_factory=list)  # changed lines that may cause a difference
    branches: list[Branch] = field(default_factory=list)  # lines of the original that test the device
    intended_changes: list[str] = field(default_factory=list)  # changes of numbers that `base` has too
    # Numbers that objects were created with: they differ, though no compared value does.
    ineffective: list[ChangedSetting] = field(default_factory=list)
    idle: list[Fact] = field(default_factory=list)  # optimizers that took no step on at least one side
    shared: list[str] = field(default_factory=list)  # absolute paths among the arguments that the original wrote to
    edits: list[Edit] = field(default_factory=list)  # the changed lines, with counts of their executions
    earlier: list[Earlier] = field(default_factory=list)  # earlier carries, whose executed edits count
    repeated: list[Repetition] = field(default_factory=list)  # the second run of each side
    speed: Speed | None = None  # on the stand-ins; not part of the verdict
    outcomes: Outcomes | None = None  # comparison of network inputs, evaluations and printed numbers
    written: list[WrittenFile] = field(default_factory=list)  # comparison of the written files
    doubts: list[Doubt] = field(default_factory=list)  # reasons why the comparison is not a proof
    old_output: Path | None = None  # folder with the earlier content of OUT

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def failed_run(self) -> Run | None:
        """Return the first run of the original or of the migrated script, whichever failed; None if neither did."""
        return next((run for run in (self.original, self.migrated) if run is not None and not run.is_finished), None)

    @property
    def finished_perturbed(self) -> Run | None:
        """Return the perturbed run, or None if it was not needed or failed."""
        return self.perturbed if self.perturbed is not None and self.perturbed.is_finished else None

    @property
    def limits(self) -> list[dict[str, Any]]:
        """Return the limits that the migrated run met: each with name, mode, place, what, card and change."""
        return self.migrated.summary.limits if self.migrated is not None else []


def carry(request: Request, report: Report, write_outputs: Callable[[Carried], None]) -> Carried:
    """Migrate, run, compare, and call `write_outputs` with the result. After an exception OUT is restored."""
    check_output_folder(request.source, request.out, request.force)
    earlier = [read_earlier(folder, request.out, request.to, request.limits) for folder in request.earlier]
    sides = migrate(request)
    stage = choose_stage(request, sides)
    move_step_at(find_step_at(request, sides), sides)  # refuses a --step-at that either side lacks, before any run
    report(f"this executes {sides.entry} with your rights, each run in a separate folder.")
    with prepare_folder(request.out) as old_output:
        write_migrated_copy(sides, request)
        refuse_changed_files(earlier, sides.root.resolve(), sides.folder.resolve())
        carried = run_both_sides(request, sides, stage, earlier, report)
        carried.old_output = old_output
        write_outputs(carried)
    return carried


def run_both_sides(request: Request, sides: Sides, stage: StageName, earlier: list[Earlier], report: Report) -> Carried:
    """Run both sides twice and compare them; stop if a first run fails.

    The second run shows if the side is deterministic. It may run at the same time as the first (`SecondRun`).
    """
    plan = make_original_plan(request, sides, stage, report)
    options = f"its CUDA calls on the CPU, {request.steps} steps, seed {request.seed}"
    report(f"the original is run: {sides.entry}, {options}.")
    before = shared_paths.find_change_times(request.arguments)
    with SecondRun("original", plan) as second:
        original = run_side("original", plan, sides, report)
        carried = Carried(request, sides, stage, original, base=original, earlier=earlier)
        carried.branches = find_branches(sides.original_script, sides.root.resolve())
        carried.shared = shared_paths.find_written_since(before)
        if not original.is_finished:
            second.stop()
            return carried
        again = finish_second_run(second, report)
    report(f"the migrated script is run, with a stand-in for the {request.to} on the CPU.")
    plan = derive_plan("migrated", plan, request, sides)
    with SecondRun("migrated", plan) as second:
        carried.migrated = run_side("migrated", plan, sides, report)
        if carried.migrated.is_finished:
            carried.repeated = [compare_runs(original, again, "original")] if again is not None else []
            if (again := finish_second_run(second, report)) is not None:
                carried.repeated.append(compare_runs(carried.migrated, again, "migrated"))
        else:
            second.stop()
    edits = coverage.read_edits(carried.migrated.plan, sides, "migrated")
    edits += coverage.read_edits(original.plan, sides, "original")
    carried.edits = mark_executed_earlier(edits, earlier)
    if not carried.migrated.is_finished:
        return carried
    carried.speed = measure_speed(carried)
    compare_sides(carried, report)
    if any(hit["mode"] == "error" for hit in carried.limits):  # the card would refuse what the stand-in ran
        carried.verdict = "could not run"
    return carried


def finish_second_run(second: SecondRun, report: Report) -> Run | None:
    """Return the second run of a side after its end, or None if it left no summary; raise Interrupted for a signal."""
    again = second.finish()
    if again is None:
        side = describe_side(second.side)
        report(f"the second run of {side} left no summary; its output is in {second.plan.record}.")
    elif again.summary.interrupted:
        raise Interrupted(again.summary.interrupted, f"while {describe_side(second.side)} ran")
    return again


def compare_sides(carried: Carried, report: Report) -> None:
    """Judge the agreement, find causes, suspects and doubts, and set the verdict.

    If something differs and the migration changed numbers on purpose, the migrated run is judged against a run of the
    original with these changes instead.
    """
    agreement = carried.agreement = judge_agreement(carried, report)
    if agreement.verdict != "differ":
        compare_results(carried)  # for `has_other_results`; repeated below, since `base` may change
    if agreement.verdict == "differ" or has_other_results(carried):
        intended, join_ranks = reference.find_changing_rules(carried.sides), can_join_original_ranks(carried)
        if intended or join_ranks:
            agreement = judge_with_intended_changes(carried, intended, join_ranks, report) or agreement
    carried.agreement = agreement
    assert carried.migrated is not None
    perturbed = carried.finished_perturbed.plan.record if carried.finished_perturbed is not None else None
    if agreement.pairs:
        # In a drift the migrated run is the left side; in an agreement it is the right one.
        carried.drift = compare_tensors(carried.migrated.plan.record, carried.base.plan.record, perturbed, agreement)
    base, migrated, folder = carried.base.observed, carried.migrated.observed, carried.sides.folder
    carried.idle = find_idle_optimizers(base, migrated)
    if agreement.verdict == "differ":
        assert carried.drift is not None
        carried.explanation = explain(agreement, base, migrated, carried.drift, carried.request.to)
        carried.suspects = find_suspects(carried.sides, carried.explanation)
        lines = [f"{(folder / suspect.file).resolve()}:{suspect.line}" for suspect in carried.suspects]
        keywords = carried.explanation.keywords
        carried.explanation.changed_settings.sort(key=lambda setting: make_relevance_key(setting, lines, keywords))
    else:
        lines_by_file = carried.sides.deviating_lines.items()
        deviating = {(str((folder / path).resolve()), line) for path, lines in lines_by_file for line in lines}
        carried.ineffective = find_ineffective(base, migrated, deviating)
    compare_results(carried)
    carried.doubts = find_doubts(carried)
    carried.verdict = choose_verdict(carried)


def has_other_results(carried: Carried) -> bool:
    """Return True if network inputs, evaluations, printed numbers or written files differ."""
    has_other_outcomes = carried.outcomes is not None and bool(carried.outcomes.differing)
    return has_other_outcomes or any(file.state == "differs" for file in carried.written)


def compare_results(carried: Carried) -> None:
    """Compare network inputs, evaluations, printed numbers and written files.

    Runs that agree exactly must print the same numbers. Others may differ by the largest tolerance of a loss, and
    by at least 1e-6 (relative).
    """
    assert carried.agreement is not None
    assert carried.migrated is not None
    tolerances = [pair.allowed for pair in carried.agreement.informative_pairs("loss")]
    allowed = max([1e-6, *tolerances]) if carried.agreement.verdict != "same" else 0.0
    # A `base` with intended changes has no second run.
    base_again = find_second_run(carried.repeated, "original") if carried.base is carried.original else None
    migrated_again = find_second_run(carried.repeated, "migrated")
    carried.outcomes = compare_outcomes(carried.base, base_again, carried.migrated, migrated_again, allowed)
    perturbed = carried.finished_perturbed if carried.agreement.verdict != "same" else None
    runs = Runs(carried.base, carried.migrated, base_again, migrated_again, perturbed, allowed)
    carried.written = compare_written(runs)


def choose_verdict(carried: Carried) -> Verdict:
    """Return the verdict. A doubt that may hide differences comes first, then a difference, then other doubts."""
    assert carried.agreement is not None
    if any(doubt.hides_differences for doubt in carried.doubts):
        return "not proved"
    if carried.agreement.verdict == "differ":
        return "differs"
    return "not proved" if carried.doubts else "agrees"


def make_relevance_key(setting: ChangedSetting, suspected: list[str], keywords: tuple[str, ...]) -> tuple[bool, int]:
    """Return a sort key: settings with a keyword or of the likeliest line first, then by the order of `suspected`.

    `suspected`: lines as FILE:LINE, the likeliest first.
    """
    location = f"{setting.right_at[0]}:{setting.right_at[1]}" if setting.right_at else ""
    has_keyword = any(keyword in f"{setting.name} {setting.what}" for keyword in keywords)
    is_likeliest = bool(suspected) and location == suspected[0]
    return not (has_keyword or is_likeliest), suspected.index(location) if location in suspected else len(suspected)


def judge_agreement(carried: Carried, report: Report) -> Agreement:
    """Judge the migrated run against `base`; run `base` with perturbed weights if rounding may explain a difference."""
    assert carried.migrated is not None
    base = carried.base
    pairs = judging.pair_observations(base.observed, carried.migrated.observed)
    if not judging.needs_perturbed_run(pairs):
        return judging.judge(pairs)
    report(
        "they are not exactly equal: to measure the effect of rounding, the original is run once more with its "
        "weights moved by one unit in the last place."
    )
    perturbed = run_perturbed(carried, base, report)
    if not perturbed.is_finished:
        reason = perturbed.summary.failure or f"exit code {perturbed.summary.script_exit_code}"
        return Agreement("unsure", pairs, [NO_PERTURBED_RUN.format(reason=reason.splitlines()[0].rstrip("."))])
    perturbed_pairs = judging.pair_observations(base.observed, perturbed.observed)
    is_deterministic = any(repetition.is_equal for repetition in carried.repeated if repetition.side == "original")
    return judging.judge(pairs, perturbed_pairs, is_deterministic)


def run_perturbed(carried: Carried, base: Run, report: Report) -> Run:
    """Return `base` run with its weights moved by one unit in the last place; an earlier such run is reused."""
    perturbed = carried.perturbed
    original_plan, script, join_ranks = carried.original.plan, base.plan.script, base.plan.join_ranks
    if perturbed is None or (perturbed.plan.script, perturbed.plan.join_ranks) != (script, join_ranks):
        plan = derive_plan("shaken", original_plan, carried.request, carried.sides, Path(script))
        plan = replace(plan, join_ranks=join_ranks)
        if perturbed is not None:
            plan = set_record(plan, Path(plan.record).with_name("shaken_reference"))
        carried.perturbed = perturbed = run_side("shaken", plan, carried.sides, report)
    return perturbed


def can_join_original_ranks(carried: Carried) -> bool:
    """Return True if the ranks, of TensorFlow 1, train together after the migration only.

    Then a run of the original can let its ranks train together, too (`Plan.join_ranks`).
    """
    assert carried.migrated is not None
    original, migrated = carried.original.observed, carried.migrated.observed
    return carried.stage == "tf1" and not did_ranks_train_together(original) and did_ranks_train_together(migrated)


def judge_with_intended_changes(
    carried: Carried, rules: dict[str, str], join_ranks: bool, report: Report
) -> Agreement | None:
    """Judge against the original with only the intended changes; None if that run fails.

    `rules`: the rules that change numbers, with descriptions. `join_ranks`: let the ranks train together.
    """
    names = [*rules, *(["ranks that train together"] if join_ranks else [])]
    report(f"known to change numbers: {', '.join(names)}; the original is run once more with these changes alone.")
    script = reference.write_reference(carried.request, carried.sides, tuple(rules)) if rules else None
    plan = derive_plan("reference", carried.original.plan, carried.request, carried.sides, script)
    plan = replace(plan, join_ranks=join_ranks)
    base = run_side("reference", plan, carried.sides, report)
    if not base.is_finished:
        return None
    carried.base, carried.intended_changes = base, [*rules.values(), *([reference.JOINED_RANKS] if join_ranks else [])]
    return judge_agreement(carried, report)
