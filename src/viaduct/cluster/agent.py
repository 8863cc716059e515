"""torch's elastic agent, told what we want of it: it starts the ranks of this machine, watches and restarts them.

This file and `rendezvous.py` import torch; `launch.py` imports them when ranks are really started. What is ours:

- a rank's own variables (HCCL's, from a rank table) beside those of torchrun;
- exit code 2 is a person's mistake, which no restart mends: it ends the job;
- exit code 128 + SIGINT, SIGTERM or SIGHUP is a rank that was asked to stop and did: it ends the job too;
- Ctrl-C or SIGTERM that arrives while ranks are being ended kills them; SIGHUP does not, since a terminal that is
  closed sends it twice;
- SIGHUP that is ignored (`nohup`) stays so, here and in the ranks.
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

from viaduct.cluster.environment import LAUNCHER
from viaduct.cluster.rendezvous import JobEnded, ServerRendezvous
from viaduct.signals import ignored_signals

MISTAKE = 2
"""The exit code of a person's mistake: ours, argparse's, most programs'."""
LOST = 75
"""The exit code of a rank of ours that lost another one: a consequence, not a cause."""
SHUTDOWN_S = 30
"""Ranks that do not end within it, when told to, are killed."""
HANGING_S = 10
"""The same for ranks that cannot end, because another machine is gone."""
EXIT_BARRIER_S = 300.0
"""How long servers that have finished wait for the others."""
KILLERS = (signal.SIGINT, signal.SIGTERM)
STOPPED = {128 + number: number for number in (*KILLERS, signal.SIGHUP)}
"""The exit codes of ranks that were asked to stop, and did so by themselves."""
TAKEN = (*KILLERS, signal.SIGHUP, signal.SIGQUIT)
SIGNALS = "TORCHELASTIC_SIGNALS_TO_HANDLE"
"""Variable with the signals that the agent takes over; torch before 2.9 takes all of `TAKEN`."""


@dataclass(frozen=True)
class Failure:
    """End of one rank that failed."""

    rank: int
    exit_code: int
    """Negative: the signal that ended it."""
    stderr: str
    """The file with what it said; empty where that went to the screen."""
    stdout: str = ""
    """The same of what it printed."""


@dataclass
class Outcome:
    """End of a job on this machine: success, failed ranks, or a signal."""

    failures: list[Failure] = field(default_factory=list)
    """The one to blame first."""
    signal: int = 0
    """To this process, or to a rank which then stopped all."""
    by_ranks: bool = False
    """Whether the ranks have stopped by themselves, together."""
    lost: str = ""
    """Why this machine gave up although its ranks had not failed: another one is gone, or has given up."""


class RankLogs(DefaultLogsSpecs):
    """Log files of the ranks, and the variables that each start adds to their environment."""

    def __init__(self, log_dir: str, ranks: int, show_all: bool, own: Callable[[Mapping[str, str]], dict[str, str]]):
        redirects = Std.NONE if show_all else dict.fromkeys(range(1, ranks), Std.ALL)
        super().__init__(log_dir, redirects=redirects, tee=Std.ALL if show_all else Std.NONE)
        self._own = own

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Add our variables to each rank's environment, then open its log files."""
        for variables in envs.values():
            variables.update({LAUNCHER: str(os.getpid()), **self._own(variables)})
        return super().reify(envs)


