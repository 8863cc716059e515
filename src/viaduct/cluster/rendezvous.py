"""Rendezvous of the servers of a job: fixed numbers, all must answer, a silent server ends the job.

It is made for torch's elastic agent. torch's own `c10d` numbers servers as it likes, so ranks would not be those of
the rank table; its `static` never forms again after a failure; and neither ends a job whose link is dead, while the
ranks hang in their collective. Here the first server has a store for all:

    round      grows by one when a server wants all ranks started again; the others see it and come too
    ROUND/N    server N is ready for that round; the round begins when all are
    beat/N     server N is alive: counted up every second by a thread with its own connection; huge: it has finished
    name/N     what people call server N
    closed     why the job ended, written by the first server that gave up

The store listens at the address where the servers meet and at no other; so does the one that rank 0's server opens for
the ranks of each round (torch's own would listen everywhere). Keys lie under a digest of the job's secret (secret.py),
and what is read from the store is text and numbers: nothing in it is unpickled.

The agent asks `num_nodes_waiting` several times a second; it answers from what the thread last saw, so it never waits
on the network, and what must ask the store watches that thread meanwhile. The server with the store watches all the
others, they watch it: so 128 servers ask for little. One that was silent for `SILENCE_S` is named, and ends the job.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Generic, TypeVar

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from viaduct.cluster import links
from viaduct.errors import BadValue, ViaductError

SILENCE_S = 20.0
BEAT_S = 1.0
FINISHED = 2**40
POLL_S = 0.1
STORE_S = 30.0
LINGER_S = 3 * BEAT_S
"""The server with the store stays so long after the end, for the others to read why."""
T = TypeVar("T")


class JobEnded(ViaductError):
    """Another server gave up or has disappeared."""


class PortTaken(BadValue):
    """The port is in use: by another program, or by a server of this job on the same machine."""


@dataclass(frozen=True)
class Member:
    """This server among the others."""

    node: int | None
    """None: the next free number."""
    name: str
    names: Sequence[str]
    """Of all servers, in the order of their numbers, as far as they are known."""
    address: str
    """Where the others reach this one."""
    host: str
    """Where the store is."""
    port: int
    hosts_store: bool
    job: str
    facts: str
    """What all servers must have been told alike."""
    key_prefix: str = ""
    """Where the keys of the job lie; it follows from the job's secret."""


