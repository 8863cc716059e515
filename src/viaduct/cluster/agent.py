"""torch's elastic agent, adapted: it starts the ranks of this machine, watches and restarts them.

This file and `rendezvous.py` import torch; `launch.py` imports them when ranks are started. The agent differs from
torch's in these points:

- each rank gets further variables (HCCL's, from a rank table) besides those of torchrun;
- exit code 2, a user's mistake, ends the job without a restart;
- exit code 128 + SIGINT, SIGTERM or SIGHUP ends the job too: a signal asked the rank to stop, and it did;
- Ctrl-C or SIGTERM that arrives while ranks are being ended kills them at once; SIGHUP does not, since a terminal that
  is closed sends it twice;
- a signal that was ignored at the start (SIGHUP under `nohup`, Ctrl-C in a background job) stays ignored, here and in
  the ranks.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, SignalException, Std
from torch.distributed.elastic.rendezvous import RendezvousHandler

from viaduct.cluster.environment import LAUNCHER_VARIABLE
from viaduct.cluster.rendezvous import JobEnded, ServerRendezvous
from viaduct.signals import list_ignored_signals, name_signal, replace_handlers

MISTAKE = 2  # exit code of a user's mistake: viaduct's, argparse's, most programs'
LOST_PEER = 75  # exit code of a rank of `viaduct train` that lost contact to another rank
SHUTDOWN_S = 30  # time that ranks get to end by themselves; then they are killed
HANGING_S = 10  # the same for ranks that hang in a collective because another machine is gone
EXIT_BARRIER_S = 300.0  # time that servers whose ranks have finished wait for the others
KILLING_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # kill the ranks at once if they arrive during the shutdown
# Exit code -> signal, for ranks that a signal asked to stop and that then ended by themselves.
SIGNAL_BY_EXIT_CODE = {128 + number: number for number in (*KILLING_SIGNALS, signal.SIGHUP)}
# Signals for which torch's agent installs its own handlers. The variable limits them; torch before 2.9 ignores it.
HANDLED_SIGNALS = (*KILLING_SIGNALS, signal.SIGHUP, signal.SIGQUIT)
SIGNALS_VARIABLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"
# Function that returns additional environment variables of a rank, given torch's variables.
GetVariables = Callable[[Mapping[str, str]], dict[str, str]]


@dataclass(frozen=True)
class Failure:
    """End of one rank that failed."""

    rank: int
    exit_code: int  # negative: the signal that ended it
    stderr: str  # path of the file with its stderr; empty if that went to the terminal
    stdout: str = ""  # path of the file with its stdout; empty if that went to the terminal


@dataclass
class Outcome:
    """End of a job on this machine; all ranks finished if nothing here is set."""

    failures: list[Failure] = field(default_factory=list)  # the most likely cause first
    signal: int = 0  # the signal that ended the job, sent to this process or to a rank
    rank_was_signalled: bool = False  # True if the signal was sent to a rank
    abort_reason: str = ""  # set if the job ended because of another machine, not of a rank here


class RankLogs(DefaultLogsSpecs):
    """Log files and additional environment variables of the ranks.

    With `show_all` every rank writes to the terminal and to a file. Otherwise this machine's first rank writes to the
    terminal, the others to files.
    """

    def __init__(self, log_dir: str, ranks: int, show_all: bool, get_variables: GetVariables):
        redirects = Std.NONE if show_all else dict.fromkeys(range(1, ranks), Std.ALL)
        super().__init__(log_dir, redirects=redirects, tee=Std.ALL if show_all else Std.NONE)
        self._get_variables = get_variables

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Add our variables to each rank's environment, then open its log files."""
        for variables in envs.values():
            variables.update({LAUNCHER_VARIABLE: str(os.getpid()), **self._get_variables(variables)})
        return super().reify(envs)


