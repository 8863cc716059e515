"""Checks of HCCL's rank tables, one function each; findings.py has the rules as sentences.

    for finding in examine(text).findings:
        print(finding.severity, finding.rule, finding.path, finding.fix)

A check that depends on another rule reports nothing while that rule is violated, so that one mistake is one finding.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Literal, NamedTuple, get_args

from viaduct.cards import NPU
from viaduct.cluster.draft import SERVER_KEYS, SUPER_POD_VERSION, Draft, DraftDevice, DraftServer, read_draft
from viaduct.cluster.findings import Field, Finding, format_count, make_finding
from viaduct.cluster.jsontext import NotJson, decode, parse, strip_comments
from viaduct.errors import UnknownName

Card = Literal["ascend-910", "atlas-300-9000", "atlas-300t-lite-6000", "other"]
CARDS: tuple[Card, ...] = get_args(Card)
TRAINING_CARDS = ("atlas-300-9000", "atlas-300t-lite-6000")  # PCIe cards, which train alone
# Card of servers with eight NPUs. With `other` (GPUs, MLUs, CPUs) any number of devices and any ids are allowed.
DEFAULT_CARD: Card = "ascend-910"
DEVICES_PER_SERVER = 8  # NPUs
MAX_SERVERS = 128  # limit of HCCL
MAX_NAME_CHARACTERS = 63  # of a `server_id`
MAX_DIGITS = 9  # longer numbers are not converted; Python refuses thousands of digits
NOT_WHOLE = "is not a whole number without sign or leading zeros"
GROUP_NAME = NPU.world_group


class Hardware(NamedTuple):
    """Hardware that the table is for."""

    card: Card = DEFAULT_CARD
    present: int | None = None  # number of cards in each server, if known


@dataclass(frozen=True)
class Examination:
    """Draft of a table, and the findings about it."""

    draft: Draft | None  # None if the text is not JSON, or is neither template 1 nor 2 (draft.py)
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[Finding]:
        """Findings that make the table unusable."""
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def warnings(self) -> list[Finding]:
        """Findings about a table that can be used nevertheless."""
        return [finding for finding in self.findings if finding.severity == "warning"]


def examine(source: str | bytes, card: Card = DEFAULT_CARD, present: int | None = None) -> Examination:
    """Check a rank table and return its draft and all findings, errors first; an unknown card raises UnknownName."""
    if card not in CARDS:
        raise UnknownName("card", card, CARDS)
    try:
        stripped = strip_comments(decode(source) if isinstance(source, bytes) else source)
        document = parse(stripped.text)
    except NotJson as error:
        return Examination(None, (Finding("json-syntax", error.path, None, error.wrong, error.fix),))
    table, findings = read_draft(document)
    findings = [*check_comments(stripped.lines), *findings]
    if table is not None:
        hardware = Hardware(card, present)
        findings += [finding for check in CHECKS for finding in check(table, hardware)]
    return Examination(table, tuple(sorted(findings, key=lambda finding: finding.severity)))  # error before warning


def check_comments(lines: tuple[int, ...]) -> Iterator[Finding]:
    """Report comments, which JSON does not have."""
    if lines:
        wrong = f"{format_count(len(lines), 'comment')} stripped; JSON has none, and HCCL refuses such a file"
        fix = "`viaduct ranktable convert FILE --to 1 --out NEW` removes them."
        yield Finding("json-comments", f"line {lines[0]}", None, wrong, fix)


# The head


def check_status(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    if table.status and table.status.text == "initializing":
        wrong = "the cluster is still being set up; its devices are not known yet"
        yield make_finding(table.status, "status-completed", wrong, 'Wait until the scheduler has written "completed".')
    elif table.status and table.status.text != "completed":
        yield make_finding(table.status, "status-completed", f"status is {table.status.text!r}", 'Write "completed".')


def check_version(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Report the version of super-pods, and versions that do not exist."""
    if table.super_pod and table.version:
        wrong = "a super-pod table: super_pod_list, super_device_id and numbers of devices are not checked"
        yield make_finding(table.version, "super-pod", wrong, 'For servers outside a super-pod write version "1.0".')
    elif table.version and table.version.text != "1.0":
        fix = f'Write "1.0"; "{SUPER_POD_VERSION}" is for super-pods.'
        yield make_finding(table.version, "version-known", f"there is no version {table.version.text!r}", fix)


