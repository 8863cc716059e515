"""Fetching over connections that break, from servers whose file changes, and from folders: complete or not at all."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from viaduct.atomic_files import name_temporary
from viaduct.data import cifar10
from viaduct.data import fetch as module
from viaduct.data.cifar10 import NAMES, TEST_FILE, TRAIN_FILES, Cifar10
from viaduct.data.fetch import PublicFile, PublicSet, fetch
from viaduct.errors import BadData, BadValue, DiskFull, UnknownName

RECORDS = 8
ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
RECORD_FILES = (*TRAIN_FILES, TEST_FILE)
FASHION = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


# A server with every bad habit


@dataclass
class Site:
    """Replies of the server; a list is used up one entry a request."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    tag: str | None = '"one"'
    date: str | None = None
    ranges: bool = True
    minds_if_range: bool = True
    chunked: bool = False
    statuses: list[int] = field(default_factory=list)
    breaks: list[float] = field(default_factory=list)
    resets: bool = False
    after_break: Callable[[], None] = lambda: None
    hold: threading.Event | None = None
    requests: list[dict[str, str]] = field(default_factory=list)

    def asked(self, header: str) -> list[str | None]:
        return [request.get(header) for request in self.requests]


class Handler(BaseHTTPRequestHandler):
    site: Site

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.site.requests.append({"path": self.path, **dict(self.headers.items())})
        content = self.site.files.get(self.path.partition("?")[0])
        status = self.site.statuses.pop(0) if self.site.statuses else 200
        if status != 200 or content is None:
            self.send_error(status if status != 200 else 404)
            return
        self.answer(content)

    def answer(self, content: bytes) -> None:
        start = self.wanted_start()
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        for name, value in (("ETag", self.site.tag), ("Last-Modified", self.site.date)):
            if value:
                self.send_header(name, value)
        if not self.site.chunked:
            self.send_header("Content-Length", str(len(content) - start))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.send_body(content[start:])

    def wanted_start(self) -> int:
        condition = self.headers["If-Range"]
        stale = self.site.minds_if_range and condition not in (None, self.site.tag, self.site.date)
        if not self.site.ranges or stale or "Range" not in self.headers:
            return 0
        return int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))

    def send_body(self, body: bytes) -> None:
        if not self.site.breaks:
            self.write(body)
            if self.site.chunked:
                self.write(b"")
            return
        self.write(body[: int(len(body) * self.site.breaks.pop(0))])
        self.wfile.flush()
        if self.site.hold:
            self.site.hold.wait(300)
        if self.site.resets:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.site.after_break()

    def write(self, body: bytes) -> None:
        framed = f"{len(body):x}\r\n".encode() + body + b"\r\n" if self.site.chunked else body
        with contextlib.suppress(ConnectionError):
            self.wfile.write(framed)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "PAUSES", (0.01, 0.01, 0.01))
    before = threading.active_count()
    made = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneSite", (Handler,), {"site": made}))
    server.daemon_threads = False  # so that closing waits for them
    made.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()
    assert threading.active_count() == before


# Small sets that stand in for the real ones


