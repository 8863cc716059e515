"""The answer in sentences, the same on the page, in the terminal and in carry.json."""

from __future__ import annotations

import math
from pathlib import Path

from viaduct.carrying.agreement import Kind, Pair
from viaduct.carrying.carry import Carried
from viaduct.carrying.running import Run

SHOWN = 3  # things that were made with other numbers, places that ask for the device


def headline(carried: Carried) -> str:
    to = carried.asked.to.upper()
    match carried.verdict:
        case "agrees":
            return agreement_headline(carried, to)
        case "differs":
            assert carried.explanation is not None
            return carried.explanation.headline
        case "unsure":
            return "Nothing is proved: the two runs are not equal, and it cannot be told why."
        case "limits":
            count = len(carried.limits)
            return f"The card would refuse it: {count} documented {'limit is' if count == 1 else 'limits are'} met."
        case "failed":
            return f"The migrated script does not run through on the {to} stand-in."
        case "no original":
            return "The original itself does not run through here, so there is nothing to compare with."


def agreement_headline(carried: Carried, to: str) -> str:
    """Claim the whole only where losses, gradients and weights were all seen and can all show a mistake."""
    assert carried.agreement is not None
    rounding = ", up to rounding" if carried.agreement.verdict == "rounding" else ""
    names: dict[Kind, str] = {"loss": "losses", "gradient": "gradients", "weight": "weights"}
    unseen = [names[kind] for kind in names if not carried.agreement.judged(kind)]
    if not unseen and not carried.agreement.remarks and not carried.idle:
        return (
            f"It arrives whole: on the {to} stand-in the migrated script computes what the original computes{rounding}."
        )
    if not unseen:
        return f"What could be compared on the {to} stand-in agrees{rounding}; the notes say what could not."
    seen = " and ".join(name for name in names.values() if name not in unseen)
    return f"The {seen} agree on the {to} stand-in{rounding}; {' and '.join(unseen)} could not be compared."


def remarks(carried: Carried) -> list[tuple[str, str]]:
    """(name, sentence), in the order in which they are read."""
    found = [*failure(carried), *where(carried), *compared(carried)]
    found += [
        ("Meant", f"Made in the original too, since it is known to change numbers: {what}.") for what in carried.known
    ]
    if carried.agreement is not None:
        found += [("Note", remark) for remark in (*carried.agreement.remarks, *unfelt(carried), *idle(carried))]
    for path in carried.shared:
        found.append(
            ("Shared", f"The original wrote to {path}, and the migrated script found it there: give a relative path.")
        )
    if carried.branches:
        places = ", ".join(f"original {branch.place}" for branch in carried.branches[:SHOWN])
        more = f" and {len(carried.branches) - SHOWN} more" if len(carried.branches) > SHOWN else ""
        found.append(
            ("Branches", f"The script asks which device it has, and may go another way there: {places}{more}.")
        )
    if carried.aside is not None:
        found.append(("Kept", f"What was in {carried.asked.out} before is now in {carried.aside}."))
    return found


def unfelt(carried: Carried) -> list[str]:
    """Two runs may agree because they were too short for what differs."""
    if not carried.unfelt:
        return []
    shown_ones = "; ".join(f"{other.words}{at(carried, other.right_at)}" for other in carried.unfelt[:SHOWN])
    more = f"; and {len(carried.unfelt) - SHOWN} more" if len(carried.unfelt) > SHOWN else ""
    return [f"Made differently, without effect in {steps(carried)}: {shown_ones}{more}. --steps N shows more of it."]


def idle(carried: Carried) -> list[str]:
    return [
        f"{fact.name[0].upper()}{fact.name[1:]} ({fact.what['class']}) took no step in {steps(carried)}"
        f"{at(carried, fact.at)}: what it does is not compared."
        for fact in carried.idle
    ]


def steps(carried: Carried) -> str:
    count = carried.original.summary.steps
    return f"{count} {'step' if count == 1 else 'steps'}"


def at(carried: Carried, place: tuple[str, int] | None) -> str:
    return f" ({shown(carried, place[0])}:{place[1]})" if place else ""