def open_store(member: Member, timeout: float, serve: bool) -> TCPStore:
    """Serve the rendezvous store, or connect to it."""
    if serve:
        try:
            return serve_store(member.host, member.port, timeout)
        except (OSError, RuntimeError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                raise PortTaken(f"port {member.port} is in use on this machine.") from error
            raise BadValue(
                f"{member.host}:{member.port} cannot be used here: {first_line(error)}",
                "Take another on all servers: --port, or --rdzv HOST:PORT.",
            ) from error
    asked = StoreCall(lambda: check_store(connect_store(member, timeout)))
    if asked.wait(min(timeout, STORE_S)) and asked.answers:
        return asked.answers[0]
    why = first_line(asked.errors[0]) if asked.errors else ""
    if not why or "Ping failed" in why or "response expected" in why:  # no answer, or none that torch understands
        why = "the port is used by something else"
    raise BadValue(
        f"what listens on {member.host}:{member.port} is no rendezvous: {why}.",
        "Take another on all servers: --port, or --rdzv HOST:PORT.",
    )


def connect_store(member: Member, timeout: float) -> TCPStore:
    """Connect to the rendezvous store."""
    return TCPStore(member.host, member.port, timeout=timedelta(seconds=timeout), wait_for_workers=False)


def serve_store(address: str, port: int = 0, timeout: float = STORE_S) -> TCPStore:
    """Return a store that listens at this address only; torch's own listens at all that the machine has."""
    for libuv in (True, False):  # torch 2.4's newer kind of store cannot be given a socket; its older one can
        listening = links.open_listening_socket(socket.gethostbyname(address), port)
        own_address, own_port = listening.getsockname()[:2]
        try:
            store = TCPStore(
                own_address,
                own_port,
                is_master=True,
                timeout=timedelta(seconds=timeout),
                wait_for_workers=False,
                master_listen_fd=listening.fileno(),
                use_libuv=libuv,
            )
        except RuntimeError as error:
            listening.close()
            if not libuv or "libuv" not in str(error):
                raise
        else:
            listening.detach()  # it is the store's now
            break
    return store


def check_store(store: TCPStore) -> TCPStore:
    """Return the store once it has answered. torch 2.4 connects to whatever listens; later releases ask themselves."""
    store.check(["is anybody there"])
    return store


class StoreCall(Generic[T]):
    """Call in a thread, because torch may wait for ever."""

    def __init__(self, question: Callable[[], T]) -> None:
        self.answers: list[T] = []
        self.errors: list[Exception] = []
        self._question = question
        self._thread = threading.Thread(target=self._call_store, daemon=True)
        self._thread.start()

    def _call_store(self) -> None:
        try:
            self.answers.append(self._question())
        except Exception as error:
            self.errors.append(error)

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; return True if there is an answer or an error."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


def serve_if_host(member: Member) -> TCPStore | None:
    """Serve the store if it belongs here; None if another server of the job on this machine was faster."""
    if not member.hosts_store:
        return None
    try:
        return open_store(member, STORE_S, serve=True)
    except PortTaken:
        return None


def first_line(error: Exception) -> str:
    """Return the first line of an error message."""
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


class Heartbeat(threading.Thread):
    """Heartbeat thread: counts up our beat and reads those of the others; a dead link blocks only this thread."""

    def __init__(self, node: int, names: Sequence[str], store: Store, watches: bool) -> None:
        super().__init__(name="viaduct-pulse", daemon=True)
        self.node, self.names, self.store = node, list(names), store
        self.round = 0
        self.closed = ""
        now = time.monotonic()
        self.store_answered = now
        self.heard = [now] * len(names)
        self._counts = [0] * len(names)
        self._watched = [other for other in range(len(names)) if watches and other != node]
        self._stop = threading.Event()

    def run(self) -> None:
        """Exchange heartbeats until stopped."""
        while not self._stop.is_set():
            with suppress(RuntimeError):  # the store is gone; `store_answered` says since when
                self._exchange()
            self._stop.wait(BEAT_S)

    def _exchange(self) -> None:
        self.store.add(f"beat/{self.node}", 1)
        self.round = self.store.add("round", 0)
        self.closed = self.store.get("closed").decode() if self.store.check(["closed"]) else ""
        for other in self._watched:
            self._listen_to(other, self.store.add(f"beat/{other}", 0))
        self.store_answered = time.monotonic()

    def _listen_to(self, other: int, count: int) -> None:
        if count == self._counts[other]:
            return
        if self._counts[other] == 0 and self.store.check([f"name/{other}"]):
            self.names[other] = self.store.get(f"name/{other}").decode()
        self._counts[other], self.heard[other] = count, time.monotonic()

    def stop(self) -> None:
        """End the thread after its current exchange."""
        self._stop.set()

    def silent(self) -> list[str]:
        """Return the servers whose heartbeat has stopped."""
        limit = time.monotonic() - SILENCE_S
        return [
            name
            for node, name in enumerate(self.names)
            if 0 < self._counts[node] < FINISHED and self.heard[node] < limit
        ]

    @property
    def is_store_silent(self) -> bool:
        """True if the store itself has stopped answering."""
        return self.store_answered < time.monotonic() - SILENCE_S


class ServerRendezvous(RendezvousHandler):
    """Rendezvous of several servers, each with a fixed number."""

    def __init__(self, member: Member, timeout: float, tell: Callable[[str], None]) -> None:
        self.member, self.timeout, self._tell = member, timeout, tell
        served = serve_if_host(member)
        self.hosts_store = served is not None
        store = served or open_store(member, timeout, serve=False)
        self._agree(store)
        self._store = PrefixStore(member.key_prefix or member.job, store)
        self.node = take_node_number(self._store, member)
        self._store.set(f"name/{self.node}", member.name)
        mine = PrefixStore(member.key_prefix or member.job, open_store(member, timeout, serve=False))
        self._pulse = Heartbeat(self.node, member.names, mine, watches=self.hosts_store)
        self._pulse.start()
        self.round = -1
        self._store_of_ranks: TCPStore | None = None

    def _agree(self, store: Store) -> None:
        """Refuse to join servers that were started with other settings, the job's name among them."""
        agreed = store.compare_set("facts", "", self.member.facts).decode()
        if agreed != self.member.facts:
            raise BadValue(
                "this server was started with other settings than the first one.",
                f"There: {agreed}",
                f"Here:  {self.member.facts}",
                "Start all servers with the same rank table, or the same --nodes and --ranks; and the same --job.",
                *(["The secret is that of VIADUCT_JOB_SECRET or --secret-file."] if "secret" in agreed else []),
            )

    def get_backend(self) -> str:
        return "viaduct"

    def get_run_id(self) -> str:
        return self.member.job

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until all servers are ready for a round that this one has not seen yet."""
        wanted = self._call_store(lambda: self._store.add("round", 0))
        seen_before = self._call_store(lambda: self._store.check([f"{wanted}/{self.node}"]))
        if seen_before:  # we are the first to want another, or have come back
            wanted = self._call_store(lambda: self._store.add("round", 1))
        self.round = self._wait_for_all(wanted)
        store = PrefixStore(f"round/{self.round}", self._store)
        if self.node == 0:
            self._store_of_ranks = serve_store(self.member.address)
            where = json.dumps([self._store_of_ranks.host, self._store_of_ranks.port])
            self._call_store(lambda: store.set("ranks", where))
        address, port = json.loads(self._call_store(lambda: store.get("ranks")))
        return RendezvousInfo(store, self.node, len(self.member.names), RendezvousStoreInfo(str(address), int(port)))

    @property
    def use_agent_store(self) -> bool:
        """The ranks speak to the store that rank 0's server has opened for this round, and open none themselves."""
        return True

    def _wait_for_all(self, wanted: int) -> int:
        begin = time.monotonic()
        has_said_so = False
        while not self._call_store(partial(self._all_ready, wanted)):
            self._refuse_if_over()
            wanted = max(wanted, self._pulse.round)
            waited = time.monotonic() - begin
            if waited > self.timeout:
                missing = name_servers(self._call_store(partial(self._missing, wanted)))
                self.leave(f"{missing} did not come")
                raise JobEnded(
                    f"{missing} did not come within {self.timeout:g} seconds.",
                    "Is `viaduct launch` running there, with the same table and port? --timeout SECONDS waits longer.",
                )
            if not has_said_so and waited > 2:
                self._tell(f"waiting for {name_servers(self._call_store(partial(self._missing, wanted)))}.")
                has_said_so = True
            time.sleep(POLL_S)
        return wanted

    def _all_ready(self, wanted: int) -> bool:
        self._store.set(f"{wanted}/{self.node}", "ready")
        return self._store.check([f"{wanted}/{node}" for node in range(len(self.member.names))])

    def _missing(self, wanted: int) -> list[str]:
        return [name for node, name in enumerate(self._pulse.names) if not self._store.check([f"{wanted}/{node}"])]

    def _call_store(self, question: Callable[[], T]) -> T:
        """Ask the store in a thread: on a dead link it would not return."""
        asked = StoreCall(question)
        while not asked.wait(POLL_S):
            self._refuse_if_over()
        if asked.errors:
            self._refuse_if_over()
            gone = f"the rendezvous {self.member.host}:{self.member.port} is gone"
            raise JobEnded(f"{gone}: {first_line(asked.errors[0])}") from asked.errors[0]
        return asked.answers[0]

    def wait_while_open(self, wait: Callable[[], None]) -> None:
        """Wait, unless another server ends the job."""
        self._call_store(wait)

    def _refuse_if_over(self) -> None:
        if self._pulse.closed:
            raise JobEnded(f"another server ended the job: {self._pulse.closed}.", "Its own output says more.")
        silent = [self.member.host] if self._pulse.is_store_silent else self._pulse.silent()
        if silent:
            self.leave(f"{name_servers(silent)} was not heard for {SILENCE_S:g} seconds")
            raise JobEnded(
                f"{name_servers(silent)} does not answer any more: not heard for {SILENCE_S:g} seconds.",
                "Look at the network and at that machine; then start all servers again: a run continues.",
            )

    def num_nodes_waiting(self) -> int:
        self._refuse_if_over()
        return int(self._pulse.round > self.round)

    def leave(self, why: str) -> None:
        """Tell the others why the job ends, without waiting longer than LINGER_S: on a dead link this would block."""
        teller = threading.Thread(target=self._close, args=(f"{self.member.name}: {why}",), daemon=True)
        teller.start()
        teller.join(LINGER_S)
        if self.hosts_store:
            time.sleep(LINGER_S)

    def finish(self) -> None:
        """Mark our ranks as finished, so that other servers do not take the silence for a failure."""
        self._pulse.stop()
        StoreCall(lambda: self._store.add(f"beat/{self.node}", FINISHED)).wait(LINGER_S)

    def _close(self, why: str) -> None:
        with suppress(RuntimeError):  # nobody is there to be told
            self._store.compare_set("closed", "", why)

    def is_closed(self) -> bool:
        return bool(self._pulse.closed)

    def set_closed(self) -> None:
        self.leave("closed the job")

    def shutdown(self) -> bool:
        self._pulse.stop()
        return True


class LocalRendezvous(RendezvousHandler):
    """Rendezvous of a single machine; its store listens on loopback only."""

    def __init__(self, job: str) -> None:
        self.job = job
        self._store: TCPStore | None = None

    def next_rendezvous(self) -> RendezvousInfo:
        self._store = serve_store("127.0.0.1")  # a new one for each start: keys of the last one are gone
        return RendezvousInfo(self._store, 0, 1, RendezvousStoreInfo(self._store.host, self._store.port))

    @property
    def use_agent_store(self) -> bool:
        return True

    def get_backend(self) -> str:
        return "viaduct"

    def get_run_id(self) -> str:
        return self.job

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Nobody else is there to be told."""

    def num_nodes_waiting(self) -> int:
        return 0

    def shutdown(self) -> bool:
        self._store = None
        return True


def take_node_number(store: Store, member: Member) -> int:
    """Return the number of this server: as given, the next free one, or that of a server that has gone."""
    if member.node is not None:
        refuse_second(store, member, member.node)
        return member.node
    number = store.add("seats", 1) - 1
    if number < len(member.names):
        return number
    before = read_beats(store, member)
    time.sleep(3 * BEAT_S)
    gone = [node for node, count in enumerate(read_beats(store, member)) if count == before[node]]
    for node in gone:
        if store.add(f"taken/{node}/{before[node]}", 1) == 1:
            return node
    raise BadValue(
        f"the job at {member.host}:{member.port} has its {len(member.names)} machines already.",
        "Give more with --nodes, on all of them; or another port.",
    )


def refuse_second(store: Store, member: Member, node: int) -> None:
    """Stop if another server with our number lives; one that has gone may come back."""
    if store.add(f"claimed/{node}", 1) == 1:
        return
    before = store.add(f"beat/{node}", 0)
    time.sleep(3 * BEAT_S)
    if before < FINISHED and store.add(f"beat/{node}", 0) > before:
        other = store.get(f"name/{node}").decode() if store.check([f"name/{node}"]) else member.names[node]
        raise BadValue(
            f"server {node} of the job at {member.host}:{member.port} is there already: {other}.",
            f"Is --node-rank {node} given twice, or the same server of a table started twice?",
            "Each machine has its own number; or it is the rest of another job: take another port.",
        )


def read_beats(store: Store, member: Member) -> list[int]:
    """Return the heartbeat counts of all servers."""
    return [store.add(f"beat/{node}", 0) for node in range(len(member.names))]


def name_servers(servers: Sequence[str]) -> str:
    """Name servers in a message: the first four and how many more."""
    shown = ", ".join(servers[:4]) + (f" and {len(servers) - 4} more" if len(servers) > 4 else "")
    return f"server {shown}" if len(servers) == 1 else f"servers {shown}"
