"""Measure how much of the network's speed `viaduct serve` keeps, its latency, memory and behaviour with slow clients.

    python benchmarks/serve_load.py                                 about five minutes
    python benchmarks/serve_load.py --seconds 20 --requests 20000   a first look
    python benchmarks/serve_load.py --only throughput,latency

throughput  ResNet-18 at 224. Enough clients for two batches; each sends its next request when it has its answer.
            Windows alternate with a bare loop over the same engine with the same batch size. `prepared` clients send
            preprocessed tensors, `JPEG` clients files that the server decodes; the bare loop does the same.
latency     Requests at 70 % of that throughput, evenly spaced and at random times (a Poisson process). Times count
            from the moment at which a request was due, whether or not a connection was free. Random arrivals form a
            queue: at 70 % load p99 is 4 to 5 times p50 even if every request takes equally long.
memory      Resident memory of a server of a small network over --requests requests.
slow        --slow clients that never finish their request, while one client measures answers.

The client is one thread on non-blocking sockets with requests prepared beforehand. Its share of the CPU is printed,
because client and server share the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import json
import os
import random
import re
import resource
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import torch
from inference import calibrate_batch_norms
from run_description import describe_run
from safetensors.torch import save_file

from viaduct import devices, recipes
from viaduct.handover.classifier import Classifier, open_weights_file
from viaduct.handover.engine import Engine, build_engine
from viaduct.training.networks import build_model

PARTS = ("throughput", "latency", "memory", "slow")
LARGE, SMALL = "resnet18_imagenet", "shapes_taster"
NAME = "model"
WINDOWS = 6  # of the bare loop and of the server, in turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement of throughput and of latency")
    parser.add_argument("--batch", type=int, default=16, help="the server's --max-batch, and the bare loop's batches")
    parser.add_argument("--load", type=float, default=0.7, help="of the throughput, for latency")
    parser.add_argument("--requests", type=int, default=100_000, help="over which memory is watched")
    parser.add_argument("--slow", type=int, default=2000, help="clients that never finish their request")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    parts = options.only.split(",")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="viaduct-serve-load-") as folder:
        if {"throughput", "latency"} & set(parts):
            rows += measure_speed(Path(folder), options, parts)
        if "memory" in parts:
            rows += measure_memory(Path(folder), options)
        if "slow" in parts:
            rows += measure_slow_clients(Path(folder), options)
    if options.out:
        options.out.write_text(json.dumps(make_record(rows), indent=1) + "\n")


def report(rows: list[dict[str, Any]], what: str, figure: str, beside: str = "", samples: Any = None) -> None:
    """Print a row and keep it."""
    print(f"{what:<46} {figure:>16}   {beside}", flush=True)
    rows.append({"what": what, "figure": figure, "beside": beside, "samples": samples})


def make_record(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record of a measurement for docs/results/."""
    return {
        "kind": "benchmark",
        "title": "Serving ResNet-18 at 224 over HTTP",
        **describe_run(devices.get("cpu")),
        "note": "Client and server share the machine; the bare loop and the server take turns.",
        "columns": ["what", "figure", "beside"],
        "rows": [{name: row[name] for name in ("what", "figure", "beside")} for row in rows],
        "samples": [row["samples"] for row in rows],
    }


# The server


