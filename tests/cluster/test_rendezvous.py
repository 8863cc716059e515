"""Servers of a job that meet: who is refused, who is waited for, and why a job ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from cluster.local_cluster import find_free_port, make_rank_table
from viaduct.cluster import rendezvous
from viaduct.cluster.launch import (
    share_from_nodes,
    share_from_table,
)
from viaduct.cluster.rendezvous import JobEnded, ServerRendezvous
from viaduct.errors import BadValue


def test_a_number_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "BEAT_S", 0.2)
    rdzv = f"127.0.0.1:{find_free_port()}"
    share = share_from_nodes(2, 1, rdzv, node=0)
    first = ServerRendezvous(share, 10, print)
    with pytest.raises(BadValue, match="is there already") as caught:
        ServerRendezvous(share, 10, print)  # both had found the port free
    assert "Is --node-rank 0 given twice" in str(caught.value)
    first.shutdown()


def test_machines_of_different_jobs_are_refused_with_the_reason() -> None:
    rdzv = f"127.0.0.1:{find_free_port()}"
    first = ServerRendezvous(share_from_nodes(2, 1, rdzv, job="a"), 10, print)
    with pytest.raises(BadValue, match="other settings than the first") as caught:
        ServerRendezvous(share_from_nodes(2, 1, rdzv, job="b"), 10, print)
    assert "There: job a, 2 machines" in str(caught.value)
    assert "Here:  job b, 2 machines" in str(caught.value)
    first.shutdown()


def test_machines_with_different_settings_do_not_begin() -> None:
    rdzv = f"127.0.0.1:{find_free_port()}"
    first = ServerRendezvous(share_from_nodes(2, 1, rdzv), 10, print)
    with pytest.raises(BadValue, match="other settings than the first") as caught:
        ServerRendezvous(share_from_nodes(2, 2, rdzv), 10, print)
    assert "2 machines, 1 rank each" in str(caught.value)
    assert "2 machines, 2 ranks each" in str(caught.value)
    first.shutdown()


def joined_again(join: Callable[[], ServerRendezvous]) -> ServerRendezvous:
    """Join as soon as it is noticed that another machine has gone."""
    for _ in range(600):
        with suppress(BadValue):
            return join()
        time.sleep(0.1)
    return join()


def test_a_machine_too_many_is_refused_and_one_that_comes_back_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "BEAT_S", 0.2)
    rdzv = f"127.0.0.1:{find_free_port()}"
    first, second = (ServerRendezvous(share_from_nodes(2, 1, rdzv), 10, print) for _ in range(2))
    assert (first.node, second.node) == (0, 1)
    with pytest.raises(BadValue, match="has its 2 machines already"):
        ServerRendezvous(share_from_nodes(2, 1, rdzv), 10, print)
    second.shutdown()
    third = joined_again(lambda: ServerRendezvous(share_from_nodes(2, 1, rdzv), 10, print))
    assert third.node == 1
    third.shutdown()
    first.shutdown()


def wait_in_vain(call: ServerRendezvous) -> None:
    for _ in range(600):
        assert call.num_nodes_waiting() == 0
        time.sleep(0.1)


@pytest.mark.parametrize("finished", [True, False])
def test_a_machine_that_falls_silent_is_named_unless_it_has_finished(
    finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("BEAT_S", 0.1), ("SILENCE_S", 3.0), ("LINGER_S", 0.1)):
        monkeypatch.setattr(rendezvous, name, seconds)
    table, port = make_rank_table(["127.0.0.1", "127.0.0.2"]), find_free_port()
    shares = [
        share_from_table(table, server="127.0.0.1", port=port),
        share_from_table(table, server="127.0.0.2", port=port),
    ]
    first, second = (ServerRendezvous(share, 10, print) for share in shares)
    other = threading.Thread(target=second.next_rendezvous)
    other.start()
    assert first.next_rendezvous().rank == 0
    other.join()
    time.sleep(0.5)
    assert first.num_nodes_waiting() == 0
    if finished:
        second.finish()
        time.sleep(4)
        assert first.num_nodes_waiting() == 0
    else:
        second.shutdown()
        with pytest.raises(JobEnded, match=r"server 127\.0\.0\.2 does not answer any more"):
            wait_in_vain(first)
    first.shutdown()


def meet(*calls: ServerRendezvous) -> list[int]:
    """All of them at once; the ranks of the servers."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [info.rank for info in pool.map(lambda call: call.next_rendezvous(), calls)]


def test_a_server_that_comes_back_brings_all_together_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "BEAT_S", 0.1)
    table, port = make_rank_table(["127.0.0.2", "127.0.0.1"]), find_free_port()
    shares = [share_from_table(table, server=name, port=port) for name in ("127.0.0.2", "127.0.0.1")]
    first, second = (ServerRendezvous(share, 10, print) for share in shares)
    assert meet(first, second) == [0, 1]
    assert meet(first, second) == [0, 1]  # a rank has failed on both
    again = first.round
    second.shutdown()
    back = ServerRendezvous(shares[1], 10, print)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(back.next_rendezvous)
        end = time.monotonic() + 300
        while not first.num_nodes_waiting() and time.monotonic() < end:
            time.sleep(0.05)
        assert first.num_nodes_waiting() == 1
        assert (first.next_rendezvous().rank, waiting.result().rank) == (0, 1)
    assert first.round == back.round > again
    back.shutdown()
    first.shutdown()


def test_a_waiting_server_learns_at_once_why_the_job_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("BEAT_S", 0.1), ("LINGER_S", 0.5)):
        monkeypatch.setattr(rendezvous, name, seconds)
    rdzv = f"127.0.0.1:{find_free_port()}"
    first, second = (ServerRendezvous(share_from_nodes(3, 1, rdzv), 300, print) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.next_rendezvous)
        time.sleep(0.5)
        assert not waiting.done()
        begin = time.monotonic()
        first.leave("rank 3 ended with exit code 9")
        with pytest.raises(JobEnded, match=r"another server ended the job: .*rank 3 ended with exit code 9"):
            waiting.result(30)
        assert time.monotonic() - begin < 10
    first.shutdown()
    second.shutdown()


def test_a_server_that_has_finished_does_not_wait_for_a_closed_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("BEAT_S", 0.1), ("LINGER_S", 0.5)):
        monkeypatch.setattr(rendezvous, name, seconds)
    rdzv = f"127.0.0.1:{find_free_port()}"
    first, second = (ServerRendezvous(share_from_nodes(2, 1, rdzv), 300, print) for _ in range(2))
    never = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.wait_while_open, lambda: (never.wait(60), None)[1])
        first.leave("was interrupted")
        with pytest.raises(JobEnded, match="was interrupted"):
            waiting.result(30)
    never.set()
    first.shutdown()
    second.shutdown()


def test_a_machine_with_another_secret_is_refused_without_showing_it() -> None:
    rdzv = f"127.0.0.1:{find_free_port()}"
    first = ServerRendezvous(share_from_nodes(2, 1, rdzv, secret="correct horse battery"), 10, print)
    for other in ("", "another horse battery"):
        with pytest.raises(BadValue, match="other settings than the first") as caught:
            ServerRendezvous(share_from_nodes(2, 1, rdzv, secret=other), 10, print)
        assert "VIADUCT_JOB_SECRET" in str(caught.value)
        assert "horse" not in str(caught.value)
    first.shutdown()