def tar_of(members: dict[str, bytes], *links: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for link in links:
            tar.addfile(link)
    return packed.getvalue()


def cifar_members() -> dict[str, bytes]:
    rng = random.Random(0)
    members = {}
    for name in RECORD_FILES:
        records = (bytes([number % 10]) + rng.randbytes(3072) for number in range(RECORDS))
        members[f"{FOLDER}/{name}"] = b"".join(records)
    return {**members, f"{FOLDER}/batches.meta.txt": "\n".join(NAMES).encode(), f"{FOLDER}/readme.html": b"<a>"}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def archive_set(content: bytes, address: str = "http://127.0.0.1:9/") -> PublicSet:
    return PublicSet(address, ((PublicFile(ARCHIVE, md5(content)),),), is_archive=True)


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """CIFAR-10 with 8 records a file instead of 10,000; its address leads nowhere."""
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", RECORDS)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # nobody cuts the power here, and a busy disk takes seconds
    content = tar_of(cifar_members())
    monkeypatch.setitem(module.SETS, "cifar10", archive_set(content))
    return content


@pytest.fixture
def fashion(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Four files with and without .gz."""
    plain = {name: random.Random(name).randbytes(5000) for name in FASHION}
    zipped = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in plain.items()}
    files = tuple(
        (PublicFile(f"{name}.gz", md5(zipped[f"{name}.gz"])), PublicFile(name, md5(plain[name]))) for name in FASHION
    )
    monkeypatch.setitem(module.SETS, "fashion-mnist", PublicSet("http://127.0.0.1:9/", files))
    return {**plain, **zipped}


def serve(site: Site, content: bytes) -> str:
    site.files[f"/{ARCHIVE}"] = content
    return f"{site.address}/{ARCHIVE}"


def refusal(name: str, out: Path, source: str | None = None) -> str:
    with pytest.raises(BadData) as caught:
        fetch(name, out, source=source)
    return str(caught.value)


def check_cifar(out: Path) -> None:
    """Whole, with nothing left of the way there, and readable."""
    assert {entry.name for entry in out.iterdir()} <= {FOLDER, ARCHIVE}
    found = {f"{FOLDER}/{file.name}": file.read_bytes() for file in (out / FOLDER).iterdir()}
    assert found.pop(f"{FOLDER}/MD5SUMS").count(b"\n") == 8
    assert found == cifar_members()
    assert len(Cifar10(global_batch=4, size=32).load(out).train) == 5 * RECORDS


def check_nothing_under_its_own_name(out: Path) -> None:
    assert not (out / FOLDER).exists()
    assert not (out / ARCHIVE).exists()


# What must not happen


def test_complete_sets_are_kept_without_a_network(site: Site, archive: bytes, tmp_path: Path) -> None:
    address = serve(site, archive)
    first = fetch("cifar10", tmp_path, source=address)
    (tmp_path / ARCHIVE).unlink()
    before = {file.name: file.stat().st_mtime_ns for file in first.iterdir()}
    assert fetch("cifar10", tmp_path, source=address) == first
    assert len(site.requests) == 1
    assert {file.name: file.stat().st_mtime_ns for file in first.iterdir()} == before


def test_a_folder_unpacked_by_hand_is_accepted_by_its_sizes_and_says_so(
    archive: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tmp_path / member.name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(tar.extractfile(member).read())  # type: ignore[union-attr]
    assert fetch("cifar10", tmp_path) == tmp_path / FOLDER
    assert "has no MD5SUMS: only the sizes of its files were checked" in capsys.readouterr().err


def test_files_that_the_sums_do_not_list_are_named(
    archive: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / ARCHIVE
    given.write_bytes(archive)
    fetch("cifar10", tmp_path, source=str(given))
    sums = tmp_path / FOLDER / "MD5SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "test_batch" not in line))
    capsys.readouterr()
    assert fetch("cifar10", tmp_path) == tmp_path / FOLDER
    assert "MD5SUMS does not list test_batch.bin: only their sizes were checked" in capsys.readouterr().err


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"no public data set called 'cifar1O'\.\n  Closest is 'cifar10'"):
        fetch("cifar1O", tmp_path)


def test_the_published_sums_are_these() -> None:
    forms = {form.name: form.md5 for wanted in module.SETS.values() for forms in wanted.files for form in forms}
    assert len(forms) == 9
    assert forms[ARCHIVE] == "c32a1d4ab5d03f1284b67883e8d87530"
    assert forms["t10k-labels-idx1-ubyte.gz"] == "bb300cfdad3c16e7a12a480ee83cd310"
    assert all(len(value) == 32 for value in forms.values())


@pytest.mark.parametrize("evil", ["../evil", "/tmp/viaduct-evil", f"{FOLDER}/../../evil"])
def test_a_member_that_would_land_outside_is_refused(
    archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evil: str
) -> None:
    content = tar_of({**cifar_members(), evil: b"evil"})
    monkeypatch.setitem(module.SETS, "cifar10", archive_set(content))
    given = tmp_path / "given.tar.gz"
    given.write_bytes(content)
    assert f"{evil!r} in it would be written outside" in refusal("cifar10", tmp_path / "a" / "b", str(given))
    assert list((tmp_path / "a" / "b").iterdir()) == []
    assert not list(tmp_path.rglob("evil"))
    assert not Path("/tmp/viaduct-evil").exists()


def test_members_nobody_requested_stay_packed(archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = tar_of({**cifar_members(), "evil": b"", f"{FOLDER}/extra.bin": b"", f"{FOLDER}/a/readme.html": b""})
    monkeypatch.setitem(module.SETS, "cifar10", archive_set(content))
    given = tmp_path / "given.tar.gz"
    given.write_bytes(content)
    fetch("cifar10", tmp_path / "out", source=str(given))
    check_cifar(tmp_path / "out")


def test_a_link_in_place_of_a_file_is_refused(archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tarfile.TarInfo(f"{FOLDER}/{TEST_FILE}")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members = cifar_members()
    del members[link.name]
    content = tar_of(members, link)
    monkeypatch.setitem(module.SETS, "cifar10", archive_set(content))
    (tmp_path / "given.tar.gz").write_bytes(content)
    assert "is not a plain file" in refusal("cifar10", tmp_path / "out", str(tmp_path / "given.tar.gz"))
    check_nothing_under_its_own_name(tmp_path / "out")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda members: tar_of(members)[:-2000], "could not be unpacked"),
        (lambda members: b"<html>sign in first</html>", "could not be unpacked"),
        (lambda members: tar_of(dict(list(members.items())[1:])), "there is no cifar-10-batches-bin/data_batch_1.bin"),
        (lambda members: tar_of({**members, f"{FOLDER}/{TEST_FILE}": b"short"}), "expected 24,584 bytes, found 5"),
        (lambda members: tar_of({**members, f"{FOLDER}/readme.html": bytes(2 << 20)}), "expected a short text"),
    ],
)
def test_archives_that_are_not_what_they_should_be(
    archive: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[dict[str, bytes]], bytes],
    reason: str,
) -> None:
    content = damage(cifar_members())
    monkeypatch.setitem(module.SETS, "cifar10", archive_set(content))
    given = tmp_path / "given.tar.gz"
    given.write_bytes(content)
    assert reason in refusal("cifar10", tmp_path / "out", str(given))
    assert list((tmp_path / "out").iterdir()) == []


# Over the network


def test_an_undisturbed_download(site: Site, archive: bytes, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    address = serve(site, archive)
    found = fetch("cifar10", tmp_path / "a" / "b", source=address, on_progress=lambda *now: seen.append(now))
    assert found == tmp_path / "a" / "b" / FOLDER
    check_cifar(tmp_path / "a" / "b")
    assert seen == sorted(seen)
    assert seen[0] == (0, len(archive))
    assert seen[-1] == (len(archive), len(archive))


@pytest.mark.parametrize("ending", ["", "/", f"/{ARCHIVE}", f"/{ARCHIVE}?token=1"])
def test_the_address_may_be_the_folder_or_the_file(site: Site, archive: bytes, tmp_path: Path, ending: str) -> None:
    site.files[f"/sets/{ARCHIVE}"] = archive
    fetch("cifar10", tmp_path, source=f"{site.address}/sets{ending}")
    check_cifar(tmp_path)


def test_the_default_address_is_the_sets_own(
    site: Site, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.SETS, "cifar10", archive_set(archive, serve(site, archive)))
    fetch("cifar10", tmp_path)
    check_cifar(tmp_path)


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_broken_connection_is_continued(
    site: Site, archive: bytes, tmp_path: Path, resets: bool, chunked: bool
) -> None:
    site.breaks, site.resets, site.chunked = [0.5, 0.5, 0.01, 0.9], resets, chunked
    fetch("cifar10", tmp_path, source=serve(site, archive))
    check_cifar(tmp_path)
    assert len(site.requests) == 5
    if not resets:  # a reset may take bytes with it that had arrived
        half = len(archive) // 2
        assert site.asked("Range")[:2] == [None, f"bytes={half}-"]
        assert site.asked("If-Range")[:2] == [None, '"one"']


def test_without_a_tag_the_date_guards_the_continuation(site: Site, archive: bytes, tmp_path: Path) -> None:
    site.tag, site.date, site.breaks = 'W/"weak"', "Sat, 04 Jul 2026 10:00:00 GMT", [0.5]
    fetch("cifar10", tmp_path, source=serve(site, archive))
    assert site.asked("If-Range") == [None, site.date]
    check_cifar(tmp_path)


def test_a_server_without_ranges_starts_over(site: Site, archive: bytes, tmp_path: Path) -> None:
    site.ranges, site.breaks = False, [0.5, 0.3]
    fetch("cifar10", tmp_path, source=serve(site, archive))
    check_cifar(tmp_path)
    assert site.asked("Range")[1:] == [f"bytes={int(len(archive) * share)}-" for share in (0.5, 0.3)]


@pytest.mark.parametrize(
    ("minds", "tagged", "requests"),
    [
        (True, True, 2),  # 200 in place of 206
        (False, True, 3),  # 206 with another tag
        (False, False, 3),  # 206 and only the checksum tells
    ],
)
def test_a_file_that_changes_on_the_server_starts_over(
    site: Site, archive: bytes, tmp_path: Path, minds: bool, tagged: bool, requests: int
) -> None:
    def change() -> None:
        site.files[f"/{ARCHIVE}"] = archive
        site.tag = '"two"' if tagged else None

    site.minds_if_range, site.tag = minds, '"one"' if tagged else None
    site.breaks, site.after_break = [0.5], change
    fetch("cifar10", tmp_path, source=serve(site, archive[::-1]))
    check_cifar(tmp_path)
    assert len(site.requests) == requests


@pytest.mark.parametrize("before", [0.3, 2.0, 4.0])
def test_a_file_that_changes_its_size_starts_over(site: Site, archive: bytes, tmp_path: Path, before: float) -> None:
    site.tag, site.breaks = None, [0.5]
    site.after_break = lambda: site.files.update({f"/{ARCHIVE}": archive})
    fetch("cifar10", tmp_path, source=serve(site, bytes(int(len(archive) * before))))
    check_cifar(tmp_path)


def test_after_some_tries_it_says_how_far_it_came_and_the_same_command_continues(
    site: Site, archive: bytes, tmp_path: Path
) -> None:
    address = serve(site, archive)
    site.breaks = [0.5, 0, 0, 0, 0]
    message = refusal("cifar10", tmp_path, address)
    half, part = len(archive) // 2, tmp_path / f"{ARCHIVE}.part"
    assert f"{address}: the connection broke off.\n" in message
    assert (
        f"{half:,} of {len(archive):,} bytes were received and are kept in {part}; the same command contin" in message
    )
    assert len(site.requests) == 1 + len(module.PAUSES)
    assert part.read_bytes() == archive[:half]
    check_nothing_under_its_own_name(tmp_path)
    site.breaks = []
    fetch("cifar10", tmp_path, source=address)
    assert site.asked("Range")[-1] == f"bytes={half}-"
    check_cifar(tmp_path)


def test_tries_that_get_further_are_not_counted(site: Site, archive: bytes, tmp_path: Path) -> None:
    site.breaks = [0.2] * 12
    fetch("cifar10", tmp_path, source=serve(site, archive))
    assert len(site.requests) == 13
    check_cifar(tmp_path)


def test_a_part_from_another_address_is_not_continued(site: Site, archive: bytes, tmp_path: Path) -> None:
    site.breaks = [0.5, 0, 0, 0]
    refusal("cifar10", tmp_path, serve(site, archive))
    site.files["/mirror/" + ARCHIVE] = archive
    fetch("cifar10", tmp_path, source=f"{site.address}/mirror/")
    assert site.asked("Range")[-1] is None
    check_cifar(tmp_path)


@pytest.mark.parametrize("note", [None, b"", b"[]", b'{"address": 1}', b"\xff"])
def test_a_part_of_unknown_origin_is_not_continued(
    site: Site, archive: bytes, tmp_path: Path, note: bytes | None
) -> None:
    (tmp_path / f"{ARCHIVE}.part").write_bytes(b"whatever")
    if note is not None:
        (tmp_path / f"{ARCHIVE}.part.json").write_bytes(note)
    fetch("cifar10", tmp_path, source=serve(site, archive))
    assert site.asked("Range") == [None]
    check_cifar(tmp_path)


def test_a_part_that_was_all_there_needs_no_network(site: Site, archive: bytes, tmp_path: Path) -> None:
    address = serve(site, archive)
    (tmp_path / f"{ARCHIVE}.part").write_bytes(archive)
    note = {"address": address, "validator": None, "total": len(archive)}
    (tmp_path / f"{ARCHIVE}.part.json").write_text(json.dumps(note))
    fetch("cifar10", tmp_path, source=address)
    assert site.requests == []
    check_cifar(tmp_path)


def test_a_wrong_checksum_names_both_and_keeps_the_file_aside(site: Site, archive: bytes, tmp_path: Path) -> None:
    page = b"<html>Please sign in to this network</html>"
    address = serve(site, page)
    message = refusal("cifar10", tmp_path, address)
    assert f"wrong checksum: expected md5 {md5(archive)}, found {md5(page)} (43 bytes)" in message
    assert address in message
    assert "--from" in message
    assert [entry.name for entry in tmp_path.iterdir()] == [f"{ARCHIVE}.bad"]
    assert (tmp_path / f"{ARCHIVE}.bad").read_bytes() == page
    assert len(site.requests) == 1
    fetch("cifar10", tmp_path, source=serve(site, archive))
    assert (tmp_path / FOLDER).is_dir()


def test_a_wrong_file_under_the_final_name_is_set_aside(site: Site, archive: bytes, tmp_path: Path) -> None:
    (tmp_path / ARCHIVE).write_bytes(b"mine")
    fetch("cifar10", tmp_path, source=serve(site, archive))
    assert (tmp_path / f"{ARCHIVE}.bad").read_bytes() == b"mine"
    assert (tmp_path / ARCHIVE).read_bytes() == archive


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_an_answer_that_will_not_change_is_reported_at_once(
    site: Site, archive: bytes, tmp_path: Path, status: int
) -> None:
    site.statuses = [status]
    message = refusal("cifar10", tmp_path, serve(site, archive))
    assert f"the server answered {status} " in message
    assert "--from" in message
    assert len(site.requests) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_failing_server_is_asked_again(site: Site, archive: bytes, tmp_path: Path) -> None:
    site.statuses = [500, 503, 429]
    fetch("cifar10", tmp_path, source=serve(site, archive))
    check_cifar(tmp_path)


def test_a_server_that_keeps_failing_is_named(site: Site, archive: bytes, tmp_path: Path) -> None:
    site.statuses = [500] * 9
    message = refusal("cifar10", tmp_path, serve(site, archive))
    assert "the server answered 500 Internal Server Error" in message
    assert "Nothing was received yet; the same command tries again" in message
    assert len(site.requests) == 1 + len(module.PAUSES)


def test_a_host_that_cannot_be_reached(site: Site, archive: bytes, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        assert "could not be reached: [Errno 111] Connection refused" in refusal("cifar10", tmp_path, address)


def test_a_server_that_stops_sending(
    site: Site, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.1)
    site.hold, site.breaks = threading.Event(), [0.5, 0.5]
    fetch("cifar10", tmp_path, source=serve(site, archive))
    site.hold.set()
    check_cifar(tmp_path)


@pytest.mark.parametrize(
    "source", ["ftp://host/x", "http://", "http://[half/", "http://127.0.0.1:port/", "http://a b/"]
)
def test_invalid_addresses_are_refused(archive: bytes, tmp_path: Path, source: str, site: Site) -> None:
    with pytest.raises(BadValue, match="not an address"):
        fetch("cifar10", tmp_path, source=source)


# However the process ends

CHILD = """
import sys
from pathlib import Path
from viaduct.data import fetch as module
from viaduct.data.fetch import PublicFile, PublicSet
name, md5, out, address = sys.argv[1:]
module.SETS["cifar10"] = PublicSet(address, ((PublicFile(name, md5),),), is_archive=True)
module.fetch("cifar10", Path(out))
"""


def test_a_killed_process_is_continued(site: Site, archive: bytes, tmp_path: Path) -> None:
    address, part, half = serve(site, archive), tmp_path / f"{ARCHIVE}.part", len(archive) // 2
    site.hold, site.breaks = threading.Event(), [0.5]
    command = [sys.executable, "-c", CHILD, ARCHIVE, md5(archive), str(tmp_path), address]
    with subprocess.Popen(command) as child:
        wait_until(lambda: part.exists() and part.stat().st_size > half - 9000)
        assert "another process is writing to this folder" in refusal("cifar10", tmp_path, address)
        child.send_signal(signal.SIGKILL)
    site.hold.set()
    check_nothing_under_its_own_name(tmp_path)
    kept = part.stat().st_size
    assert part.read_bytes() == archive[:kept]
    fetch("cifar10", tmp_path, source=address)
    assert site.asked("Range") == [None, f"bytes={kept}-"]
    check_cifar(tmp_path)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interrupt_keeps_what_was_received(
    site: Site, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(done: int, total: int | None) -> None:
        if done > 50_000:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "PIECE_BYTES", 10_000)
    address = serve(site, archive)
    with pytest.raises(KeyboardInterrupt):
        fetch("cifar10", tmp_path, source=address, on_progress=interrupt)
    kept = (tmp_path / f"{ARCHIVE}.part").stat().st_size
    assert kept > 50_000
    fetch("cifar10", tmp_path, source=address)
    assert site.asked("Range") == [None, f"bytes={kept}-"]
    check_cifar(tmp_path)


def test_killed_between_download_and_unpacking(archive: bytes, tmp_path: Path) -> None:
    (tmp_path / ARCHIVE).write_bytes(archive)
    ended = subprocess.Popen(["true"])
    ended.wait()
    leftover = tmp_path / name_temporary(tmp_path / FOLDER).name.replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    leftover.mkdir()
    (leftover / "data_batch_1.bin").write_bytes(b"half")
    fetch("cifar10", tmp_path)
    check_cifar(tmp_path)


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: b"\xff" + content[1:]])
def test_a_damaged_folder_is_repaired_and_its_other_files_stay(
    archive: bytes, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    (tmp_path / ARCHIVE).write_bytes(archive)
    folder = fetch("cifar10", tmp_path)
    (folder / TEST_FILE).write_bytes(damage((folder / TEST_FILE).read_bytes()))
    (folder / "notes.txt").write_text("mine")
    fetch("cifar10", tmp_path)
    assert (folder / "notes.txt").read_text() == "mine"
    (folder / "notes.txt").unlink()
    check_cifar(tmp_path)


def test_out_is_a_file(archive: bytes, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    for out in (tmp_path / "out", tmp_path / "out" / "below"):
        message = refusal("cifar10", out)
        assert f"{out}: could not be used: " in message
        assert "--out" in message
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that not even root may write to")
def test_out_may_not_be_written_to_by_anyone(site: Site, archive: bytes) -> None:
    assert "/proc: could not be used: " in refusal("cifar10", Path("/proc"), serve(site, archive))
    assert "/proc/below: could not be used: " in refusal("cifar10", Path("/proc/below"), serve(site, archive))
    assert site.requests == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_out_may_not_be_written_to(archive: bytes, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert "Permission denied" in refusal("cifar10", tmp_path)
        assert "Permission denied" in refusal("cifar10", tmp_path / "below")
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk(site: Site, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_response", full)
    with pytest.raises(DiskFull, match="make room and run the same command again"):
        fetch("cifar10", tmp_path, source=serve(site, archive))
    assert len(site.requests) == 1


# From files and folders


@pytest.mark.parametrize("form", ["{0}/" + ARCHIVE, "{0}", "file://{0}/" + ARCHIVE])
def test_a_local_archive_is_unpacked_where_it_lies(archive: bytes, tmp_path: Path, form: str) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / ARCHIVE).write_bytes(archive)
    fetch("cifar10", tmp_path / "out", source=form.format(given))
    check_cifar(tmp_path / "out")
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [FOLDER]
    assert (given / ARCHIVE).read_bytes() == archive


def test_a_local_archive_with_a_wrong_checksum_is_left_as_it_is(archive: bytes, tmp_path: Path) -> None:
    given = tmp_path / "given.tar.gz"
    given.write_bytes(archive[:-1])
    message = refusal("cifar10", tmp_path / "out", str(given))
    assert f"{given}: wrong checksum: expected md5 {md5(archive)}, found {md5(archive[:-1])}" in message
    assert given.read_bytes() == archive[:-1]
    check_nothing_under_its_own_name(tmp_path / "out")


def test_local_sources_that_do_not_exist(archive: bytes, tmp_path: Path) -> None:
    missing = tmp_path / "missing.tar.gz"
    assert f"{missing}: there is no such file or folder" in refusal("cifar10", tmp_path / "out", str(missing))
    given = tmp_path / "given"
    given.mkdir()
    message = refusal("cifar10", tmp_path / "out", str(given))
    assert f"{given}: there is no {ARCHIVE}.\n  It is empty." in message
    (given / TEST_FILE).write_bytes(b"")
    assert "It has: test_batch.bin\n  The set is unpacked there already" in refusal(
        "cifar10", tmp_path / "out", str(given)
    )


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_fashion_from_a_folder_as_a_package_installs_it(fashion: dict[str, bytes], tmp_path: Path, suffix: str) -> None:
    given, out = tmp_path / "given", tmp_path / "out"
    given.mkdir()
    for name in FASHION:
        (given / (name + suffix)).write_bytes(fashion[name + suffix])
    assert fetch("fashion-mnist", out, source=str(given)) == out
    assert {file.name: file.read_bytes() for file in out.iterdir()} == {
        name + suffix: fashion[name + suffix] for name in FASHION
    }
    assert fetch("fashion-mnist", out) == out
    assert fetch("fashion-mnist", tmp_path / "again", source=str(given / (FASHION[2] + suffix)))


def test_other_images_of_the_same_size_are_not_fashion(fashion: dict[str, bytes], tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in FASHION:
        (given / name).write_bytes(bytes(5000))
    message = refusal("fashion-mnist", tmp_path / "out", str(given))
    assert f"{given / FASHION[0]}: wrong checksum: expected md5 {md5(fashion[FASHION[0]])}" in message
    assert list((tmp_path / "out").iterdir()) == []


def test_fashion_with_a_file_missing(fashion: dict[str, bytes], tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in FASHION[:3]:
        (given / name).write_bytes(fashion[name])
    message = refusal("fashion-mnist", tmp_path / "out", str(given))
    assert f"there is no {FASHION[3]}.gz or {FASHION[3]}" in message
    (given / "other.gz").write_bytes(b"")
    message = refusal("fashion-mnist", tmp_path / "out", str(given / "other.gz"))
    assert "not one of the set's 4 files" in message


@pytest.mark.parametrize("ending", ["", "/", f"/{FASHION[1]}.gz"])
def test_fashion_over_the_network_fetches_only_what_is_missing(
    site: Site, fashion: dict[str, bytes], tmp_path: Path, ending: str
) -> None:
    site.files = {f"/sets/{name}": content for name, content in fashion.items()}
    site.breaks = [0.5]
    (tmp_path / FASHION[0]).write_bytes(fashion[FASHION[0]])
    (tmp_path / f"{FASHION[1]}.gz").write_bytes(b"damaged")
    assert fetch("fashion-mnist", tmp_path, source=f"{site.address}/sets{ending}") == tmp_path
    assert site.asked("path") == [f"/sets/{FASHION[number]}.gz" for number in (1, 1, 2, 3)]
    assert (tmp_path / f"{FASHION[1]}.gz").read_bytes() == fashion[f"{FASHION[1]}.gz"]
    assert (tmp_path / f"{FASHION[1]}.gz.bad").read_bytes() == b"damaged"
    assert not list(tmp_path.glob("*.part*"))
