"""Start the ranks of this machine under torch's elastic agent, and report how they ended.

    run_local(["train", "resnet50_cifar10"], ranks=8)
    run_cluster(["python", "my_script.py"], share_from_table(read_table("rank_table_16p.json")))

Exit codes: 0 all ranks of this machine finished; 1 a rank failed and no restart is left, or another machine ended the
job; 2 a user's mistake, which a rank reports by exit code 2, or the job ended before ranks were started here; 128 + the
signal that ended the job. torch is imported only when ranks are started.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from viaduct.cards import CUDA, NPU
from viaduct.cluster import links
from viaduct.cluster.environment import (
    DEFAULT_JOB,
    DEFAULT_PORT,
    VISIBLE_VARIABLES,
    Target,
    check_environment,
    check_job,
    refuse_unusable_table,
)
from viaduct.cluster.findings import format_count, join_first
from viaduct.cluster.ranktable import RankTable, Server, render_table
from viaduct.cluster.secret import SECRET_VARIABLE, derive_key_prefix, describe_secret, make_secret
from viaduct.cores import count_cores
from viaduct.errors import BadData, BadValue
from viaduct.terminal import escape_controls, stop_escaping_output, tidy_message

if TYPE_CHECKING:
    from viaduct.cluster.agent import Failure, Outcome

OWN_VERBS = ("train", "evaluate")  # that may be launched without `viaduct` before them
PYTHONS = ("python", "python3")
MAX_RESTARTS = 3  # default of --max-restarts
CPP_LOG = "TORCH_CPP_LOG_LEVEL"  # read by torch when it is imported
LAST_LINES = 15  # lines of a failed rank's stderr and stdout that are shown
TIMEOUT_S = 300.0  # time within which all machines must join
# Variables of a rank that torchrun does not set.
HCCL_VARIABLES = ("RANK_ID", "RANK_SIZE", "DEVICE_ID", NPU.rank_table_variable, "JOB_ID")
# Variables that bind the collectives to the network interface that the job uses.
IFNAMES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", CUDA.interface_variable, NPU.interface_variable)
# Variables that are set to loopback if all ranks are on this machine.
LOCAL_IFNAMES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
Show = Literal["first", "all"]  # ranks whose output is shown: the first of this machine, or all


# The command


def resolve_command(argv: Sequence[str]) -> list[str]:
    """Return the full command of `train …`, `evaluate …`, `python SCRIPT …`, `SCRIPT.py …` or an executable.

    `python` becomes the interpreter that runs viaduct, because that one has torch. Raises BadValue or BadData.
    """
    if not argv:
        raise BadValue("nothing to launch.", "Write it after --: `… -- train RECIPE` or `… -- python my_script.py`.")
    first, *arguments = argv
    if first == "viaduct" or first in OWN_VERBS:
        return [sys.executable, "-m", "viaduct", *(arguments if first == "viaduct" else argv)]
    if first in PYTHONS:
        check_script(arguments)
        return [sys.executable, *arguments]
    if first.endswith(".py"):
        check_script(argv)
        return [sys.executable, *argv]
    program = shutil.which(first)
    if program is None:
        raise BadValue(
            f"there is no program {first!r}.",
            f"The command is `train …`, `evaluate …`, `python SCRIPT …` or an executable; here: {' '.join(argv)[:80]}",
        )
    return [program, *arguments]


def check_script(arguments: Sequence[str]) -> None:
    """Refuse a python command without a script, or with a missing one; `python -OPTION …` is not checked."""
    script = next(iter(arguments), "")
    if not script:
        raise BadValue(
            "python without a script would wait for its input.", "Name the script: `… -- python my_script.py`."
        )
    if not script.startswith("-") and not Path(script).exists():
        raise BadData(
            f"there is no script {script} in {Path.cwd()}.", "Give its path as seen from here, or a full one."
        )


# This machine's share


@dataclass(frozen=True)
class NodeShare:
    """This machine's share of a job: its ranks, its number among the machines, the rendezvous.

    With a rank table a machine is one of the table's servers.
    """

    ranks: int  # number of ranks on this machine
    host: str = ""  # address of the rendezvous and its store; empty if this is the only machine
    port: int = DEFAULT_PORT
    hosts_store: bool = False  # True if this machine serves the rendezvous store
    node: int | None = 0  # number of this machine; None: the next free one
    names: tuple[str, ...] = ("",)  # names of all machines by number; placeholders if there is no rank table
    name: str = ""  # name of this machine
    address: str = "127.0.0.1"  # address at which the other machines reach this one
    job: str = DEFAULT_JOB
    facts: str = ""  # settings that must be the same on all machines, as text
    table: RankTable | None = None
    target: Target | None = None  # kind of the cards; None: the ranks see all devices of the machine
    shared: Mapping[str, str] = field(default_factory=dict)  # variables of all ranks on this machine
    secret: str = ""  # the job's secret; empty if the user has given none

    def build_variables(self, rank: int) -> dict[str, str]:
        """Return the environment variables of one rank, without those of torchrun."""
        if self.table is None:
            return dict(self.shared)
        names = (*HCCL_VARIABLES, *((VISIBLE_VARIABLES[self.target],) if self.target else ()))
        table_variables = self.table.environment(rank, port=self.port, job=self.job, target=self.target)
        return {**self.shared, **{name: table_variables[name] for name in names if name in table_variables}}

    @property
    def key_prefix(self) -> str:
        """Prefix of the job's keys in the rendezvous store."""
        return derive_key_prefix(self.secret, self.job)


