"""carry.json: the result of a carry for other programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from viaduct import __version__
from viaduct.carrying import coverage
from viaduct.carrying.agreement import ValuePair
from viaduct.carrying.carry import CarryResult
from viaduct.carrying.commands import list_commands
from viaduct.carrying.faults import find_fault
from viaduct.carrying.running import Run
from viaduct.carrying.sentences import list_remarks, make_headline
from viaduct.carrying.speed import Speed
from viaduct.json_records import finite_or_null


def write(result: CarryResult, path: Path) -> None:
    text = json.dumps(as_record(result), indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def as_record(result: CarryResult) -> dict[str, Any]:
    request, agreement = result.request, result.agreement
    first = agreement.first_bad if agreement else None
    return {
        "tool": {"name": "viaduct", "version": __version__, "verb": "carry"},
        "verdict": result.verdict,
        "exit_code": result.exit_code,
        "not_proved": [asdict(doubt) for doubt in result.doubts],
        "fault": describe_fault(result),
        "headline": make_headline(result),
        "remarks": [{"name": name, "text": text} for name, text in list_remarks(result)],
        "command": request.command,
        "to": request.to,
        "framework": result.framework,
        "entry": result.sides.entry,
        "arguments": list(request.arguments),
        "steps": request.steps,
        "ranks": request.ranks,
        "seed": request.seed,
        "bitwise": agreement is not None and agreement.verdict == "same",
        "first_difference": describe_pair(first) if first else None,
        "module": result.explanation.module if result.explanation else "",
        "made_differently": [asdict(setting) for setting in result.explanation.changed_settings]
        if result.explanation
        else [],
        "without_effect": [finite_or_null(asdict(setting)) for setting in result.ineffective_settings],
        "suspects": [asdict(suspect) | {"place": suspect.place} for suspect in result.suspects],
        "pairs": [describe_pair(pair) for pair in agreement.pairs] if agreement else [],
        "limits": result.met_limits,
        "manual_review": [
            {"place": location, "risk": finding.risk, "rule": finding.rule, "text": finding.message}
            for location, finding in result.sides.manual_findings
        ],
        "speed": describe_speed_record(result.speed),
        "printed": asdict(result.further_results) if result.further_results is not None else None,
        "files": [asdict(file) for file in result.written_files],
        "repeated": {
            side: {
                "equal": repetition.is_equal,
                "deterministic": repetition.is_deterministic,
                "finished": repetition.second_run.is_finished,
            }
            for side, repetition in result.repetitions.items()
        },
        "limits_mode": request.limits,
        "earlier": [{"folder": carry.folder, "arguments": carry.arguments} for carry in result.earlier_carries],
        "edits": coverage.as_record(result.edits),
        "branches": [{"file": test.file, "line": test.line, "text": test.text} for test in result.device_tests],
        "commands": [
            {"for": name, "command": line} for name, line in list_commands(request, result.sides, result.framework)
        ],
        "runs": {run.name: describe_run(run) for run in list_runs(result)},
    }


def describe_speed_record(speed: Speed | None) -> dict[str, Any] | None:
    if speed is None:
        return None
    computed = {"ratio": speed.ratio, "noise": speed.noise, "beyond_noise": speed.is_beyond_noise}
    return {"unit": "steps/s", **asdict(speed), **computed}


def describe_fault(result: CarryResult) -> dict[str, str] | None:
    """Return the side that failed and what is at fault; None unless the verdict is "could not run"."""
    if result.verdict != "could not run":
        return None
    if result.failed_run is None:  # both sides finished, but the card would refuse what the stand-in ran
        return {"side": "migrated", "whose": "limit"}
    fault = find_fault(result.failed_run)
    return {"side": result.failed_run.side, "whose": fault.owner, "text": fault.text, "advice": fault.advice}


def list_runs(result: CarryResult) -> list[Run]:
    """Return the first runs, without duplicates: the golden run is often the original."""
    runs = [result.original, result.migrated, result.golden_run, result.perturbed]
    return list({id(run): run for run in runs if run is not None}.values())


def describe_run(run: Run) -> dict[str, Any]:
    summary = run.summary.as_record()
    names = ("script", "on", "steps", "exit_code", "seconds", "peak_bytes", "failure", "versions")
    return {name: summary[name] for name in names} | run.executed_files.as_record()


def describe_pair(pair: ValuePair) -> dict[str, Any]:
    return {**finite_or_null(asdict(pair)), "same": pair.same, "bad": pair.bad}
