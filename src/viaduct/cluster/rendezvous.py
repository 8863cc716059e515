"""Rendezvous of a job's servers (machines) for torch's elastic agent, with fixed server numbers and a heartbeat.

torch's own `c10d` rendezvous numbers servers by their names, so ranks would differ from those of the rank table. Its
`static` rendezvous cannot be used again after a failure. Neither ends a job whose network link is dead. Here the
server at the address of the rendezvous has a store for all servers, with these keys:

    round            grows by one when a server wants all ranks started again; the others see it and join
    ROUND/N          server N is ready for that round; the round begins when all are
    round/ROUND/…    address of the ranks' store in that round, and the keys of torch's agent
    beat/N           heartbeat of server N, counted up every second; from FINISHED on: its ranks have finished
    name/N           name of server N in messages
    closed           why the job ended, written by the first server that gave up
    seats            number of servers that asked for the next free number
    claimed/N        counter: a server that is not the first with number N makes sure that the other one is gone
    taken/N/BEATS    counter: the first one gets number N of a server that fell silent after BEATS heartbeats
    facts            settings that must be the same on all servers

All keys but `facts` are prefixed with a digest of the job's secret (secret.py), so that servers with different secrets
can still compare `facts`. The store's values are text and numbers; nothing is unpickled. The store listens only at the
address of the rendezvous, and the ranks' store of each round only at the address of server 0.

The agent calls `num_nodes_waiting` several times a second; the answer comes from the heartbeat thread, without network
access. The server with the store watches all others, the others watch it. The error that ends the job names a server
that was silent for `SILENCE_S`.
"""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from viaduct.cluster import links
from viaduct.cluster.findings import join_first
from viaduct.errors import BadValue, ViaductError

if TYPE_CHECKING:
    from viaduct.cluster.launch import NodeShare

SILENCE_S = 20.0  # a server that sends no heartbeat for this long ends the job
BEAT_S = 1.0  # time between two heartbeats
FINISHED = 2**40  # added to a server's count of heartbeats when its ranks have finished: more than any job's count
POLL_S = 0.1  # time between two checks whether the job has ended, while the store is waited for
STORE_S = 30.0  # time limit of opening a store
# Time that the server with the store stays after the end, so that others can read the reason; also the time limit for
# writing its own end to the store.
LINGER_S = 3 * BEAT_S
OTHER_PORT = "Take another on all servers: --port, or --rdzv HOST:PORT."
T = TypeVar("T")


class JobEnded(ViaductError):
    """The job ended because of another server, or because the rendezvous is gone."""


def connect_store(host: str, port: int, timeout: float) -> TCPStore:
    """Connect to the rendezvous store; raise BadValue if no store answers there."""

    def connect() -> TCPStore:
        store = TCPStore(host, port, timeout=timedelta(seconds=timeout), wait_for_workers=False)
        store.check(["any key"])  # torch 2.4 connects to anything that listens; only a store can answer this
        return store

    call = StoreCall(connect)
    if call.wait(min(timeout, STORE_S)) and call.answers:
        return call.answers[0]
    reason = get_first_line(call.errors[0]) if call.errors else ""
    if not reason or "Ping failed" in reason or "response expected" in reason:  # no answer, or not that of a store
        reason = "perhaps the port is used by something else"
    raise BadValue(f"no rendezvous answers at {links.format_endpoint(host, port)}: {reason}.", OTHER_PORT)


def serve_store(address: str, port: int = 0) -> TCPStore:
    """Return a store that listens at this address only; torch's default is all addresses of the machine."""
    for libuv in (True, False):  # torch 2.4's libuv store cannot use an open socket
        listener = links.open_listening_socket(links.resolve_host(address), port)
        own_address, own_port = listener.getsockname()[:2]
        try:
            store = TCPStore(
                own_address,
                own_port,
                is_master=True,
                timeout=timedelta(seconds=STORE_S),
                wait_for_workers=False,
                master_listen_fd=listener.fileno(),
                use_libuv=libuv,
            )
        except RuntimeError as error:
            listener.close()
            if not libuv or "libuv" not in str(error):
                raise
        else:
            listener.detach()  # the store closes it
            break
    return store