def share_from_table(
    table: RankTable,
    *,
    server: str | None = None,
    port: int = DEFAULT_PORT,
    job: str = DEFAULT_JOB,
    target: Target | None = None,
    secret: str = "",
) -> NodeShare:
    """Return this machine's share of a job with a rank table.

    `server`: this machine in the table; None: the server that has one of this machine's addresses.
    """
    refuse_unusable_table(table, port, job, target)
    check_environment(table, os.environ)
    own_server = table.server(server) if server else find_server(table)
    node = table.servers.index(own_server)
    if len(table.servers) == 1:
        return NodeShare(len(own_server.devices), table=table, target=target, job=job, port=port)
    if node == 0 and not links.is_port_free(port):
        raise BadValue(
            f"port {port} is in use on this machine, the first server of {table.name}.",
            "Perhaps another job runs, or one has not ended yet. Take another port on all servers: --port.",
        )
    digest = hashlib.sha256(render_table(table).encode()).hexdigest()[:12]
    return NodeShare(
        ranks=len(own_server.devices),
        host=links.find_reachable_address(table.master),
        port=port,
        hosts_store=node == 0,
        node=node,
        names=tuple(listed.server_id for listed in table.servers),
        name=own_server.server_id,
        address=own_server.address,
        job=job,
        facts=f"job {job}, {format_count(table.size, 'rank')} on {format_count(len(table.servers), 'server')}, "
        f"table {digest}, {describe_secret(secret)}",
        secret=secret,
        table=table,
        target=target,
        shared=choose_interface_variables(own_server.address),
    )


def find_server(table: RankTable) -> Server:
    """Return the table's server that is this machine; raise BadValue if none or several are."""
    matches = [server for server in table.servers if links.is_this_machine(server.address)]
    if len(matches) == 1:
        return matches[0]
    servers = join_first([server.server_id for server in table.servers], 8)
    own_addresses = ", ".join(links.list_own_addresses()) or "none"
    if not matches:
        raise BadValue(
            f"this machine is not in {table.name}.",
            f"Its addresses are {own_addresses}; the table's servers are {servers}.",
            "Correct the table, or say which server this is: --server ADDRESS.",
        )
    several = ", ".join(server.server_id for server in matches)
    raise BadValue(f"this machine is several servers of {table.name}: {several}.", "Say which: --server ADDRESS.")


def choose_interface_variables(address: str) -> dict[str, str]:
    """Return variables that bind collectives to the network interface of an address, without those set already."""
    try:
        name = links.find_interface(links.resolve_host(address))
    except (OSError, UnicodeError):
        return {}
    return {variable: name for variable in IFNAMES if name and variable not in os.environ}


def choose_loopback_variables() -> dict[str, str]:
    """Return variables that bind the collectives of a job on one machine to loopback, without those set already."""
    names = LOCAL_IFNAMES if "lo" in links.list_interfaces() else ()
    return {variable: "lo" for variable in names if variable not in os.environ}


