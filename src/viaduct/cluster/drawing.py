"""Drawing of a rank table in the terminal: a box for each server, with its devices in rows of four.

In a server of eight Ascend 910, devices 0 to 3 are linked with each other, and so are 4 to 7.
"""

from __future__ import annotations

from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from viaduct.cluster.findings import format_count
from viaduct.cluster.ranktable import Device, RankTable, Server
from viaduct.terminal import print_table

MAX_BOXES = 16  # of more servers each is printed as one line
DEVICES_PER_ROW = 4


def draw_table(table: RankTable, console: Console) -> None:
    """Print a rank table: a box for each server, or a line if there are many."""
    console.print(format_headline(table))
    if len(table.servers) > MAX_BOXES:
        print_table(list_servers(table), console)
        return
    boxes = [draw_server(table, server) for server in table.servers]
    if console.is_terminal:
        console.print(Columns(boxes))
    else:  # without a terminal, one box below the other
        console.print(*boxes, sep="\n")


def format_headline(table: RankTable) -> str:
    """Return the line above the drawing."""
    servers, devices = format_count(len(table.servers), "server"), format_count(table.size, "device")
    form = "super-pod" if table.super_pod else f"template {table.template}"
    return f"{table.name}: {form}, {servers}, {devices}; rank 0 is on {table.master}"


def draw_server(table: RankTable, server: Server) -> Panel:
    columns = (Column(overflow="fold") for _ in range(DEVICES_PER_ROW))
    grid = Table(*columns, box=box.SQUARE, show_header=False, show_lines=True)
    for row in build_rows(server):
        grid.add_row(*row)
    title = Text(f"{server.server_id} · node {table.servers.index(server)}")
    return Panel.fit(grid, title=title, subtitle=Text(f"ranks {format_spans(server.ranks)}"))


def build_rows(server: Server) -> list[list[Text]]:
    """Return the cells of a server, four devices in a row. A row whose devices are all unused is left out."""
    devices = {device.device_id: device for device in server.devices}
    first_numbers = sorted({number // DEVICES_PER_ROW * DEVICES_PER_ROW for number in devices})
    return [
        [draw_device(number, devices.get(number)) for number in range(first, first + DEVICES_PER_ROW)]
        for first in first_numbers
    ]


def draw_device(number: int, device: Device | None) -> Text:
    """Return the cell of one device; a dot for a device that the table does not use."""
    if device is None:
        return Text(f"device {number}\n·", style="dim")
    return Text.assemble(f"device {number}\n", (f"rank {device.rank}", "bold"), f"\n{device.device_ip}")


def list_servers(table: RankTable) -> Table:
    """Return a table with one line a server."""
    lines = Table("node", "server", "ranks", "devices", "addresses", box=None, pad_edge=False)
    for node, server in enumerate(table.servers):
        numbers = format_spans(sorted(device.device_id for device in server.devices))
        others = len(server.devices) - 1
        addresses = server.devices[0].device_ip + (f" and {others} more" if others else "")
        lines.add_row(str(node), Text(server.server_id), format_spans(server.ranks), numbers, addresses)
    return lines


def format_spans(numbers: list[int]) -> str:
    """Format ascending numbers as ranges: 0, 1, 2, 3, 6 as `0-3, 6`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] + 1 == number:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
