"""A carrying from end to end: migrate, rehearse both sides, compare, explain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from viaduct.carrying import agreement as judging
from viaduct.carrying import coverage, reference, sharing
from viaduct.carrying.agreement import Agreement
from viaduct.carrying.asked import Asked
from viaduct.carrying.branching import Branch, branches
from viaduct.carrying.causes import Explanation, Other, explain, idle, without_effect
from viaduct.carrying.coverage import Edit
from viaduct.carrying.doubts import Doubt, find_doubts
from viaduct.carrying.drift import compare_tensors
from viaduct.carrying.earlier import Earlier, add_earlier, read_earlier, refuse_changed_files
from viaduct.carrying.migrated import Sides, migrate, write
from viaduct.carrying.observed import together
from viaduct.carrying.outcomes import Outcomes, compare_outcomes
from viaduct.carrying.places import check_out, prepared
from viaduct.carrying.repeating import Repetition, SecondRun, compare_runs
from viaduct.carrying.running import (
    Interrupted,
    Run,
    find_step_at,
    move_step_at,
    plan_for,
    plan_of,
    run,
    side_words,
    stage_of,
)
from viaduct.carrying.speed import Speed, measure_speed
from viaduct.carrying.suspects import Suspect, suspects
from viaduct.carrying.written import Runs, Written, compare_written
from viaduct.comparison.drift import Drift
from viaduct.rehearsal.looking import Fact
from viaduct.rehearsal.plan import StageName

Tell = Callable[[str], None]
Verdict = Literal["agrees", "differs", "not proved", "could not run"]
NO_YARDSTICK = (
    "They are not equal in every bit, and whether rounding explains it is not known: the run of the original with its "
    "weights moved by one unit failed ({reason})"
)
EXIT_CODES: dict[Verdict, int] = {"agrees": 0, "differs": 1, "could not run": 2, "not proved": 3}


@dataclass
class Carried:
    """What came of it. `base` is the run that the migrated one is compared with: the original, or one that has those
    changes of the migration which are known to change numbers."""

    asked: Asked
    sides: Sides
    stage: StageName
    original: Run
    verdict: Verdict
    migrated: Run | None = None
    base: Run | None = None
    shaken: Run | None = None
    agreement: Agreement | None = None
    drift: Drift | None = None  # the same tensors, compared as `viaduct compare` does it
    explanation: Explanation | None = None
    suspects: list[Suspect] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    known: list[str] = field(default_factory=list)  # changes of numbers that were meant
    unfelt: list[Other] = field(default_factory=list)  # made differently, though both agree
    idle: list[Fact] = field(default_factory=list)  # optimizers that took no step
    shared: list[str] = field(default_factory=list)  # full paths that the original wrote to, and the other run found
    edits: list[Edit] = field(default_factory=list)  # the changed lines, and how often each was executed
    earlier: list[Earlier] = field(default_factory=list)  # carries before this one, whose executed edits count
    repeated: list[Repetition] = field(default_factory=list)  # the second run of each side
    speed: Speed | None = None  # on the stand-ins; no part of the verdict
    outcomes: Outcomes | None = None  # what was printed, and evaluations
    written: list[Written] = field(default_factory=list)  # files
    doubts: list[Doubt] = field(default_factory=list)  # what keeps the comparison from being a proof
    aside: Path | None = None  # where the old content of OUT is now

    @property
    def exit_code(self) -> int:
        """0 only where the migrated run finished and agrees."""
        return EXIT_CODES[self.verdict]

    @property
    def failed_run(self) -> Run | None:
        """The run that did not come through; None where both did."""
        return next((run for run in (self.original, self.migrated) if run is not None and not run.finished), None)

    @property
    def limits(self) -> list[dict[str, Any]]:
        return self.migrated.summary.limits if self.migrated is not None else []


def carry(asked: Asked, tell: Tell, finish: Callable[[Carried], None]) -> Carried:
    """`finish` writes the report while OUT is still being made: an error of ours leaves nothing half-written."""
    check_out(asked.source, asked.out, asked.force)
    earlier = [read_earlier(folder, asked.out, asked.to, asked.limits) for folder in asked.earlier]
    sides = migrate(asked)
    stage = stage_of(asked, sides)
    move_step_at(find_step_at(asked, sides), sides)  # which refuses a line that is not there
    tell(f"this executes {sides.entry}, with your rights, each time in a folder of its own.")
    with prepared(asked.out) as aside:
        write(sides, asked)
        refuse_changed_files(earlier, sides.root.resolve(), sides.folder.resolve())
        carried = travel(asked, sides, stage, earlier, tell)
        carried.aside = aside
        finish(carried)
    return carried


def travel(asked: Asked, sides: Sides, stage: StageName, earlier: list[Earlier], tell: Tell) -> Carried:
    plan = plan_of(asked, sides, stage, tell)
    tell(f"the original is run: {sides.entry}, its CUDA calls on the CPU, {asked.steps} steps, seed {asked.seed}.")
    before = sharing.newest(asked.arguments)
    with SecondRun("original", plan) as second:
        original = run("original", plan, sides, tell)
        carried = Carried(asked, sides, stage, original, "could not run", base=original, earlier=earlier)
        carried.branches = branches(sides.original, sides.root.resolve())
        carried.shared = sharing.written_since(before)
        if not original.finished:
            second.stop()
            return carried
        again = repeat(second, tell)
    tell(f"the migrated script is run: a stand-in on the CPU plays the {asked.to}.")
    plan = plan_for("migrated", plan, asked, sides)
    with SecondRun("migrated", plan) as second:
        carried.migrated = run("migrated", plan, sides, tell)
        if carried.migrated.finished:
            carried.repeated = [compare_runs(original, again, "original")] if again is not None else []
            if (again := repeat(second, tell)) is not None:
                carried.repeated.append(compare_runs(carried.migrated, again, "migrated"))
        else:
            second.stop()
    edits = [*coverage.read(carried.migrated.plan, sides, "migrated"), *coverage.read(original.plan, sides, "original")]
    carried.edits = add_earlier(edits, earlier)
    if not carried.migrated.finished:
        return carried
    carried.speed = measure_speed(carried)
    compare(carried, tell)
    if any(hit["mode"] == "error" for hit in carried.limits):
        carried.verdict = "could not run"
    return carried


def repeat(second: SecondRun, tell: Tell) -> Run | None:
    again = second.finish()
    if again is None:
        tell(f"the second run of the {second.side} has left nothing; its output is in {second.plan.record}.")
    elif again.summary.interrupted:
        raise Interrupted(again.summary.interrupted, f"while {side_words(second.side)} ran")
    return again


def compare(carried: Carried, tell: Tell) -> None:
    found = carried.agreement = judged(carried, tell)
    if found.verdict != "differ":
        compare_results(carried)
    if found.verdict == "differ" or has_other_results(carried):
        known = reference.rules_that_count(carried.sides)
        if known or joins_ranks(carried):
            found = with_known_changes(carried, known, joins_ranks(carried), tell) or found
    carried.agreement = found
    assert carried.base is not None
    assert carried.migrated is not None
    shaken = carried.shaken.plan.record if carried.shaken is not None and carried.shaken.finished else None
    carried.drift = compare_tensors(carried.migrated.plan.record, carried.base.plan.record, shaken, found)
    carried.idle = idle(carried.base.observed, carried.migrated.observed)
    if found.verdict != "differ":
        unlike = {(str((carried.sides.folder / f).resolve()), n) for f, ns in carried.sides.unlike.items() for n in ns}
        carried.unfelt = without_effect(carried.base.observed, carried.migrated.observed, unlike)
    if found.verdict == "differ":
        carried.explanation = explain(
            found, carried.base.observed, carried.migrated.observed, carried.drift, carried.asked.to
        )
        carried.suspects = suspects(carried.sides, carried.explanation)
        at = [str((carried.sides.folder / one.file).resolve()) + f":{one.line}" for one in carried.suspects]
        words = carried.explanation.words
        carried.explanation.others.sort(key=lambda other: rank_of(other, at, words))
    compare_results(carried)
    carried.doubts = find_doubts(carried)
    carried.verdict = decide(carried)


def has_other_results(carried: Carried) -> bool:
    """Return True if something that was printed, evaluated or written differs."""
    printed = carried.outcomes is not None and bool(carried.outcomes.differing)
    return printed or any(file.state == "differs" for file in carried.written)


def compare_results(carried: Carried) -> None:
    """Compare what was printed, evaluated and written.

    Only numbers that rounding cannot explain count, so that runs that agree in every bit must print the same.
    """
    assert carried.agreement is not None
    assert carried.base is not None
    assert carried.migrated is not None
    again = {one.side: one.again for one in carried.repeated}
    judged = [pair.allowed for pair in carried.agreement.judged("loss")]
    allowed = max([1e-6, *judged]) if carried.agreement.verdict != "same" else 0.0
    base = again.get("original") if carried.base is carried.original else None
    carried.outcomes = compare_outcomes(carried.base, base, carried.migrated, again.get("migrated"), allowed)
    shaken = carried.shaken if carried.shaken is not None and carried.shaken.finished else None
    shaken = shaken if carried.agreement.verdict != "same" else None
    carried.written = compare_written(
        Runs(carried.base, carried.migrated, base, again.get("migrated"), shaken, allowed)
    )


def decide(carried: Carried) -> Verdict:
    """A difference counts only where each side ran its own files; an agreement only where nothing was left out."""
    assert carried.agreement is not None
    if any(doubt.hides_differences for doubt in carried.doubts):
        return "not proved"
    if carried.agreement.verdict == "differ":
        return "differs"
    return "not proved" if carried.doubts else "agrees"


def rank_of(other: Other, suspected: list[str], words: tuple[str, ...]) -> tuple[bool, int]:
    """What the difference is about comes first, then what was made in a suspected line."""
    place = f"{other.right_at[0]}:{other.right_at[1]}" if other.right_at else ""
    named = any(word in f"{other.name} {other.what}" for word in words)
    likeliest = bool(suspected) and place == suspected[0]
    return not (named or likeliest), suspected.index(place) if place in suspected else len(suspected)


def judged(carried: Carried, tell: Tell) -> Agreement:
    """Against `base`; a shaken run of it where rounding may be the reason."""
    assert carried.base is not None
    assert carried.migrated is not None
    base = carried.base
    pairs = judging.measure(base.observed, carried.migrated.observed)
    if not judging.needs_a_yardstick(pairs):
        return judging.judge(pairs)
    tell(
        "they are not equal in every bit: the original is run once more, its weights moved by one unit, as a yardstick."
    )
    shaken = run_shaken(carried, base, tell)
    if not shaken.finished:
        reason = shaken.summary.failure or f"exit code {shaken.summary.script_exit_code}"
        return Agreement("unsure", pairs, [NO_YARDSTICK.format(reason=reason.splitlines()[0].rstrip("."))])
    yardstick = judging.measure(base.observed, shaken.observed)
    return judging.judge(pairs, yardstick, repeats=repeats_itself(carried))


def run_shaken(carried: Carried, base: Run, tell: Tell) -> Run:
    """Run `base` with its weights moved by one unit, once."""
    shaken = carried.shaken
    if shaken is None or (shaken.plan.script, shaken.plan.joined) != (base.plan.script, base.plan.joined):
        plan = plan_for("shaken", carried.original.plan, carried.asked, carried.sides, Path(base.plan.script))
        plan = replace(plan, joined=base.plan.joined)
        if shaken is not None:
            plan = reference.renamed(plan, "shaken_reference")
        carried.shaken = shaken = run("shaken", plan, carried.sides, tell)
    return shaken


def repeats_itself(carried: Carried) -> bool:
    """Return True if the original was run twice and gave the same."""
    return any(repetition.is_equal for repetition in carried.repeated if repetition.side == "original")


def joins_ranks(carried: Carried) -> bool:
    """Return True where ranks train together after the migration, each for itself before, and we can join them."""
    assert carried.migrated is not None
    return carried.stage == "tf1" and not together(carried.original.observed) and together(carried.migrated.observed)


def with_known_changes(carried: Carried, rules: dict[str, str], joined: bool, tell: Tell) -> Agreement | None:
    """The original once more, with the changes that are known to change numbers: what is left is not meant."""
    names = [*rules, *(["ranks that train together"] if joined else [])]
    tell(f"known to change numbers: {', '.join(names)}; the original is run once more with that alone.")
    script = reference.write(carried.asked, carried.sides, tuple(rules)) if rules else None
    plan = plan_for("reference", carried.original.plan, carried.asked, carried.sides, script)
    plan = replace(plan, joined=joined)
    made = run("reference", plan, carried.sides, tell)
    if not made.finished:
        return None
    carried.base, carried.known = made, [*rules.values(), *([reference.JOINED] if joined else [])]
    return judged(carried, tell)