def share_from_nodes(
    nodes: int, ranks: int, rdzv: str | None, *, node: int | None = None, job: str = DEFAULT_JOB, secret: str = ""
) -> NodeShare:
    """Return this machine's share of a job without a rank table."""
    check_nodes(nodes, ranks, rdzv, node)
    check_job(job)
    if nodes == 1:
        return NodeShare(ranks, job=job)
    given_host, port = links.parse_endpoint(rdzv or "", DEFAULT_PORT)
    host = links.find_reachable_address(given_host)
    address = links.find_address_towards(host, port)
    return NodeShare(
        ranks=ranks,
        host=host,
        port=port,
        # If the port is in use here, another process of the job may serve the store.
        hosts_store=links.is_this_machine(host) and links.is_port_free(port),
        node=node,
        names=tuple(f"number {number} of {nodes}" for number in range(nodes)),
        name=f"{socket.gethostname()} ({address})",
        address=address,
        job=job,
        facts=f"job {job}, {format_count(nodes, 'machine')}, {format_count(ranks, 'rank')} each, "
        f"{describe_secret(secret)}",
        secret=secret,
        shared=choose_interface_variables(address),
    )


def check_nodes(nodes: int, ranks: int, rdzv: str | None, node: int | None) -> None:
    """Refuse numbers of machines and ranks that are out of range, and several machines without --rdzv."""
    if nodes < 1:
        raise BadValue(f"--nodes is {nodes}; it must be 1 or more.")
    if nodes > 1 and not rdzv:
        raise BadValue(
            f"{nodes} machines need a rendezvous.", "Give --rdzv HOST:PORT with the address of one, the same on all."
        )
    if node is not None and not 0 <= node < nodes:
        raise BadValue(f"--node-rank is {node}; with {format_count(nodes, 'machine')} it is 0 to {nodes - 1}.")
    check_rank_count(ranks)


# Running


def run_local(
    argv: Sequence[str],
    ranks: int,
    max_restarts: int = MAX_RESTARTS,
    log_dir: Path | None = None,
    *,
    show: Show = "first",
) -> int:
    """Run a command as `ranks` ranks on this machine, and return the exit code."""
    return run_cluster(argv, NodeShare(ranks), max_restarts=max_restarts, log_dir=log_dir, show=show)


def run_cluster(
    argv: Sequence[str],
    share: NodeShare,
    *,
    max_restarts: int = MAX_RESTARTS,
    log_dir: Path | None = None,
    show: Show = "first",
    timeout: float = TIMEOUT_S,
) -> int:
    """Run this machine's ranks of a job, and return the exit code.

    `timeout`: seconds within which all machines must join. Without `log_dir` the output is kept only if a rank failed.
    """
    check_rank_count(share.ranks, max_restarts)
    command = resolve_command(argv)
    if log_dir is not None:
        create_log_dir(log_dir)
    if share.host and not share.hosts_store:
        links.wait_for_port(share.host, share.port, timeout, print_note)
    logs = str(log_dir) if log_dir else tempfile.mkdtemp(prefix="viaduct_launch_")
    keeps_logs = False
    try:
        outcome = start_ranks(command, share, max_restarts, logs, show == "all", timeout)
        keeps_logs = bool(outcome.failures) and has_rank_logs(logs)
        return report_outcome(outcome, max_restarts, logs)
    except KeyboardInterrupt:  # before ranks were started
        return 130
    finally:
        if log_dir is None and not keeps_logs:
            shutil.rmtree(logs, ignore_errors=True)


def create_log_dir(log_dir: Path) -> None:
    """Create the log directory; raise BadValue if it cannot be created or written to."""
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=log_dir):
            pass
    except (FileExistsError, NotADirectoryError):
        raise BadValue(f"--log-dir {log_dir} is a file, or within one; the ranks' output needs a directory.") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadValue(f"--log-dir {log_dir} cannot be written: {reason}.", "Choose another folder.") from None


def check_rank_count(ranks: int, max_restarts: int = 0) -> None:
    """Refuse a number of ranks below 1, or of restarts below 0."""
    if ranks < 1:
        raise BadValue(f"--ranks is {ranks}; it must be 1 or more.")
    if max_restarts < 0:
        raise BadValue(f"the number of restarts is {max_restarts}; it must be 0 or more.")