class StoreCall(Generic[T]):
    """Call of the store in a thread, because torch may wait for ever.

    After the call, `answers` has the result or `errors` the exception.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self.answers: list[T] = []
        self.errors: list[Exception] = []
        self._function = function
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.answers.append(self._function())
        except Exception as error:
            self.errors.append(error)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; return True if the call has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


def serve_if_host(share: NodeShare) -> TCPStore | None:
    """Serve the store; None if this machine does not host it, or the port is in use, perhaps by the job itself."""
    if not share.hosts_store:
        return None
    try:
        return serve_store(share.host, share.port)
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return None
        endpoint = links.format_endpoint(share.host, share.port)
        raise BadValue(f"{endpoint} cannot be used here: {get_first_line(error)}", OTHER_PORT) from error


def get_first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


class Heartbeat(threading.Thread):
    """Thread that sends this server's heartbeat and, with `watch_others`, reads those of the other servers."""

    def __init__(self, node: int, names: Sequence[str], store: Store, watch_others: bool) -> None:
        super().__init__(name="viaduct-heartbeat", daemon=True)
        self.node, self.names, self.store = node, list(names), store
        self.round = 0  # the newest round that a server asked for
        self.closing_reason = ""  # empty while the job is open
        now = time.monotonic()
        self.store_heard_at = now  # time of the store's last answer
        self.heard_at = [now] * len(names)  # time of each server's last heartbeat
        self._counts = [0] * len(names)
        self._watched = [other for other in range(len(names)) if watch_others and other != node]
        self._stop = threading.Event()

    def run(self) -> None:
        """Exchange heartbeats until stopped."""
        while not self._stop.is_set():
            with suppress(RuntimeError):  # the store is gone
                self._exchange()
            self._stop.wait(BEAT_S)

    def _exchange(self) -> None:
        self.store.add(f"beat/{self.node}", 1)
        self.round = self.store.add("round", 0)
        self.closing_reason = self.store.get("closed").decode() if self.store.check(["closed"]) else ""
        for other in self._watched:
            self._record_beat(other, self.store.add(f"beat/{other}", 0))
        self.store_heard_at = time.monotonic()

    def _record_beat(self, other: int, count: int) -> None:
        """Record the time if another server's count has grown; read its name at its first heartbeat."""
        if count == self._counts[other]:
            return
        if self._counts[other] == 0 and self.store.check([f"name/{other}"]):
            self.names[other] = self.store.get(f"name/{other}").decode()
        self._counts[other], self.heard_at[other] = count, time.monotonic()

    def stop(self) -> None:
        self._stop.set()

    def list_silent(self) -> list[str]:
        """Return the names of the watched servers whose heartbeat has stopped before they finished."""
        limit = time.monotonic() - SILENCE_S
        beats = zip(self.names, self._counts, self.heard_at, strict=True)
        return [name for name, count, heard_at in beats if 0 < count < FINISHED and heard_at < limit]

    @property
    def is_store_silent(self) -> bool:
        return self.store_heard_at < time.monotonic() - SILENCE_S


class StoreRendezvous(RendezvousHandler):
    """Base class: the ranks use a store that viaduct opens, not one that torch's agent opens for them."""

    @property
    def use_agent_store(self) -> bool:
        """True: torch passes the store of `next_rendezvous` to the ranks."""
        return True

    def get_backend(self) -> str:
        return "viaduct"


