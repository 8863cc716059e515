"""torch's elastic agent changes its private signatures between releases; ours must fit each of them."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from viaduct.cluster.agent import HANGING_S, SHUTDOWN_S, Agent
from viaduct.cluster.rendezvous import JobEnded


class Ranks:
    """Ranks started by the agent; records how they were ended."""

    def __init__(self) -> None:
        self.closed: list[tuple[int, float]] = []
        self.subprocess_handlers: dict[int, Any] = {}

    def close(self, death_sig: signal.Signals, timeout: int = 30) -> None:
        self.closed.append((int(death_sig), timeout))

    def pids(self) -> dict[int, int]:
        return {}


def make_agent(monkeypatch: pytest.MonkeyPatch, *options_of_shutdown: str) -> tuple[Any, list[dict[str, Any]]]:
    """Return our agent over a base with the signatures of one release, and what the base was handed to shut down."""
    handed: list[dict[str, Any]] = []

    def init(  # of torch 2.4; later releases add to it
        self: Any,
        spec: Any,
        logs_specs: Any,
        start_method: str = "spawn",
        exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None,
    ) -> None:
        self._pcontext = Ranks()

    def shut_down(self: Any, death_sig: signal.Signals = signal.SIGTERM, **options: Any) -> None:
        assert set(options) <= set(options_of_shutdown)
        handed.append(options)

    monkeypatch.setattr(LocalElasticAgent, "__init__", init)
    monkeypatch.setattr(LocalElasticAgent, "_shutdown", shut_down)
    ours: Any = Agent
    return ours(None, None, print, show_all=False), handed


def test_ranks_of_torch_2_4_are_ended_and_a_restart_keeps_the_rendezvous(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, handed = make_agent(monkeypatch, "is_restart")
    ours._shutdown(is_restart=True)
    ours._shutdown(signal.SIGINT)
    assert handed == [{"is_restart": True}, {}]
    assert ours._pcontext.closed == [(signal.SIGTERM, SHUTDOWN_S), (signal.SIGINT, SHUTDOWN_S)]


def test_ranks_of_torch_2_11_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, handed = make_agent(monkeypatch)
    ours._shutdown()
    assert handed == [{}]
    assert ours._pcontext.closed == [(signal.SIGTERM, SHUTDOWN_S)]


def test_ranks_of_torch_2_13_are_ended_within_our_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, handed = make_agent(monkeypatch, "timeout")
    ours._shutdown(signal.SIGTERM, timeout=7)
    assert handed == [{"timeout": 7}]
    assert ours._pcontext.closed == [(signal.SIGTERM, SHUTDOWN_S)]


def test_ranks_that_hang_because_the_job_ended_get_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_job(self: Any, role: str = "") -> None:
        raise JobEnded("server b is gone")

    ours, _ = make_agent(monkeypatch)
    monkeypatch.setattr(LocalElasticAgent, "_invoke_run", end_job)
    with pytest.raises(JobEnded):
        ours._invoke_run()
    ours._shutdown()
    assert ours._pcontext.closed == [(signal.SIGTERM, HANGING_S)]
    assert HANGING_S < SHUTDOWN_S