@dataclass
class Served:
    """Server process."""

    port: int
    process: subprocess.Popen[str]

    @property
    def memory(self) -> float:
        """Return its resident memory in MiB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


def write_weights(folder: Path, name: str) -> tuple[Path, Classifier]:
    """Write untrained weights; the speed does not depend on their values."""
    torch.manual_seed(0)
    loaded = recipes.load(name)
    network = calibrate_batch_norms(build_model(loaded.recipe), loaded.recipe.data.size)
    path = folder / f"{name}.safetensors"
    save_file({key: tensor.contiguous() for key, tensor in network.state_dict().items()}, path)
    return path, open_weights_file(path, loaded, ema=False)


@contextlib.contextmanager
def serving(weights: Path, recipe: str, *flags: str) -> Iterator[Served]:
    """Start `viaduct serve`, and interrupt it at the end of the block."""
    words = ["serve", str(weights), "--recipe", recipe, "--no-ema", "--port", "0", "--name", NAME, "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "viaduct", *words, "--device", "cpu", *flags], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline())
        if not found:
            sys.exit("the server did not start; its message is above.")
        yield Served(int(found[1]), process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def make_request(path: str, body: bytes, header_length: int | None = None) -> bytes:
    """Return the bytes of a request."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/octet-stream"]
    lines += [f"Content-Length: {len(body)}"]
    if header_length is not None:
        lines.append(f"Inference-Header-Content-Length: {header_length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def make_tensor_request(size: int) -> bytes:
    """Return a request with a prepared image as binary data."""
    values = np.random.default_rng(0).standard_normal((1, 3, size, size)).astype("<f4").tobytes()
    given = {"name": "images", "datatype": "FP32", "shape": [1, 3, size, size]}
    request = {
        "inputs": [{**given, "parameters": {"binary_data_size": len(values)}}],
        "outputs": [{"name": "classes", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(request).encode()
    return make_request(f"/v2/models/{NAME}/infer", head + values, len(head))


def make_photo() -> bytes:
    """Return a JPEG of 500 x 375 pixels, the average size in ImageNet."""
    draw = np.random.default_rng(0)
    coarse = torch.from_numpy(draw.random((1, 3, 47, 63)).astype(np.float32))
    pixels = torch.nn.functional.interpolate(coarse, (375, 500), mode="bicubic").clamp(0, 1)[0]
    return bytes(simplejpeg.encode_jpeg((255 * pixels).permute(1, 2, 0).contiguous().to(torch.uint8).numpy(), 90))


# The client


@dataclass
class Exchange:
    """Connection with at most one pending request."""

    link: socket.socket
    due: float = 0.0
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    received: bytearray = field(default_factory=bytearray)


class Client:
    """Sends one request over many connections in one thread and measures each answer."""

    def __init__(self, port: int, connections: int, request: bytes) -> None:
        self.request = request
        self.selector = selectors.DefaultSelector()
        self.free: deque[Exchange] = deque()
        for _ in range(connections):
            link = socket.create_connection(("127.0.0.1", port))
            link.setblocking(False)
            self.free.append(Exchange(link))
        self.latencies: list[float] = []
        self.errors = 0
        self.busy = 0

    def close(self) -> None:
        for exchange in self.free:
            exchange.link.close()
        self.selector.close()

    def send(self, due: float) -> None:
        """Send a request on a free connection."""
        exchange = self.free.popleft()
        exchange.due, exchange.unsent = due, memoryview(self.request)
        exchange.received.clear()
        self.busy += 1
        self.selector.register(exchange.link, selectors.EVENT_READ, exchange)
        self.push(exchange)

    def push(self, exchange: Exchange) -> None:
        with contextlib.suppress(BlockingIOError):
            exchange.unsent = exchange.unsent[exchange.link.send(exchange.unsent) :]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if exchange.unsent else 0)
        self.selector.modify(exchange.link, wanted, exchange)

    def poll(self, timeout: float) -> None:
        """Read arrived data and finish complete answers."""
        for key, events in self.selector.select(timeout):
            exchange: Exchange = key.data
            if events & selectors.EVENT_WRITE:
                self.push(exchange)
            if events & selectors.EVENT_READ:
                piece = exchange.link.recv(65536)
                if not piece:
                    sys.exit("the server closed a connection under load.")
                exchange.received += piece
                if is_complete(exchange.received):
                    self.finish(exchange)

    def finish(self, exchange: Exchange) -> None:
        self.latencies.append(time.perf_counter() - exchange.due)
        self.errors += not exchange.received.startswith(b"HTTP/1.1 200")
        self.selector.unregister(exchange.link)
        self.free.append(exchange)
        self.busy -= 1

    def run_closed(self, seconds: float, requests: float = float("inf")) -> float:
        """Keep every connection busy; return requests per second from the first full round to the last."""
        before, clients = len(self.latencies), len(self.free)
        end = time.perf_counter() + seconds
        first = last = (time.perf_counter(), 0)  # moment, and answers until then
        while (now := time.perf_counter()) < end and last[1] < requests:
            while self.free:
                self.send(now)
            self.poll(0.1)
            answered = len(self.latencies) - before
            if answered > last[1]:
                last = (time.perf_counter(), answered)
                first = last if answered <= clients else first
        self.drain()
        return (last[1] - first[1]) / (last[0] - first[0]) if last[1] > first[1] else 0.0

    def run_open(self, seconds: float, gaps: Iterator[float]) -> None:
        """Send requests with these gaps between them, without waiting for answers."""
        begin = time.perf_counter()
        due = begin + next(gaps)
        late: list[float] = []
        while due < begin + seconds or late:
            now = time.perf_counter()
            while due <= now and due < begin + seconds:
                heapq.heappush(late, due)
                due += next(gaps)
            while late and self.free:
                self.send(heapq.heappop(late))
            self.poll(max(0.0, min(0.1, due - time.perf_counter())))
        self.drain()

    def drain(self) -> None:
        while self.busy:
            self.poll(0.1)


def is_complete(received: bytearray) -> bool:
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return False
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return length is not None and len(body) >= int(length[1])


@contextlib.contextmanager
def connect_clients(port: int, connections: int, request: bytes) -> Iterator[Client]:
    client = Client(port, connections, request)
    try:
        yield client
    finally:
        client.close()


# The measurements


def measure_speed(folder: Path, options: argparse.Namespace, parts: list[str]) -> list[dict[str, Any]]:
    """Measure throughput against a bare loop, and latency at a share of it."""
    rows: list[dict[str, Any]] = []
    weights, classifier = write_weights(folder, LARGE)
    engine = build_engine(classifier, "cpu", options.precision, batch=options.batch)
    photo = make_photo()
    tensors = torch.randn(options.batch, 3, classifier.size, classifier.size)
    kinds: dict[str, tuple[bytes, Callable[[], Any]]] = {
        "prepared": (make_tensor_request(classifier.size), lambda: engine.run(tensors)),
        "JPEG": (make_request("/predict", photo), lambda: run_photos(classifier, engine, photo, options.batch)),
    }
    flags = ("--max-batch", str(options.batch), "--precision", options.precision)
    with serving(weights, LARGE, *flags) as served:
        for kind, (request, loop) in kinds.items():
            with connect_clients(served.port, 2 * options.batch, request) as client:
                rate = 0.0
                if "throughput" in parts:
                    rate = compare_throughput(rows, kind, client, loop, options)
                if "latency" in parts:
                    rate = rate or client.run_closed(options.seconds / 4)
                    if not rate:
                        sys.exit(f"No request was answered in {options.seconds} s: give a larger --seconds.")
                    measure_latency(rows, kind, client, rate, options)
    return rows


def run_photos(classifier: Classifier, engine: Engine, photo: bytes, count: int) -> torch.Tensor:
    """Preprocess a batch of JPEG files one after the other, then classify it."""
    prepared = np.stack([classifier.prepare(photo) for _ in range(count)])
    return engine.run(torch.from_numpy(prepared).permute(0, 3, 1, 2))


def compare_throughput(
    rows: list[dict[str, Any]], kind: str, client: Client, loop: Callable[[], Any], options: argparse.Namespace
) -> float:
    """Measure the bare loop and the server in turns; return the server's requests per second."""
    window = options.seconds / WINDOWS
    bare: list[float] = []
    served: list[float] = []
    shares: list[float] = []
    client.run_closed(window / 2)
    for _ in range(WINDOWS):
        bare.append(options.batch * count_calls(loop, window) / window)
        used, begin = time.process_time(), time.perf_counter()
        served.append(client.run_closed(window))
        shares.append((time.process_time() - used) / (time.perf_counter() - begin))
    ratio = statistics.median(ours / theirs for ours, theirs in zip(served, bare, strict=True))
    rate = statistics.median(served)
    report(rows, f"{kind}: bare loop, batches of {options.batch}", f"{statistics.median(bare):.1f} img/s", "", bare)
    beside = f"{ratio:.2f} of the bare loop; the client took {100 * statistics.mean(shares):.0f} % of a core"
    beside += f"; {client.errors} errors" if client.errors else ""
    report(rows, f"{kind}: serve, {2 * options.batch} clients", f"{rate:.1f} img/s", beside, served)
    return rate


def count_calls(loop: Callable[[], Any], seconds: float) -> float:
    """Return how often a call completes within a time."""
    begin, calls = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        loop()
        calls += 1
    return calls * seconds / (time.perf_counter() - begin)


def measure_latency(
    rows: list[dict[str, Any]], kind: str, client: Client, rate: float, options: argparse.Namespace
) -> None:
    """Measure latency at a share of the throughput."""
    rate *= options.load
    draw = random.Random(0)
    arrivals = {"even": itertools.repeat(1 / rate), "random": iter(lambda: draw.expovariate(rate), None)}
    for name, gaps in arrivals.items():
        client.latencies.clear()
        client.run_open(options.seconds, gaps)
        p50, p90, p99 = (1000 * value for value in np.percentile(client.latencies, (50, 90, 99)))
        beside = f"p90 {p90:.1f} ms, p99 {p99:.1f} ms = {p99 / p50:.2f} times p50; {len(client.latencies):,} requests"
        beside += f"; {client.errors} errors" if client.errors else ""
        what = f"{kind}: p50 of {rate:.1f} requests/s, {name}"
        report(rows, what, f"{p50:.1f} ms", beside, {"p50": p50, "p90": p90, "p99": p99})


def measure_memory(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Watch the memory of a server over many requests: half of them tensors, half images."""
    rows: list[dict[str, Any]] = []
    weights, classifier = write_weights(folder, SMALL)
    tensors, photos = make_tensor_request(classifier.size), make_request("/predict", make_photo())
    memory: list[float] = []
    with serving(weights, SMALL, "--precision", "fp32") as served:
        done, begin = 0, time.perf_counter()
        while done < options.requests:
            for request in (tensors, photos):
                with connect_clients(served.port, 32, request) as client:
                    client.run_closed(3600, min(options.requests / 20, 5000))
                    done += len(client.latencies)
                    if client.errors:
                        sys.exit(f"{client.errors} requests failed.")
            memory.append(served.memory)
        rate = done / (time.perf_counter() - begin)
    # The allocator's arenas fill during the first tenth.
    growth = statistics.mean(memory[-2:]) - memory[min(1, len(memory) - 1)]
    first = f"{memory[0]:.0f} MiB after the first {done // len(memory):,}"
    beside = f"{first}; growth since {growth:+.1f} MiB; {rate:.0f} requests/s"
    report(rows, f"memory after {done:,} requests", f"{memory[-1]:.0f} MiB", beside, memory)
    return rows


def measure_slow_clients(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure answers while many clients send a request byte by byte, or nothing."""
    rows: list[dict[str, Any]] = []
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    weights, classifier = write_weights(folder, SMALL)
    request = make_tensor_request(classifier.size)
    with serving(weights, SMALL, "--precision", "fp32") as served:
        medians = []
        for crowd in (0, options.slow):
            with connect_clients(served.port, 1, request) as client:
                client.run_closed(2)
            before = served.memory
            client_times: list[float] = []
            with contextlib.ExitStack() as stack:
                begin = time.perf_counter()
                links = [stack.enter_context(open_slow(served.port, number)) for number in range(crowd)]
                opened = time.perf_counter() - begin
                until = time.perf_counter() + 10
                while time.perf_counter() < until:
                    dribble(links)
                    with connect_clients(served.port, 1, request) as client:  # a new connection each time
                        client.run_closed(60, 1)
                        client_times += client.latencies
                after = served.memory
            p50, p99 = (1000 * value for value in np.percentile(client_times, (50, 99)))
            medians.append(p50)
            beside = f"p99 {p99:.1f} ms; memory {after - before:+.0f} MiB; {len(client_times):,} answered"
            beside += f"; opened in {opened:.1f} s" if crowd else ""
            report(rows, f"p50 beside {crowd:,} slow clients", f"{p50:.1f} ms", beside, [p50, p99, before, after])
    return rows


def open_slow(port: int, number: int) -> socket.socket:
    """Open a connection that sends nothing, part of its headers, or part of its body."""
    link = socket.create_connection(("127.0.0.1", port))
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
    begun = (b"", head, head + b"Content-Length: 1000000\r\n\r\n" + bytes(1000))[number % 3]
    with contextlib.suppress(OSError):
        link.sendall(begun)
    link.setblocking(False)
    return link


def dribble(links: list[socket.socket]) -> None:
    """Send a byte on some of the connections; ignore those that the server has closed."""
    for link in random.sample(links, min(50, len(links))):
        with contextlib.suppress(OSError):
            link.send(b"x")


if __name__ == "__main__":
    if "GOMP_SPINCOUNT" not in os.environ:  # as the command line sets it for the server, before torch is imported
        os.environ["GOMP_SPINCOUNT"] = "1000"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
