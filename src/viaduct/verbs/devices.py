"""viaduct devices"""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from viaduct.extras import require

if TYPE_CHECKING:
    from rich.console import Console

    from viaduct.devices.base import DeviceFacts
    from viaduct.devices.card_check import CardCheck

ROWS = ("present", "description", "memory free", "precisions", "collective", "graph capture", "versions")


def main(
    test: Annotated[bool, typer.Option("--test", help="Run one training step on every card.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show the devices of this machine, and what is missing for the others.

    With --test, every card, and the CPU, trains one step in each of its precisions, which is checked against the same
    step on the CPU in fp32. Exit code 1: a check failed.
    """
    if test:
        require("torch")
    facts = collect_facts()
    notes = list_notes(facts)
    checks = check_present_cards() if test else []
    if json:
        report: dict[str, object] = {"devices": [asdict(fact) for fact in facts], "notes": notes}
        if test:
            report["tests"] = [asdict(check) for check in checks]
        typer.echo(json_format.dumps(report, indent=2))
    else:
        print_devices(facts, notes, checks)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def collect_facts() -> list[DeviceFacts]:
    from viaduct import devices
    from viaduct.devices.base import collect_facts
    from viaduct.devices.hardware import collect_facts_without_torch
    from viaduct.extras import is_installed

    if not is_installed("torch"):
        return collect_facts_without_torch()
    return [collect_facts(devices.get(name)) for name in devices.names()]


def list_notes(facts: list[DeviceFacts]) -> list[str]:
    """Return notes about old drivers, and about plug-ins for another release of torch that no `missing` describes."""
    from viaduct.devices.hardware import describe_old_driver
    from viaduct.devices.plugin_match import find_mismatched_plugins
    from viaduct.extras import is_installed

    notes = [note for fact in facts if (note := describe_old_driver(fact.name, fact.versions.get("driver")))]
    if not is_installed("torch"):
        return notes
    import torch

    reported = "\n".join(fact.missing or "" for fact in facts)
    mismatches = find_mismatched_plugins(torch.__version__)
    return [*(f"{mismatch}\n{mismatch.hint}" for mismatch in mismatches if mismatch.hint not in reported), *notes]


def check_present_cards() -> list[CardCheck]:
    from viaduct import devices
    from viaduct.devices.card_check import check_cards

    present = [device for device in map(devices.get, devices.names()) if device.is_available()]
    return [check for device in present for check in check_cards(device)]


def print_devices(facts: list[DeviceFacts], notes: list[str], checks: list[CardCheck]) -> None:
    from viaduct.terminal import make_console

    console = make_console()
    print_facts(console, facts)
    for fact in facts:
        if fact.missing is not None:
            console.print(f"{fact.name}: " + fact.missing.replace("\n", "\n  "), soft_wrap=True)
    for note in notes:
        console.print(f"note: {note}".replace("\n", "\n  "), soft_wrap=True)
    if checks:
        print_checks(console, checks)


def print_facts(console: Console, facts: list[DeviceFacts]) -> None:
    from rich import box
    from rich.table import Table

    from viaduct.terminal import print_table

    table = Table("", *(fact.name for fact in facts), box=box.SIMPLE)
    for label, *cells in zip(ROWS, *map(format_cells, facts), strict=True):
        table.add_row(label, *cells)
    print_table(table, console)


def format_cells(fact: DeviceFacts) -> list[str]:
    versions = "\n".join(f"{name} {version}" for name, version in fact.versions.items())
    if not fact.present:
        return ["no", *[""] * (len(ROWS) - 2), versions]
    return [
        f"{fact.count} cards" if fact.count > 1 else "yes",
        fact.description or "",
        "" if fact.memory_free_bytes is None else f"{fact.memory_free_bytes / 2**30:.0f} GiB",
        " ".join(("fp32", *fact.precisions)),
        fact.collective or "",
        fact.graph_capture or "none",
        versions,
    ]


def print_checks(console: Console, checks: list[CardCheck]) -> None:
    from rich import box
    from rich.table import Table

    from viaduct.terminal import make_number_columns, print_table

    figures = make_number_columns("step", "difference", "allowed")
    table = Table("device", "precision", *figures, "result", box=box.SIMPLE)
    for check in checks:
        table.add_row(
            check.device,
            check.precision,
            "" if check.milliseconds is None else f"{check.milliseconds:.1f} ms",
            "" if check.difference is None else f"{check.difference:.1e}",
            f"{check.tolerance:g}",
            "ok" if check.ok else f"failed: {check.reason}",
        )
    print_table(table, console)
    console.print(
        "Difference: largest relative error of a tensor's update, against the same step on the CPU in fp32.",
        soft_wrap=True,
    )