class ServerRendezvous(StoreRendezvous):
    """Rendezvous of several servers, each with a fixed number."""

    def __init__(self, share: NodeShare, timeout: float, report: Callable[[str], None]) -> None:
        self.share, self.timeout, self._report = share, timeout, report
        served = serve_if_host(share)
        self.hosts_store = served is not None
        store = served or connect_store(share.host, share.port, timeout)
        self._compare_facts(store)
        self._store = PrefixStore(share.key_prefix, store)
        self.node = take_node_number(self._store, share)
        self._store.set(f"name/{self.node}", share.name)
        heartbeat_store = PrefixStore(share.key_prefix, connect_store(share.host, share.port, timeout))
        self._heartbeat = Heartbeat(self.node, share.names, heartbeat_store, watch_others=self.hosts_store)
        self._heartbeat.start()
        self.round = -1  # the last round that all servers were ready for
        self._store_of_ranks: TCPStore | None = None

    def _compare_facts(self, store: Store) -> None:
        """Refuse to join servers that were started with other settings or another job name."""
        agreed = store.compare_set("facts", "", self.share.facts).decode()
        if agreed != self.share.facts:
            raise BadValue(
                "this server was started with other settings than the first one.",
                f"There: {agreed}",
                f"Here:  {self.share.facts}",
                "Start all servers with the same rank table, or the same --nodes and --ranks; and the same --job.",
                *(["The secret is that of VIADUCT_JOB_SECRET or --secret-file."] if "secret" in agreed else []),
            )

    def get_run_id(self) -> str:
        return self.share.job

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until all servers are ready for a round in which this server has not taken part."""
        newest = self._call_store(lambda: self._store.add("round", 0))
        was_ready = self._call_store(lambda: self._store.check([f"{newest}/{self.node}"]))
        if was_ready:  # this server is the first to start a new round, or has come back
            newest = self._call_store(lambda: self._store.add("round", 1))
        self.round = self._wait_for_all(newest)
        store = PrefixStore(f"round/{self.round}", self._store)
        if self.node == 0:
            self._store_of_ranks = serve_store(self.share.address)
            location = json.dumps([self._store_of_ranks.host, self._store_of_ranks.port])
            self._call_store(lambda: store.set("ranks", location))
        address, port = json.loads(self._call_store(lambda: store.get("ranks")))
        return RendezvousInfo(store, self.node, len(self.share.names), RendezvousStoreInfo(str(address), int(port)))

    def _wait_for_all(self, round_number: int) -> int:
        """Wait until all servers are ready for this round or a later one; return the number of that round."""
        begin = time.monotonic()
        has_reported = False
        while not self._call_store(partial(self._announce_readiness, round_number)):
            self._raise_if_ended()
            round_number = max(round_number, self._heartbeat.round)
            waited = time.monotonic() - begin
            if waited > self.timeout:
                missing = format_servers(self._call_store(partial(self._list_missing, round_number)))
                self.leave(f"{missing} did not join")
                raise JobEnded(
                    f"{missing} did not join within {self.timeout:g} seconds.",
                    "Is `viaduct launch` running there, with the same table and port? --timeout SECONDS waits longer.",
                )
            if not has_reported and waited > 2:
                missing = format_servers(self._call_store(partial(self._list_missing, round_number)))
                self._report(f"waiting for {missing}.")
                has_reported = True
            time.sleep(POLL_S)
        return round_number

    def _announce_readiness(self, round_number: int) -> bool:
        """Announce that this server is ready for a round; return True if all servers are."""
        self._store.set(f"{round_number}/{self.node}", "ready")
        return self._store.check([f"{round_number}/{node}" for node in range(len(self.share.names))])

    def _list_missing(self, round_number: int) -> list[str]:
        names = enumerate(self._heartbeat.names)
        return [name for node, name in names if not self._store.check([f"{round_number}/{node}"])]

    def _call_store(self, function: Callable[[], T]) -> T:
        """Call the store in a thread, which a dead link may block; raise JobEnded if the job is over."""
        call = StoreCall(function)
        while not call.wait(POLL_S):
            self._raise_if_ended()
        if call.errors:
            self._raise_if_ended()
            gone = f"the rendezvous {links.format_endpoint(self.share.host, self.share.port)} is gone"
            raise JobEnded(f"{gone}: {get_first_line(call.errors[0])}") from call.errors[0]
        return call.answers[0]

    def wait_while_open(self, wait: Callable[[], None]) -> None:
        """Call `wait`; raise JobEnded if another server ends the job meanwhile."""
        self._call_store(wait)

    def _raise_if_ended(self) -> None:
        """Raise JobEnded if another server has closed the job, or the store or a watched server is silent.

        In the second case the reason is written to the store for the others.
        """
        if reason := self._heartbeat.closing_reason:
            raise JobEnded(f"another server ended the job: {reason}.", "Its own output says more.")
        silent = [self.share.host] if self._heartbeat.is_store_silent else self._heartbeat.list_silent()
        if silent:
            self.leave(f"{format_servers(silent)} was not heard for {SILENCE_S:g} seconds")
            raise JobEnded(
                f"{format_servers(silent)} does not answer any more: not heard for {SILENCE_S:g} seconds.",
                "Look at the network and at that machine; then start all servers again: a run continues.",
            )

    def num_nodes_waiting(self) -> int:
        self._raise_if_ended()
        return int(self._heartbeat.round > self.round)

    def leave(self, reason: str) -> None:
        """Tell the other servers why the job ends; give up after LINGER_S, since a dead link would block."""
        StoreCall(lambda: self._store.compare_set("closed", "", f"{self.share.name}: {reason}")).wait(LINGER_S)
        if self.hosts_store:  # the others must have time to read it
            time.sleep(LINGER_S)

    def finish(self) -> None:
        """Mark this server's ranks as finished, so that its silence is not taken for a failure."""
        self._heartbeat.stop()
        StoreCall(lambda: self._store.add(f"beat/{self.node}", FINISHED)).wait(LINGER_S)

    def is_closed(self) -> bool:
        return bool(self._heartbeat.closing_reason)

    def set_closed(self) -> None:
        self.leave("closed the job")

    def shutdown(self) -> bool:
        self._heartbeat.stop()
        return True


