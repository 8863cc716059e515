"""A rank table as a picture in the terminal: a box per server, its devices in their two networks of four."""

from __future__ import annotations

from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from viaduct.cluster.findings import counted
from viaduct.cluster.ranktable import Device, RankTable, Server
from viaduct.terminal import print_table

BOXES_LIMIT = 16
"""More servers than this are drawn as a line each."""
A_ROW = 4


def draw(table: RankTable, console: Console) -> None:
    console.print(headline(table))
    if len(table.servers) > BOXES_LIMIT:
        print_table(as_lines(table), console)
        return
    boxes = [as_box(table, server) for server in table.servers]
    if console.is_terminal:
        console.print(Columns(boxes))
    else:  # a pipe has no width to fill: one box below the other
        console.print(*boxes, sep="\n")


def headline(table: RankTable) -> str:
    servers, devices = counted(len(table.servers), "server"), counted(table.size, "device")
    form = "super-pod" if table.super_pod else f"template {table.template}"
    return f"{table.name}: {form}, {servers}, {devices}; rank 0 is on {table.master}"


def as_box(table: RankTable, server: Server) -> Panel:
    grid = Table(*(Column(overflow="fold") for _ in range(A_ROW)), box=box.SQUARE, show_header=False, show_lines=True)
    for row in rows(server):
        grid.add_row(*row)
    return Panel.fit(grid, title=Text(title(table, server)), subtitle=Text(f"ranks {spans(server.ranks)}"))


def rows(server: Server) -> list[list[Text]]:
    """Devices 0-3 above 4-7; a row without any is left out, a device that is not used is a dot."""
    devices = {device.device_id: device for device in server.devices}
    starts = sorted({number // A_ROW * A_ROW for number in devices})
    return [[cell(number, devices.get(number)) for number in range(start, start + A_ROW)] for start in starts]


def cell(number: int, device: Device | None) -> Text:
    if device is None:
        return Text(f"device {number}\n·", style="dim")
    return Text.assemble(f"device {number}\n", (f"rank {device.rank}", "bold"), f"\n{device.device_ip}")


def title(table: RankTable, server: Server) -> str:
    return f"{server.server_id} · node {table.servers.index(server)}"


def as_lines(table: RankTable) -> Table:
    lines = Table("node", "server", "ranks", "devices", "addresses", box=None, pad_edge=False)
    for node, server in enumerate(table.servers):
        numbers = spans(sorted(device.device_id for device in server.devices))
        others = len(server.devices) - 1
        addresses = server.devices[0].device_ip + (f" and {others} more" if others else "")
        lines.add_row(str(node), Text(server.server_id), spans(server.ranks), numbers, addresses)
    return lines


def spans(numbers: list[int]) -> str:
    """0, 1, 2, 3, 6 as 0-3, 6."""
    pieces: list[list[int]] = []
    for number in numbers:
        if pieces and pieces[-1][-1] + 1 == number:
            pieces[-1].append(number)
        else:
            pieces.append([number])
    return ", ".join(f"{piece[0]}-{piece[-1]}" if len(piece) > 1 else str(piece[0]) for piece in pieces)
