"""viaduct ranktable"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from viaduct.cluster import convert as conversion
from viaduct.cluster import generate
from viaduct.cluster.device_ips import AUTO
from viaduct.cluster.draft import Template
from viaduct.cluster.environment import DEFAULT_JOB, DEFAULT_PORT, Target, format_exports
from viaduct.cluster.findings import format_count
from viaduct.cluster.ranktable import RankTable, read_bytes, read_table
from viaduct.cluster.rules import DEFAULT_CARD, Card, Examination, examine
from viaduct.errors import BadValue
from viaduct.terminal import print_note
from viaduct.verbs._grouped_help import AsJson, Subcommands

app = Subcommands("Make, check, show and convert the rank tables that describe a cluster.")
File = Annotated[Path, typer.Argument(help="A rank table, template 1 or 2.", metavar="FILE")]
CardOption = Annotated[
    Card, typer.Option("--card", help="Card whose rules apply; `other`: GPUs, MLUs or CPUs, any number of devices.")
]
Present = Annotated[
    int | None, typer.Option(help="Number of devices that each server has.", show_default="not checked", min=0)
]
DeviceIps = Annotated[
    list[str] | None,
    typer.Option(
        help="`auto` chooses addresses; else a CSV of server,device,ip, a folder of SERVER.conf (hccn.conf files), "
        "or one flag for each server's hccn.conf, in the order of servers.",
        metavar="auto|FILE",
        show_default=False,
    ),
]
Out = Annotated[Path | None, typer.Option(help="File to write.", show_default="stdout")]
TEMPLATES: dict[str, Template] = {"1": 1, "2": 2}
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


@app.command()
def make(
    servers: Annotated[str, typer.Option(help="Addresses of the servers in the order of ranks, with commas.")],
    devices: Annotated[
        str, typer.Option(help="Devices of each server: 8 means the first eight; or 4,5,6,7; or 4-7.")
    ] = "8",
    device_ips: DeviceIps = None,
    out: Out = None,
    template: Annotated[Literal["1", "2"], typer.Option(help="1, or the older 2.")] = "1",
    card: CardOption = DEFAULT_CARD,
    present: Present = None,
    force: Force = False,
) -> None:
    """Write a rank table for these servers. A table with errors is not written."""
    names, numbers = generate.parse_servers(servers), generate.parse_devices(devices)
    text = generate.make_table(
        names, numbers, device_ips or [], card=card, present=present, template=TEMPLATES[template]
    )
    write_or_print(text, out, force, f"{format_size(len(numbers) * len(names), len(names))}, template {template}")
    for warning in generate.list_warnings(text, card):
        print_note(f"Note: {warning}.")
    if device_ips == [AUTO]:
        print_note("The device addresses are a plan. Devices that have others must be given these, on each server:")
        print_note("  hccn_tool -i DEVICE -ip -s address ADDRESS netmask 255.255.255.0")


@app.command()
def check(
    file: File,
    card: CardOption = DEFAULT_CARD,
    present: Present = None,
    as_json: AsJson = False,
) -> None:
    """Check a table; print each violated rule with its place and a fix. Exit code 1: errors. 0: at most warnings."""
    examination = examine(read_bytes(file), card, present)
    if as_json:
        print(json.dumps(build_record(file, examination), indent=1))
    else:
        print_findings(file, examination)
    if examination.errors:
        raise typer.Exit(1)


@app.command()
def show(file: File, card: CardOption = DEFAULT_CARD) -> None:
    """Draw the servers, their devices and ranks."""
    from viaduct.cluster.drawing import draw_table
    from viaduct.terminal import make_console

    table = read_table(file, card)
    draw_table(table, make_console())
    print_warnings(table)


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(help="A rank table or a hostfile.", metavar="FILE")],
    to: Annotated[Literal["1", "2", "hostfile"], typer.Option(help="Template 1 or 2, or `HOST slots=N` lines.")],
    out: Out = None,
    device_ips: DeviceIps = None,
    renumber: Annotated[bool, typer.Option("--renumber", help="Number the ranks server by server.")] = False,
    card: CardOption = DEFAULT_CARD,
    force: Force = False,
) -> None:
    """Change the form of a rank table: template 1, template 2, hostfile. Comments are dropped."""
    table = conversion.read_table_or_hostfile(file, device_ips or [], card, needs_addresses=to != "hostfile")
    print_warnings(table, except_rule="ranks-consecutive" if renumber else "")
    table = conversion.renumber(table) if renumber else table
    if to == "hostfile":
        text = conversion.render_hostfile(table)
        for sentence in conversion.describe_lost_devices(table):
            print_note(f"Note: {sentence}.")
    else:
        text = conversion.render_template(table, TEMPLATES[to], card)
        if table.path is None:  # a table made from a hostfile has no warnings yet
            for warning in generate.list_warnings(text, card):
                print_note(f"Note: {warning}.")
    write_or_print(text, out, force, format_size(table.size, len(table.servers)))


@app.command()
def env(
    file: File,
    rank: Annotated[
        int | None, typer.Option(help="Print the variables of this rank's process.", show_default=False)
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="Print the variables for torchrun on this server.", metavar="IP", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option(help="MASTER_PORT, which rank tables do not contain.")] = DEFAULT_PORT,
    job: Annotated[str, typer.Option(help="JOB_ID, the same for all processes of a job.")] = DEFAULT_JOB,
    target: Annotated[
        Target | None, typer.Option(help="Also set this device's list of visible devices.", show_default=False)
    ] = None,
    card: CardOption = DEFAULT_CARD,
) -> None:
    """Print the environment variables for a rank's process, or for torchrun on a server, as `export` lines."""
    if rank is not None and server is not None:
        raise BadValue(
            f"--rank {rank} and --server {server} were both given.",
            "Give one of them: --rank N for one process, --server IP for torchrun on a server.",
        )
    if rank is None and server is None:
        raise BadValue("whose variables?", "Give --rank N for one process, or --server IP for torchrun on a server.")
    table = read_table(file, card)
    if rank is not None:
        name = table.find_position(rank).server.server_id
        variables = table.environment(rank, port=port, job=job, target=target)
    else:
        name = server or ""
        variables = table.server_environment(name, port=port, job=job, target=target)
    print(format_exports(variables), end="")
    print_warnings(table)
    numbers = [device.device_id for device in table.server(name).devices]
    if target is None and numbers != list(range(len(numbers))):
        print_note(
            f"Note: the devices are {', '.join(map(str, numbers))}. torch counts from 0: give --target to map them."
        )