class LocalRendezvous(StoreRendezvous):
    """Rendezvous of a single machine; its store listens on loopback only."""

    def __init__(self, job: str) -> None:
        self.job = job
        self._store: TCPStore | None = None

    def next_rendezvous(self) -> RendezvousInfo:
        self._store = serve_store("127.0.0.1")  # a new store for each start, without the keys of the last one
        return RendezvousInfo(self._store, 0, 1, RendezvousStoreInfo(self._store.host, self._store.port))

    def get_run_id(self) -> str:
        return self.job

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Do nothing: no other server takes part."""

    def num_nodes_waiting(self) -> int:
        return 0

    def shutdown(self) -> bool:
        self._store = None
        return True


def take_node_number(store: Store, share: NodeShare) -> int:
    """Return this server's number: its `share.node`, else the next free one, else that of one without heartbeat.

    Raises BadValue if the number, or every number, is in use.
    """
    if share.node is not None:
        refuse_duplicate(store, share, share.node)
        return share.node
    number = store.add("seats", 1) - 1
    if number < len(share.names):
        return number
    before = read_beats(store, len(share.names))
    time.sleep(3 * BEAT_S)
    for node, count in enumerate(read_beats(store, len(share.names))):
        is_gone = count == before[node]
        if is_gone and store.add(f"taken/{node}/{count}", 1) == 1:  # otherwise another server was faster
            return node
    raise BadValue(
        f"the job at {links.format_endpoint(share.host, share.port)} has its {len(share.names)} machines already.",
        "Raise --nodes on all machines, or take another port.",
    )


def refuse_duplicate(store: Store, share: NodeShare, node: int) -> None:
    """Raise BadValue if another server with this number is alive; a server that was gone may come back."""
    if store.add(f"claimed/{node}", 1) == 1:
        return
    before = store.add(f"beat/{node}", 0)
    time.sleep(3 * BEAT_S)
    if before < FINISHED and store.add(f"beat/{node}", 0) > before:
        other = store.get(f"name/{node}").decode() if store.check([f"name/{node}"]) else share.names[node]
        raise BadValue(
            f"server {node} of the job at {links.format_endpoint(share.host, share.port)} is there already: {other}.",
            f"Is --node-rank {node} given twice, or the same server of a table started twice?",
            "Each machine has its own number. If the other server belongs to another job, take another port.",
        )


def read_beats(store: Store, servers: int) -> list[int]:
    return [store.add(f"beat/{node}", 0) for node in range(servers)]


def format_servers(servers: Sequence[str]) -> str:
    """Return the names of the first servers and the number of the others, for a message."""
    return f"{'server' if len(servers) == 1 else 'servers'} {join_first(servers)}"