class Agent(LocalElasticAgent):
    """Elastic agent with the differences above, which calls `report` with a line about every restart."""

    def __init__(self, spec: WorkerSpec, logs: RankLogs, report: Callable[[str], None], show_all: bool):
        prefix = "[rank ${rank}] " if show_all else None
        super().__init__(spec, logs, exit_barrier_timeout=EXIT_BARRIER_S, log_line_prefix_template=prefix)
        self._report = report
        self._shutdown_limit_s = SHUTDOWN_S
        self.failures: list[Failure] = []  # of the last start of the ranks
        self.stop_signal = 0  # signal by which a rank was asked to stop; 0: none

    def _invoke_run(self, role: str = "") -> RunResult:
        try:
            result: RunResult = super()._invoke_run(role)
        except JobEnded:  # the ranks hang in a collective that nobody will answer
            self._shutdown_limit_s = HANGING_S
            raise
        return result

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start the ranks; signals that were ignored stay ignored, although torch installs handlers."""
        ignored = list_ignored_signals()
        if ignored:
            handled = (number.name for number in HANDLED_SIGNALS if number not in ignored)
            os.environ.setdefault(SIGNALS_VARIABLE, ",".join(handled))
        started: dict[int, Any] = super()._start_workers(worker_group)
        for number in ignored:  # torch before 2.9 has installed its own handler
            signal.signal(number, signal.SIG_IGN)
        return started

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state is WorkerState.FAILED:
            self._judge_failures(result)
        return result

    def _exit_barrier(self) -> None:
        """Wait for the other servers' ranks to finish; raise JobEnded if another server ends the job meanwhile."""
        handler = self._worker_group.spec.rdzv_handler
        wait: Callable[[], None] = super()._exit_barrier
        if isinstance(handler, ServerRendezvous):
            handler.wait_while_open(wait)
        else:
            wait()

    def _judge_failures(self, result: RunResult) -> None:
        """Record the failures, and allow no restart after a mistake or a rank that was asked to stop."""
        self.failures = sorted(self._list_failures(result), key=get_blame_order)
        self.stop_signal = SIGNAL_BY_EXIT_CODE.get(self.failures[0].exit_code, 0)
        if self.stop_signal or self.failures[0].exit_code == MISTAKE:
            self._remaining_restarts = 0
        if self._remaining_restarts > 0:
            number = self._worker_group.spec.max_restarts - self._remaining_restarts + 1
            allowed = self._worker_group.spec.max_restarts
            self._report(f"{describe_end(self.failures[0])}; starting all ranks again ({number} of {allowed}).")

    def _list_failures(self, result: RunResult) -> Iterator[Failure]:
        stderrs, stdouts = (self._pcontext.stderrs, self._pcontext.stdouts) if self._pcontext else ({}, {})
        for rank, failure in result.failures.items():
            local = failure.local_rank
            yield Failure(rank, failure.exitcode, stderrs.get(local, ""), stdouts.get(local, ""))

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, *args: Any, **options: Any) -> None:
        """End the ranks within `_shutdown_limit_s`, then call torch's shutdown.

        `args` and `options` depend on torch's release: `is_restart` in 2.4, none in 2.11, `timeout` in 2.13.
        """
        with self._second_signal_kills():
            if self._pcontext:
                self._pcontext.close(death_sig, self._shutdown_limit_s)
            super()._shutdown(death_sig, *args, **options)
        self._close_logs()

    def _close_logs(self) -> None:
        """Close the log files of ranks that ended by themselves, which torch leaves open."""
        for handler in getattr(self._pcontext, "subprocess_handlers", {}).values():
            for file in (handler._stdout, handler._stderr):
                if file is not None:
                    file.close()

    @contextmanager
    def _second_signal_kills(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM kill the ranks within the block, and ignore SIGHUP."""

        def kill(number: int, frame: Any) -> None:
            for pid in self._pcontext.pids().values() if self._pcontext else ():
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # torch starts each rank as leader of its process group

        ignored = list_ignored_signals()
        handlers = {number: kill for number in KILLING_SIGNALS if number not in ignored}
        with replace_handlers({**handlers, signal.SIGHUP: signal.SIG_IGN}):
            yield


def get_blame_order(failure: Failure) -> tuple[int, int]:
    """Return a sort key that puts the most likely cause first, for ranks that ended almost together.

    The order is: a user's mistake, a rank killed by a signal, any other exit code, a rank that lost contact to another,
    a rank that was asked to stop and did, a rank ended by SIGTERM.
    """
    order = {MISTAKE: 0, LOST_PEER: 3, **dict.fromkeys(SIGNAL_BY_EXIT_CODE, 4), -signal.SIGTERM: 5}
    return order.get(failure.exit_code, 1 if failure.exit_code < 0 else 2), failure.rank


def describe_end(failure: Failure) -> str:
    if failure.exit_code >= 0:
        return f"rank {failure.rank} ended with exit code {failure.exit_code}"
    return f"rank {failure.rank} was ended by {name_signal(-failure.exit_code)}"


def silence_agent_logs() -> None:
    """Silence the logs of torch's agent unless LOGLEVEL is set: viaduct reports failures itself."""
    if "LOGLEVEL" not in os.environ:
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("torch.distributed.elastic"):
                logging.getLogger(name).setLevel(logging.CRITICAL)


def run_agent(
    command: list[str],
    ranks: int,
    handler: RendezvousHandler,
    *,
    max_restarts: int,
    log_dir: str,
    show_all: bool,
    get_variables: GetVariables,
    report: Callable[[str], None],
) -> Outcome:
    """Run the command as `ranks` processes, and return how they ended; may raise JobEnded."""
    silence_agent_logs()
    spec = WorkerSpec(
        role="rank",
        local_world_size=ranks,
        entrypoint=command[0],
        args=tuple(command[1:]),
        rdzv_handler=handler,
        max_restarts=max_restarts,
        monitor_interval=0.1,
    )
    agent = Agent(spec, RankLogs(log_dir, ranks, show_all, get_variables), report, show_all)
    present_handlers = {number: signal.getsignal(number) for number in HANDLED_SIGNALS}
    try:
        with replace_handlers(present_handlers):  # restores them: torch's agent installs its own and leaves them behind
            result = agent.run()
    except SignalException as stop:
        return Outcome(signal=int(stop.sigval))
    finally:
        handler.shutdown()
    if result is None or not result.is_failed():
        return Outcome()
    if agent.stop_signal:
        report(f"{describe_end(agent.failures[0])}: it was asked to stop; no rank is started again.")
        return Outcome(signal=agent.stop_signal, rank_was_signalled=True)
    return Outcome(failures=agent.failures)