class Agent(LocalElasticAgent):
    """Knows which failures are final, and says what it does about the others."""

    def __init__(self, spec: WorkerSpec, logs: RankLogs, tell: Callable[[str], None], show_all: bool):
        prefix = "[rank ${rank}] " if show_all else None
        super().__init__(spec, logs, exit_barrier_timeout=EXIT_BARRIER_S, log_line_prefix_template=prefix)
        self._tell = tell
        self._patience_s = SHUTDOWN_S
        self.failures: list[Failure] = []
        self.stopped = 0

    def _invoke_run(self, role: str = "") -> RunResult:
        try:
            result: RunResult = super()._invoke_run(role)
        except JobEnded:  # the ranks hang in a collective that nobody will answer
            self._patience_s = HANGING_S
            raise
        return result

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        ignored = ignored_signals()
        if ignored:
            os.environ.setdefault(SIGNALS, ",".join(number.name for number in TAKEN if number not in ignored))
        started: dict[int, Any] = super()._start_workers(worker_group)
        for number in ignored:  # a torch that does not know the variable has put its own handler there
            signal.signal(number, signal.SIG_IGN)
        return started

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state is WorkerState.FAILED:
            self._look_at(result)
        return result

    def _exit_barrier(self) -> None:
        """Wait for the other servers' ranks to finish; not for those of a job that has ended meanwhile."""
        handler = self._worker_group.spec.rdzv_handler
        wait: Callable[[], None] = super()._exit_barrier
        if isinstance(handler, ServerRendezvous):
            handler.wait_while_open(wait)
        else:
            wait()

    def _look_at(self, result: RunResult) -> None:
        self.failures = sorted(self._failures_of(result), key=order_of_blame)
        self.stopped = STOPPED.get(self.failures[0].exit_code, 0)
        if self.stopped or self.failures[0].exit_code == MISTAKE:
            self._remaining_restarts = 0
        if self._remaining_restarts > 0:
            number = self._worker_group.spec.max_restarts - self._remaining_restarts + 1
            allowed = self._worker_group.spec.max_restarts
            self._tell(f"{describe_end(self.failures[0])}; starting all ranks again ({number} of {allowed}).")

    def _failures_of(self, result: RunResult) -> Iterator[Failure]:
        talk, output = (self._pcontext.stderrs, self._pcontext.stdouts) if self._pcontext else ({}, {})
        for rank, failure in result.failures.items():
            local = failure.local_rank
            yield Failure(rank, failure.exitcode, talk.get(local, ""), output.get(local, ""))

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, *args: Any, **options: Any) -> None:
        """End the ranks within our own time limit, then let torch do the rest.

        What else torch hands over depends on its release: `is_restart` in 2.4, nothing in 2.11, `timeout` in 2.13.
        """
        with self._second_signal_kills():
            if self._pcontext:
                self._pcontext.close(death_sig, self._patience_s)
            super()._shutdown(death_sig, *args, **options)
        self._close_logs()

    def _close_logs(self) -> None:
        """torch closes the files of ranks that it has ended, not of those that ended by themselves."""
        for handler in getattr(self._pcontext, "subprocess_handlers", {}).values():
            for file in (handler._stdout, handler._stderr):
                if file is not None:
                    file.close()

    @contextmanager
    def _second_signal_kills(self) -> Iterator[None]:
        def kill(number: int, frame: Any) -> None:
            for pid in self._pcontext.pids().values() if self._pcontext else ():
                signal_process_group(pid, signal.SIGKILL)

        ignored = ignored_signals()
        before = {number: signal.signal(number, kill) for number in KILLERS if number not in ignored}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def signal_process_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a rank and its children: torch starts each rank as leader of its process group."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def order_of_blame(failure: Failure) -> tuple[int, int]:
    """Return the order of blame among ranks that ended almost together: a mistake first, then a kill, an error, a lost
    peer, a stopped rank, a terminated rank."""
    late = {LOST: 3, **dict.fromkeys(STOPPED, 4), -signal.SIGTERM: 5}
    if failure.exit_code == MISTAKE:
        return 0, failure.rank
    return late.get(failure.exit_code, 1 if failure.exit_code < 0 else 2), failure.rank


def describe_end(failure: Failure) -> str:
    """Describe how a rank ended."""
    if failure.exit_code >= 0:
        return f"rank {failure.rank} ended with exit code {failure.exit_code}"
    try:
        return f"rank {failure.rank} was ended by {signal.Signals(-failure.exit_code).name}"
    except ValueError:
        return f"rank {failure.rank} was ended by signal {-failure.exit_code}"


def silence_agent_logs() -> None:
    """Silence the logs of torch's agent, which viaduct sums up in one line; LOGLEVEL brings them back."""
    if "LOGLEVEL" not in os.environ:
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("torch.distributed.elastic"):
                logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def handlers_restored() -> Iterator[None]:
    """The agent takes over signals, and leaves its handlers behind."""
    before = {number: signal.getsignal(number) for number in TAKEN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def conduct(
    command: list[str],
    ranks: int,
    handler: RendezvousHandler,
    *,
    max_restarts: int,
    log_dir: str,
    show_all: bool,
    own: Callable[[Mapping[str, str]], dict[str, str]],
    tell: Callable[[str], None],
) -> Outcome:
    """Start `ranks` processes of the command, and stay until they have ended."""
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
    agent = Agent(spec, RankLogs(log_dir, ranks, show_all, own), tell, show_all)
    try:
        with handlers_restored():
            result = agent.run()
    except SignalException as stop:
        return Outcome(signal=int(stop.sigval))
    finally:
        handler.shutdown()
    if result is None or not result.is_failed():
        return Outcome()
    if agent.stopped:
        tell(f"{describe_end(agent.failures[0])}: it was asked to stop; no rank is started again.")
        return Outcome(signal=agent.stopped, by_ranks=True)
    return Outcome(failures=agent.failures)