def failure(carried: Carried) -> list[tuple[str, str]]:
    """The card's limits say it best; without one, how the run ended and where."""
    if carried.verdict not in ("no original", "failed", "limits"):
        return []
    met = [("Limit", limit_words(carried, hit)) for hit in carried.limits if hit["mode"] == "error"]
    run = carried.original if carried.verdict == "no original" else carried.migrated
    if met or run is None:
        return met
    last = run.failed_at
    place = f", at {shown(carried, last[0])}:{last[1]}" if last else ""
    return [("What happened", f"{ending(run)}{place}.")]


def ending(run: Run) -> str:
    if run.summary.bound:
        return f"it was stopped by the limit of {run.summary.bound}"
    if run.summary.failure:
        return run.summary.failure.removesuffix(".")
    if run.summary.script_exit_code:
        return f"it ended with exit code {run.summary.script_exit_code}: {last_line(run.output)}"
    return "it took no training step"


def last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("viaduct ")]
    return lines[-1].strip().rstrip(".") if lines else "it said nothing"


def limit_words(carried: Carried, hit: dict[str, object]) -> str:
    place = hit["place"]
    line = f"{shown(carried, str(place['file']))}:{place['line']}: " if isinstance(place, dict) else ""
    return f"{line}{hit['name']}: {hit['what']} {hit['change']}"


def where(carried: Carried) -> list[tuple[str, str]]:
    found = carried.explanation
    if found is None:
        return []
    lines = [("What is known", remark) for remark in found.remarks]
    for other in found.others[:SHOWN]:
        lines.append(("Made differently", f"{other.words}{at(carried, other.right_at)}."))
    for one in carried.suspects[:2]:
        lines.append(
            ("Look at", f"migrated {one.place}: {one.new or 'gone: ' + one.old}" + (f" ({one.why})" if one.why else ""))
        )
    return lines


def compared(carried: Carried) -> list[tuple[str, str]]:
    if carried.agreement is None:
        return []
    parts = [kind_words(carried, kind) for kind in ("loss", "gradient", "weight")]
    return [("Compared", "; ".join(part for part in parts if part) + ".")]


def kind_words(carried: Carried, kind: Kind) -> str:
    assert carried.agreement is not None
    pairs = carried.agreement.of(kind)
    if not pairs:
        return f"no {kind} was seen"
    many = len(pairs) != 1
    what = {
        "loss": "losses" if many else "loss",
        "gradient": f"gradient{'s' * many} of the first step",
        "weight": f"weight{'s' * many} at the end",
    }[kind]
    equal = sum(pair.same for pair in pairs)
    if equal == len(pairs):
        return f"{len(pairs)} {what}, equal in every bit"
    return f"{len(pairs)} {what}, {equal} equal in every bit{worst_words(carried.agreement.judged(kind))}"


def worst_words(pairs: list[Pair]) -> str:
    """Of those that are judged: what tells nothing must not contradict the verdict."""
    measured = [pair for pair in pairs if not pair.why and math.isfinite(pair.error)]
    beyond = [pair.name for pair in pairs if not pair.why and not math.isfinite(pair.error)]
    worst = max(measured, key=lambda pair: pair.error, default=None)
    words = f", {len(beyond)} beyond measure (from zero, not finite, or whole numbers: {beyond[0]})" if beyond else ""
    if worst is None or not worst.error:
        return words
    rounding = f", where {worst.allowed:.1e} is allowed" if worst.noise else ""
    return f"{words}, the largest {'other ' if beyond else ''}difference {worst.error:.1e}{rounding}"


def shown(carried: Carried, file: str) -> str:
    """Which of the two sides a file is of, and its path there; another file by its name.

    Both sides have files of the same names, and a line has another number on each.
    """
    path = Path(file)
    for side, root in (("migrated", carried.sides.folder.resolve()), ("original", carried.sides.root.resolve())):
        if path.is_relative_to(root):
            return f"{side} {path.relative_to(root).as_posix()}"
    return path.name