def start_ranks(
    command: list[str], share: NodeShare, max_restarts: int, logs: str, show_all: bool, timeout: float
) -> Outcome:
    """Start the ranks under the elastic agent, wait for them, and tell the other machines how they ended.

    Raises JobEnded if another machine ends the job before a round of ranks has begun.
    """
    with quiet_import():
        from viaduct.cluster.agent import Outcome, describe_end, run_agent
        from viaduct.cluster.rendezvous import LINGER_S, JobEnded, LocalRendezvous, ServerRendezvous

    rendezvous = ServerRendezvous(share, timeout, print_note) if share.host else None
    secret = share.secret if rendezvous else make_secret()

    def get_variables(torchrun_variables: Mapping[str, str]) -> dict[str, str]:
        variables = limit_threads(share.ranks)
        if rendezvous:
            # torch counts only the restarts that a rank of this machine caused
            variables["TORCHELASTIC_RESTART_COUNT"] = str(rendezvous.round)
        else:
            variables |= choose_loopback_variables()
        if secret:
            variables[SECRET_VARIABLE] = secret
        return variables | share.build_variables(int(torchrun_variables["RANK"]))

    handler = rendezvous or LocalRendezvous(uuid.uuid4().hex)
    stop_escaping_output()  # torch copies the ranks' output to stdout and stderr
    try:
        outcome = run_agent(
            command,
            share.ranks,
            handler,
            max_restarts=max_restarts,
            log_dir=logs,
            show_all=show_all,
            get_variables=get_variables,
            report=print_note,
        )
    except JobEnded as end:
        if rendezvous is None or rendezvous.round < 0:  # no rank was started
            raise
        return Outcome(abort_reason=str(end))
    if rendezvous and outcome.rank_was_signalled:
        time.sleep(LINGER_S)  # ranks of other machines are ending too: let those machines report first
    if rendezvous and (outcome.failures or outcome.signal):
        rendezvous.leave(describe_end(outcome.failures[0]) if outcome.failures else "was interrupted")
    elif rendezvous:
        rendezvous.finish()
    return outcome


@contextmanager
def quiet_import() -> Iterator[None]:
    """Switch torch's C++ log off for imports within the block; ranks keep the user's setting."""
    is_set = CPP_LOG in os.environ
    os.environ.setdefault(CPP_LOG, "FATAL")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[CPP_LOG]


@contextmanager
def replace_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Replace this process's environment within the block, because torch's agent passes it on to the ranks."""
    original = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(original)


def limit_threads(ranks: int) -> dict[str, str]:
    """Return OMP_NUM_THREADS, this process's cores divided by the ranks; an empty dict if the user has set it."""
    if "OMP_NUM_THREADS" in os.environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, count_cores() // ranks))}


# The end


def report_outcome(outcome: Outcome, max_restarts: int, logs: str) -> int:
    """Print failures of the ranks, and return the exit code."""
    from viaduct.cluster.agent import MISTAKE

    if outcome.signal:
        return 128 + outcome.signal
    if outcome.abort_reason:
        print_note(outcome.abort_reason)
        return 1
    if not outcome.failures:
        return 0
    print_failure(outcome.failures, max_restarts, logs)
    return MISTAKE if outcome.failures[0].exit_code == MISTAKE else 1


def print_failure(failures: list[Failure], max_restarts: int, logs: str) -> None:
    """Print the most likely cause, the last lines of that rank's output, and other ranks that failed with it."""
    from viaduct.cluster.agent import MISTAKE, describe_end

    first, *others = failures
    restarts = f", after {format_count(max_restarts, 'restart')}" if max_restarts and first.exit_code != MISTAKE else ""
    print_note(f"{describe_end(first)}{restarts}.")
    print_quoted("The end of its stderr:", read_last_lines(first.stderr))
    print_quoted("The end of its stdout:", read_last_lines(first.stdout))
    if not first.stderr:  # no file: its stderr went to the terminal
        print("  Its output is above.", file=sys.stderr)
    if others and first.exit_code != MISTAKE:
        print(f"  Also {join_first([describe_end(other) for other in others], 8)}.", file=sys.stderr)
    if has_rank_logs(logs):
        print(f"  Log files of the ranks are in {logs}", file=sys.stderr, flush=True)


def has_rank_logs(logs: str) -> bool:
    """Return True if a rank wrote to a file; a single rank writes to the terminal only."""
    return any(Path(logs).rglob("std*.log"))


def print_quoted(title: str, lines: list[str]) -> None:
    if lines:
        shown = (f"    {escape_controls(line, keep=chr(9))}" for line in lines)
        print(f"  {title}", *shown, sep="\n", file=sys.stderr)


def read_last_lines(path: str) -> list[str]:
    if not path or not os.path.isfile(path):
        return []
    with open(path, errors="replace") as file:
        return [line.rstrip() for line in deque(file, maxlen=LAST_LINES)]


def print_note(line: str) -> None:
    """Print a message of launch on stderr."""
    print(tidy_message(f"viaduct launch: {line}"), file=sys.stderr, flush=True)