def check_counts(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Compare stated numbers with counted ones."""
    for rule, field, actual, noun, location in table.counts:
        if field.text != str(actual):
            verb = "is" if actual == 1 else "are"
            wrong = f"says {field.text!r}, but there {verb} {format_count(actual, noun)} {location}"
            yield make_finding(field, rule, wrong, f'Write "{actual}".')


def check_groups(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Report every group after the first, and a first group whose name is not HCCL's."""
    for name in table.group_names[1:]:
        wrong = "a further group; its devices are numbered after those before it"
        yield make_finding(name, "group-single", wrong, "Put all instances into one group.")
    for name in table.group_names[:1]:
        if name.text != GROUP_NAME:
            yield make_finding(name, "group-name", f"the group is called {name.text!r}", f'Call it "{GROUP_NAME}".')


# Servers


def check_server_ids(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    for field in (server.server_id for server in table.servers if server.server_id):
        if not field.text.strip() or len(field.text) > MAX_NAME_CHARACTERS:
            wrong = f"{len(field.text)} characters" if field.text.strip() else "it is blank"
            yield make_finding(field, "server-id-length", wrong, "Write the server's IPv4 address.")
        elif re.fullmatch(r"[0-9.]+", field.text) and not is_ipv4_address(field.text):
            yield report_bad_address(field, "server-id-address", "10.0.0.10")
        elif not is_ipv4_address(field.text):
            wrong = f"{field.text!r} is a name; older versions of CANN take an address only"
            yield make_finding(field, "server-id-name", wrong, "Write the server's IPv4 address.")


def check_unique_servers(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    for first, field in find_repeated_servers(table):
        wrong = f"server {field.text!r} is listed already, at {first.path}"
        yield make_finding(field, "server-id-unique", wrong, "Put its devices into one entry, or correct the address.")


def check_host_ips(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    for field in (server.host_ip for server in table.servers if server.host_ip):
        if not is_ipv4_address(field.text):
            yield report_bad_address(field, "host-ip-address", "172.16.0.100")


# Devices


def check_device_ids(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    for field in (device.device_id for device in table.devices if device.device_id):
        number = read_whole_number(field)
        if number is None and is_whole_number(field.text):
            wrong = f"{shorten_number(field.text)} is too large for the number of a device"
            yield make_finding(
                field, "device-id-range", wrong, "Write the number of the device on its server, from 0 on."
            )
        elif number is None:
            fix = 'Write the number of the device on its server, "0" to "7".'
            yield make_finding(field, "device-id-integer", f"{field.text!r} {NOT_WHOLE}", fix)
        elif number >= DEVICES_PER_SERVER and hardware.card != "other" and not table.super_pod:
            wrong = f"there is no device {number}; a server has 0 to {DEVICES_PER_SERVER - 1}"
            yield make_finding(field, "device-id-range", wrong, "`npu-smi info` shows the devices of a server.")


def check_unique_devices(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    for name, devices in group_by_server(table):
        for first, field in find_repeats([device.device_id for device in devices]):
            wrong = f"device {field.text!r} of server {name!r} is listed already, at {first.path}"
            yield make_finding(field, "device-id-unique", wrong, "Give each device of a server once.")


def check_device_ips(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    for field in (device.device_ip for device in table.devices if device.device_ip):
        if not is_ipv4_address(field.text):
            yield report_bad_address(field, "device-ip-address", "192.168.0.2")
        elif not is_host_address(field.text):
            wrong = f"{field.text} is no address that a network card can have"
            yield make_finding(
                field, "device-ip-address", wrong, "`hccn_tool -i 0 -ip -g` shows the address of device 0."
            )


def check_unique_ips(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Check that device addresses are unique and, except on `other` cards, differ from those of servers."""
    fields = [
        device.device_ip for device in table.devices if device.device_ip and is_ipv4_address(device.device_ip.text)
    ]
    fix = "`hccn_tool -i 0 -ip -g` shows the address of device 0; /etc/hccn.conf has all."
    for first, field in find_repeats(fields):
        yield make_finding(field, "device-ip-unique", f"{field.text} is the address of {first.path}, too", fix)
    servers = {server.server_id.text: server.server_id.path for server in table.servers if server.server_id}
    for field in fields if hardware.card != "other" else ():
        if field.text in servers:
            wrong = f"{field.text} is the address of a server, at {servers[field.text]}"
            yield make_finding(field, "device-ip-unique", wrong, fix)


def check_subnets(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Check the subnets of each server's devices, with the mask /24 of the vendor's examples.

    Only the first error of a server is reported.
    """
    repeated = [*check_unique_ips(table, hardware), *check_unique_devices(table, hardware)]
    if hardware.card != "ascend-910" or table.super_pod or repeated:
        return
    for _, devices in group_by_server(table):
        first_devices: dict[int, DraftDevice] = {}  # number of a subnet -> its first device
        for device in sorted(list_valid_devices(devices), key=lambda device: read_whole_number(device.device_id) or 0):
            problem = describe_subnet_error(device, first_devices)
            if problem and device.device_ip:
                fix = (
                    "Give devices i and i+4 one subnet, and 0 to 3 four different ones; ignore this with another mask."
                )
                yield make_finding(device.device_ip, "device-ip-subnets", problem, fix)
                break
            first_devices.setdefault(get_subnet_number(device), device)


def describe_subnet_error(device: DraftDevice, first_devices: dict[int, DraftDevice]) -> str:
    """Describe the error of a device's subnet; empty if it fits the first devices of all subnets."""
    number, address = get_subnet_number(device), get_subnet_address(device)
    for other_number, other in first_devices.items():
        if (address == get_subnet_address(other)) != (number == other_number):
            relation = "another subnet than" if number == other_number else "the same subnet as"
            return f"{address}.0/24 is {relation} that of {other.path}"
    return ""


# Ranks


def check_rank_ids(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Report ranks that are not whole numbers, or too large for the number of devices."""
    size = len(table.devices)
    devices = format_count(size, "device")
    for field in (device.rank_id for device in table.devices if device.rank_id):
        number = read_whole_number(field)
        if number is None:
            rule, wrong = "rank-id-integer", f"{field.text!r} {NOT_WHOLE}"
            if is_whole_number(field.text):
                rule, wrong = (
                    "rank-id-range",
                    f"{shorten_number(field.text)} is too large for a rank; the table has {devices}",
                )
            yield make_finding(field, rule, wrong, f"Write {list_free_ranks(table) or 'a rank from 0 on'}.")
        elif number >= size and table.is_complete:
            wrong = f"rank {number} in a table of {devices}, whose ranks are 0 to {size - 1}"
            yield make_finding(field, "rank-id-range", wrong, f"Write {list_free_ranks(table)}, which no device has.")


def check_unique_ranks(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    for first, field in find_repeats([device.rank_id for device in table.devices]):
        wrong = f"rank {field.text!r} is given already, at {first.path}"
        free = list_free_ranks(table)
        yield make_finding(
            field, "rank-id-unique", wrong, f"Write {free}, which no device has." if free else "Renumber."
        )


def check_consecutive_ranks(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Check that ranks are consecutive within a server, as torchrun needs."""
    ranks = group_ranks_by_server(table)
    for name, numbers in ranks.items() if ranks else ():
        if max(numbers) - min(numbers) + 1 != len(numbers):
            listed = ", ".join(map(str, sorted(numbers)))
            fix = "`viaduct ranktable convert FILE --to 1 --renumber --out NEW` numbers server by server."
            wrong = f"the ranks of server {name!r}, {listed}, are not consecutive, as torchrun needs"
            yield Finding("ranks-consecutive", get_device_list_path(table, name), listed, wrong, fix)


# Topology


def check_one_server(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Check a table with one server: its number of devices, and that two or four are within 0-3 or within 4-7."""
    servers = list_countable_servers(table, hardware)
    if len(servers) != 1:
        return
    [(name, devices)] = servers
    path = get_device_list_path(table, name)
    numbers = [read_whole_number(device.device_id) for device in devices]
    # 0: devices 0 to 3; 1: devices 4 to 7; None: not a number, which check_device_ids reports.
    halves = {None if number is None else number // 4 for number in numbers}
    if len(devices) not in (1, 2, 4, 8):
        wrong = f"{len(devices)} devices on one server"
        yield Finding("single-server-devices", path, str(len(devices)), wrong, "Take 1, 2, 4 or 8.")
    elif len(devices) in (2, 4) and halves == {0, 1}:
        listed = ", ".join(str(number) for number in numbers)
        wrong = f"devices {listed}: 0-3 and 4-7 are two networks, and {len(devices)} devices must be within one"
        yield Finding("single-server-half", path, listed, wrong, "Take all from 0-3, or all from 4-7.")


def check_several_servers(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Check that each of several servers has eight devices."""
    servers = list_countable_servers(table, hardware)
    for name, devices in servers:
        if len(servers) > 1 and len(devices) != DEVICES_PER_SERVER:
            count, path = format_count(len(devices), "device"), get_device_list_path(table, name)
            wrong = f"{count} on server {name!r}; with several servers each has {DEVICES_PER_SERVER}"
            fix = "List devices 0 to 7 of every server, or one server only."
            yield Finding("cluster-server-devices", path, str(len(devices)), wrong, fix)


def check_number_of_servers(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Check that there are not too many servers; advise a power of two."""
    servers = list_countable_servers(table, hardware)
    if len(servers) > MAX_SERVERS:
        wrong = f"{len(servers)} servers; HCCL goes up to {MAX_SERVERS}"
        fix = f"Take {MAX_SERVERS} servers or fewer."
        yield Finding("cluster-servers-limit", get_server_list_path(table), str(len(servers)), wrong, fix)
    elif len(servers) & (len(servers) - 1):
        smaller = 1 << (len(servers).bit_length() - 1)  # the next power of two below
        wrong = f"{len(servers)} servers; collectives are quickest with a power of two"
        fix = f"{smaller} or {2 * smaller} servers would do better, if you can choose."
        yield Finding("cluster-power-of-two", get_server_list_path(table), str(len(servers)), wrong, fix)


def check_training_cards(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    """Check that a table for training cards is template 1 and has one device."""
    if hardware.card not in TRAINING_CARDS:
        return
    if table.template == 2:
        fix = "`viaduct ranktable convert FILE --to 1 --out NEW` makes it template 1."
        yield Finding("card-template", "group_list", None, f"{hardware.card} cards take template 1 only", fix)
    if table.is_complete and len(table.devices) != 1:
        servers = format_count(len(group_by_server(table)), "server")
        wrong = f"{format_count(len(table.devices), 'device')} on {servers}; {hardware.card} cards train alone"
        size = str(len(table.devices))
        yield Finding("card-single", get_server_list_path(table), size, wrong, "List one device of one server.")


def check_present_devices(table: Draft, hardware: Hardware) -> Iterator[Finding]:
    for name, devices in group_by_server(table):
        if hardware.present is not None and len(devices) > hardware.present:
            wrong = f"{format_count(len(devices), 'device')} of server {name!r}, which has {hardware.present}"
            path = devices[hardware.present].path
            yield Finding("devices-present", path, str(len(devices)), wrong, "List only what `npu-smi info` shows.")


# Each check takes the draft and the hardware, even if it does not need the hardware.
CHECKS: tuple[Callable[[Draft, Hardware], Iterator[Finding]], ...] = (
    check_status,
    check_version,
    check_counts,
    check_groups,
    check_server_ids,
    check_unique_servers,
    check_host_ips,
    check_device_ids,
    check_unique_devices,
    check_device_ips,
    check_unique_ips,
    check_subnets,
    check_rank_ids,
    check_unique_ranks,
    check_consecutive_ranks,
    check_one_server,
    check_several_servers,
    check_number_of_servers,
    check_training_cards,
    check_present_devices,
)


# Helpers of the checks


def report_bad_address(field: Field, rule: str, example: str) -> Finding:
    return make_finding(field, rule, f"{field.text!r} is not an IPv4 address", f"Write it as {example}.")


def list_countable_servers(table: Draft, hardware: Hardware) -> list[tuple[str, list[DraftDevice]]]:
    """Return (name, devices) of each server if HCCL prescribes their number for this card and they can be counted.

    They cannot be counted if a list or a server's id is missing, or if a server or a device is repeated.
    """
    if hardware.card != "ascend-910" or table.super_pod or not table.is_complete:
        return []
    repeated = [*check_unique_devices(table, hardware), *find_repeated_servers(table)]
    return [] if repeated or not all(server.server_id for server in table.servers) else group_by_server(table)


def group_by_server(table: Draft) -> list[tuple[str, list[DraftDevice]]]:
    """Return (name, devices) of each server; in template 2 the containers of one server are one server."""
    if table.template == 1:
        return [(get_server_name(server), list(server.devices)) for server in table.servers]
    servers: dict[str, list[DraftDevice]] = defaultdict(list)
    for server in table.servers:
        servers[server.server_id.text if server.server_id else server.path] += server.devices
    return list(servers.items())


def group_ranks_by_server(table: Draft) -> dict[str, list[int]] | None:
    """Return the ranks of each server; None if a rank, a list or a server's id is missing, wrong or repeated."""
    if not table.is_complete or not all(server.server_id for server in table.servers) or find_repeated_servers(table):
        return None
    order = range(len(table.devices))  # template 2 has no ranks: they follow the order of the lists
    rank_ids = [number for device in table.devices if (number := read_whole_number(device.rank_id)) is not None]
    if table.template == 1 and sorted(rank_ids) != list(order):
        return None
    numbers = iter(rank_ids if table.template == 1 else order)
    ranks: dict[str, list[int]] = defaultdict(list)
    for server in table.servers:
        ranks[get_server_name(server)] += [next(numbers) for _ in server.devices]
    return ranks


def find_repeated_servers(table: Draft) -> list[tuple[Field, Field]]:
    """Return (first, repeated) for each repeated `server_id`; none in template 2, where containers share it."""
    return list(find_repeats([server.server_id for server in table.servers])) if table.template == 1 else []


def get_server_name(server: DraftServer) -> str:
    return server.server_id.text if server.server_id else ""


def get_server_list_path(table: Draft) -> str:
    return "server_list" if table.template == 1 else "group_list"


def get_device_list_path(table: Draft, name: str) -> str:
    """Return the path of a server's device list; in template 2 that of its first container."""
    server = next(server for server in table.servers if get_server_name(server) == name)
    return f"{server.path}.{SERVER_KEYS[table.template][-1]}"


def list_free_ranks(table: Draft) -> str:
    """Return up to four ranks that no device has, as text: `"3" or "5"`; empty if there are none."""
    taken = {read_whole_number(device.rank_id) for device in table.devices}
    free = [str(rank) for rank in range(len(table.devices)) if rank not in taken]
    return " or ".join(f'"{rank}"' for rank in free[:4])


def list_valid_devices(devices: list[DraftDevice]) -> list[DraftDevice]:
    """Return the devices that have a valid address and a number from 0 to 7."""
    return [
        device
        for device in devices
        if device.device_ip
        and is_ipv4_address(device.device_ip.text)
        and is_host_address(device.device_ip.text)
        and read_whole_number(device.device_id) in range(DEVICES_PER_SERVER)
    ]


def find_repeats(fields: Sequence[Field | None]) -> Iterator[tuple[Field, Field]]:
    """Yield (earlier field, field) for every field that repeats the text of an earlier one."""
    seen: dict[str, Field] = {}
    for field in fields:
        if field and field.text in seen:
            yield seen[field.text], field
        elif field:
            seen[field.text] = field


def read_whole_number(field: Field | None) -> int | None:
    """Return the number in a field; None if there is no field or no number, or if the number is too long."""
    return int(field.text) if field and is_whole_number(field.text) and len(field.text) <= MAX_DIGITS else None


def is_whole_number(text: str) -> bool:
    """Return True for a decimal number without sign and leading zeros."""
    return re.fullmatch(r"0|[1-9][0-9]*", text) is not None


def shorten_number(digits: str) -> str:
    return digits if len(digits) <= 24 else f"{digits[:24]}…"


def is_ipv4_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


def is_host_address(text: str) -> bool:
    """Return True for an IPv4 address that a network card can have: not 0.0.0.0, loopback, multicast or reserved."""
    address = IPv4Address(text)
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_reserved)


def get_subnet_number(device: DraftDevice) -> int:
    """Return the number of the subnet in which a device must be: devices i and i+4 share subnet i."""
    return (read_whole_number(device.device_id) or 0) % 4


def get_subnet_address(device: DraftDevice) -> str:
    """Return the first three numbers of a device's address: 192.168.0 of 192.168.0.2."""
    return device.device_ip.text.rpartition(".")[0] if device.device_ip else ""