def write_or_print(text: str, out: Path | None, force: bool, size: str) -> None:
    """Print a table, or write it to --out and print its size."""
    if out is None:
        print(text, end="")
    else:
        generate.write_text_file(text, out, force)
        print(f"{out}: {size}")


def format_size(devices: int, servers: int) -> str:
    return f"{format_count(devices, 'device')} on {format_count(servers, 'server')}"


def build_record(file: Path, examination: Examination) -> dict[str, object]:
    """Return the result of a check as a JSON object."""
    return {
        "file": str(file),
        "template": examination.draft.template if examination.draft else None,
        "servers": len(list_servers(examination)),
        "devices": len(examination.draft.devices) if examination.draft else 0,
        "errors": len(examination.errors),
        "warnings": len(examination.warnings),
        "findings": [finding.as_dict() for finding in examination.findings],
    }


def list_servers(examination: Examination) -> set[str]:
    """Return the distinct ids of the servers in a table."""
    servers = examination.draft.servers if examination.draft else []
    return {server.server_id.text for server in servers if server.server_id}


def print_findings(file: Path, examination: Examination) -> None:
    """Print all findings of a table, then its size and their number."""
    for finding in examination.findings:
        value = "" if finding.value is None else f" = {finding.value!r}"
        print(f"{finding.severity} {finding.rule}")
        print(f"  {finding.path}{value}")
        print(f"  {finding.wrong}.")
        print(f"  {finding.fix}")
    counts = f"{format_count(len(examination.errors), 'error')}, {format_count(len(examination.warnings), 'warning')}"
    if examination.draft is not None:
        size = format_size(len(examination.draft.devices), len(list_servers(examination)))
        counts = f"template {examination.draft.template}, {size}; {counts}"
    print(f"{file}: {counts}")


def print_warnings(table: RankTable, except_rule: str = "") -> None:
    """Print the warnings of a table on stderr, except those of one rule."""
    for finding in table.warnings:
        if finding.rule != except_rule:
            print_note(f"Note: {finding}.")
