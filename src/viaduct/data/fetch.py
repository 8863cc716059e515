"""Download of the public image sets CIFAR-10 and Fashion-MNIST, verified by checksums; interrupted ones are continued.

    fetch("cifar10", Path("data"))                                    -> data/cifar-10-batches-bin
    fetch("fashion-mnist", Path("data"), source="http://mirror/set/") -> data

Files in the folder besides the set itself:

    NAME.part         the part of a file that was downloaded so far
    NAME.part.json    its address and version; if the server has another version, the download starts over
    NAME.bad          a file with a wrong checksum, kept for inspection
    MD5SUMS           beside CIFAR-10's unpacked files: their checksums, for `md5sum -c` and for the next fetch

A file gets its final name only when its checksum is right (of a local file: before it is copied), so a fetch that was
killed can be run again.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPException, HTTPResponse, InvalidURL
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit, urlunsplit
from urllib.request import Request, url2pathname, urlopen

from viaduct.atomic_files import lock_folder, move_files, replace_file, stage_folder, write_file
from viaduct.data import cifar10
from viaduct.data.notices import describe_error, join_first, print_notice
from viaduct.errors import BadData, BadValue, DiskFull, UnknownName

Progress = Callable[[int, int | None], None]  # downloaded bytes of the current file, and its size if known
# Seconds before each retry of a broken connection. The sequence starts again after a retry that received data.
PAUSES = (0.5, 1.0, 2.0, 4.0)
STALL_SECONDS = 30.0  # timeout of a connection that receives nothing
PIECE_BYTES = 1 << 18  # how much is read at once
MAX_TEXT_BYTES = 1 << 20  # limit of each text file in the archive

SUMS_FILE = "MD5SUMS"
# CIFAR-10's files.
RECORD_FILES = (*cifar10.TRAIN_FILES, cifar10.TEST_FILE)
TEXT_FILES = (cifar10.NAMES_FILE, "readme.html")

UNPACKED = "The set is unpacked there already: use it as --data instead of fetching it."
TRY_ANOTHER = "Give another source with --from: an address, a file or a folder."


@dataclass(frozen=True)
class PublicFile:
    """Name and checksum of a file of a public data set."""

    name: str
    md5: str


@dataclass(frozen=True)
class PublicSet:
    """Public data set: its address and its files."""

    address: str
    files: tuple[tuple[PublicFile, ...], ...]  # the forms of each file, such as gzipped and plain; the first is fetched
    is_archive: bool = False  # True: the only file is CIFAR-10's archive, which is unpacked

    def list_names(self) -> set[str]:
        """Return the names of all files, in every form."""
        return {form.name for forms in self.files for form in forms}


# NAME, md5 of NAME.gz as published by the authors, md5 of NAME computed after gunzip.
FASHION_MNIST = (
    ("train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    ("train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"),
    ("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"),
    ("t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"),
)
SETS = {
    "cifar10": PublicSet(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        ((PublicFile("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),),
        is_archive=True,
    ),
    "fashion-mnist": PublicSet(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        tuple((PublicFile(f"{name}.gz", zipped), PublicFile(name, plain)) for name, zipped, plain in FASHION_MNIST),
    ),
}


def fetch(name: str, out: Path, *, source: str | None = None, on_progress: Progress | None = None) -> Path:
    """Download or copy a set into `out` unless `find_complete` finds it there, and return its folder.

    `source` is the address of a file or its folder, or a local file or folder; by default the set's public address.
    """
    if name not in SETS:
        raise UnknownName("public data set", name, SETS)
    public_set = SETS[name]
    with explain_errors(out):
        complete_folder = find_complete(public_set, out)
        if complete_folder is not None:
            return complete_folder
        origin = parse_source(source or public_set.address)
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass  # fails before the download if the folder is not writable
        with lock_folder(out):
            on_progress = on_progress or (lambda done, total: None)
            files = [obtain_file(public_set, forms, out, origin, on_progress) for forms in public_set.files]
            return unpack(files[0], out) if public_set.is_archive else out


@contextmanager
def explain_errors(out: Path) -> Iterator[None]:
    """Within the `with` block, turn file system errors into messages that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "What was downloaded is kept: make room and run the same command again."
            raise DiskFull(f"{out}: the disk is full, or a quota is used up.", hint) from error
        hint = "Give --out a folder that may be written to."
        raise BadData(f"{out}: could not be used: {describe_error(error)}.", hint) from error


# Files that are present already


def find_complete(public_set: PublicSet, out: Path) -> Path | None:
    """Return the folder that contains the whole set; None if a file is missing or wrong.

    A notice says of which files only the sizes were checked (see `is_unpacked`).
    """
    if public_set.is_archive:
        folder = out / cifar10.FOLDER
        if not is_unpacked(folder):
            return None
        if unlisted := [name for name in RECORD_FILES if name not in read_sums(folder)]:
            if (folder / SUMS_FILE).is_file():
                which = f"{folder / SUMS_FILE} does not list {join_first(unlisted)}: only their sizes were checked"
            else:
                which = f"{folder} has no {SUMS_FILE}: only the sizes of its files were checked"
            print_notice(f"note: {which}.")
        return folder
    return out if all(find_form(forms, out) for forms in public_set.files) else None


def find_form(forms: tuple[PublicFile, ...], folder: Path) -> Path | None:
    """Return the path of the first form of a file that is in the folder with the right checksum."""
    return next((folder / form.name for form in forms if has_sum(folder / form.name, form.md5)), None)


def is_unpacked(folder: Path) -> bool:
    """Return True if all record files have the right size, and files listed in MD5SUMS the checksum there.

    MD5SUMS was written when viaduct unpacked the verified archive. A folder that was unpacked by hand has none.
    """
    size = cifar10.RECORDS_PER_FILE * cifar10.RECORD_BYTES
    files = [folder / name for name in RECORD_FILES]
    if not all(file.is_file() and file.stat().st_size == size for file in files):
        return False
    return all(has_sum(folder / name, md5) for name, md5 in read_sums(folder).items())


def read_sums(folder: Path) -> dict[str, str]:
    """Return the checksums in MD5SUMS by file name; empty if there is no such file."""
    file = folder / SUMS_FILE
    if not file.is_file():
        return {}
    lines = (line.split() for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
    return {line[1]: line[0] for line in lines if len(line) == 2 and line[1] in (*RECORD_FILES, *TEXT_FILES)}


def has_sum(file: Path, md5: str) -> bool:
    return file.is_file() and compute_md5(file) == md5


def compute_md5(file: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with open(file, "rb") as opened:
            while piece := opened.read(PIECE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise BadData(f"{file}: could not be read: {describe_error(error)}.") from error
    return digest.hexdigest()


# The source: a local path or an address


def parse_source(source: str) -> Path | SplitResult:
    """Return a local path, or the parts of an address."""
    if "://" not in source:
        return require_existing(Path(source))
    try:
        parts = urlsplit(source)
    except ValueError as error:
        raise BadValue(f"--from {source}: not an address: {error}.") from error
    if parts.scheme == "file":
        return require_existing(Path(url2pathname(parts.path)))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadValue(
            f"--from {source}: not an address to fetch from.", "It begins with http://HOST/ or https://HOST/."
        )
    return parts


def require_existing(path: Path) -> Path:
    if not path.exists():
        raise BadData(f"{path}: there is no such file or folder.", TRY_ANOTHER)
    return path


def obtain_file(
    public_set: PublicSet, forms: tuple[PublicFile, ...], out: Path, origin: Path | SplitResult, on_progress: Progress
) -> Path:
    """Return a file of the set with the right checksum: the one in `out`, a local one, or a download."""
    present = find_form(forms, out)
    if present is not None:
        return present
    if isinstance(origin, SplitResult):
        return download(find_address(origin, forms[0].name, public_set), forms[0], out, on_progress)
    local = find_local(origin, forms, public_set)
    return local if public_set.is_archive else copy_file(local, out, on_progress)


def find_address(origin: SplitResult, name: str, public_set: PublicSet) -> str:
    """Return the address of a file of the set.

    `origin` is the address of the archive itself, of any file of the set, or of their folder.
    """
    folder, _, last = origin.path.rpartition("/")
    if public_set.is_archive and (origin.query or last.endswith((".gz", ".tgz"))):
        return urlunsplit(origin)
    if last not in public_set.list_names():
        folder = origin.path.rstrip("/")
    return urlunsplit(origin._replace(path=f"{folder}/{name}"))


def find_local(origin: Path, forms: tuple[PublicFile, ...], public_set: PublicSet) -> Path:
    """Return a file of the set at a local path, after verifying its checksum."""
    if public_set.is_archive and origin.is_file():
        return require_checksum(origin, forms[0])
    folder = origin if origin.is_dir() else origin.parent
    if origin.is_file() and origin.name not in public_set.list_names():
        raise BadData(f"{origin}: not one of the set's {len(public_set.files)} files.", "Give the folder they lie in.")
    for form in forms:
        if (folder / form.name).is_file():
            return require_checksum(folder / form.name, form)
    present = sorted(entry.name for entry in folder.iterdir())
    raise BadData(
        f"{folder}: there is no {' or '.join(form.name for form in forms)}.",
        f"It has: {join_first(present, 12)}" if present else "It is empty.",
        UNPACKED if public_set.is_archive and cifar10.TEST_FILE in present else TRY_ANOTHER,
    )


def require_checksum(file: Path, form: PublicFile) -> Path:
    """Return the file if its checksum is right."""
    md5 = compute_md5(file)
    if md5 != form.md5:
        raise explain_checksum(file, form, md5, "The file was left as it is; copy or download it again.")
    return file


def explain_checksum(file: Path, form: PublicFile, md5: str, *hints: str) -> BadData:
    """Return the error for a file with a wrong checksum."""
    size = file.stat().st_size
    return BadData(f"{file}: wrong checksum: expected md5 {form.md5}, found {md5} ({size:,} bytes).", *hints)


def copy_file(file: Path, out: Path, on_progress: Progress) -> Path:
    """Copy a local file into the folder, atomically."""
    target = out / file.name
    with open(file, "rb") as source, replace_file(target) as opened:
        shutil.copyfileobj(source, opened)
        keep_as_bad(target)
        on_progress(opened.tell(), opened.tell())
    return target


def keep_as_bad(file: Path) -> None:
    """Rename an existing file to NAME.bad, so that it is not overwritten."""
    if file.exists():
        os.replace(file, add_suffix(file, ".bad"))


def add_suffix(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)


# Over the network


class BrokenConnection(Exception):
    """Failure of a connection that may succeed on a retry."""


@dataclass(frozen=True)
class RemoteVersion:
    """Version of a file on the server, from the headers of a response; shows a change between two requests."""

    address: str
    validator: str | None  # ETag or date of modification
    total: int | None  # bytes

    def agrees_with(self, other: RemoteVersion) -> bool:
        """Return True if validators and sizes are equal where both are known.

        A server that continues a file may omit its date (RFC 9110, 15.3.7).
        """
        pairs = ((self.validator, other.validator), (self.total, other.total))
        return all(None in pair or pair[0] == pair[1] for pair in pairs)


def download(address: str, form: PublicFile, out: Path, on_progress: Progress) -> Path:
    """Download a file into the folder `out`. If its checksum is wrong, keep it as NAME.bad and raise `BadData`."""
    target = out / form.name
    part = add_suffix(target, ".part")
    was_continued = receive_all(address, part, on_progress)
    if was_continued and not has_sum(part, form.md5):
        # The part may be of an older version if the server does not tell versions apart: download again from byte 0.
        delete_part(part)
        receive_all(address, part, on_progress)
    md5 = compute_md5(part)
    if md5 != form.md5:
        bad = add_suffix(target, ".bad")
        os.replace(part, bad)
        delete_part(part)
        raise explain_checksum(bad, form, md5, f"It was downloaded from {address} and is not used.", TRY_ANOTHER)
    with open(part, "rb+") as file:
        os.fsync(file.fileno())
    keep_as_bad(target)
    os.replace(part, target)
    delete_part(part)
    return target


def receive_all(address: str, part: Path, on_progress: Progress) -> bool:
    """Download a file in full, with retries; return True if the last attempt continued an existing part."""
    largest = get_size(part)
    pauses = iter(PAUSES)
    while True:
        try:
            return receive(address, part, on_progress)
        except BrokenConnection as error:
            if get_size(part) > largest:
                largest, pauses = get_size(part), iter(PAUSES)
            pause = next(pauses, None)
            if pause is None:
                raise BadData(f"{address}: {error}.", describe_progress(part), TRY_ANOTHER) from error
        time.sleep(pause)


def describe_progress(part: Path) -> str:
    """Return a hint that says how much has been downloaded, and how to continue."""
    version, size = read_version(part), get_size(part)
    if not size:
        return "Nothing was received yet; the same command tries again."
    total = f" of {version.total:,}" if version and version.total is not None else ""
    return f"{size:,}{total} bytes were received and are kept in {part}; the same command continues from there."


def receive(address: str, part: Path, on_progress: Progress) -> bool:
    """Continue the part if the server still has the same version, otherwise start over; leave a complete part as it is.

    Return True if an existing part was continued or complete. A failure that a retry may mend is a `BrokenConnection`.
    """
    begun = read_version(part)
    if begun is None or begun.address != address:
        delete_part(part)
        begun = None
    received = get_size(part)
    if begun and received and received == begun.total:
        return True
    with connect(address, part, received, begun) as response:
        version = read_response_version(address, response)
        continues = (response.headers["Content-Range"] or "").startswith(f"bytes {received}-")
        if response.status != 206:  # the whole file: the server cannot continue, or has another version
            received = 0
            delete_part(part)  # before the new version is recorded, so that old bytes never belong to a new version
            write_file(add_suffix(part, ".json"), json.dumps(asdict(version)).encode())
        elif begun is None or not (continues and begun.agrees_with(version)):
            delete_part(part)
            raise BrokenConnection("the file there has changed")
        with open(part, "ab") as opened:
            write_response(response, opened, received, version.total, on_progress)
    return received > 0


def connect(address: str, part: Path, received: int, begun: RemoteVersion | None) -> HTTPResponse:
    """Request the file from byte `received` on; with If-Range a server that has another version sends all of it."""
    headers = {"User-Agent": "viaduct", "Accept-Encoding": "identity"}
    if received:
        headers["Range"] = f"bytes={received}-"
    if received and begun and begun.validator:
        headers["If-Range"] = begun.validator
    try:
        response: HTTPResponse = urlopen(Request(address, headers=headers), timeout=STALL_SECONDS)
    except HTTPError as error:
        error.close()
        raise classify_answer(address, part, error.code, error.reason) from error
    except (ValueError, InvalidURL) as error:
        raise BadValue(f"--from {address}: not an address: {error}.") from error
    except (OSError, HTTPException) as error:
        raise BrokenConnection(f"could not be reached: {describe_network_error(error)}") from error
    return response


def classify_answer(address: str, part: Path, code: int, reason: str) -> Exception:
    """Return the error for an HTTP status that is not a success: `BrokenConnection` if a retry may succeed.

    A part that is as long as the server's file, or longer, is deleted, because it is not of that file.
    """
    if code == 416:  # there are no bytes after those of the part
        delete_part(part)
        return BrokenConnection("the file there has changed")
    answer = f"the server answered {code} {reason}".rstrip()
    if code >= 500 or code in (408, 425, 429):
        return BrokenConnection(answer)
    return BadData(f"{address}: {answer}.", TRY_ANOTHER)


def describe_network_error(error: Exception) -> str:
    inner = error.reason if isinstance(error, URLError) else error
    return str(inner) or type(inner).__name__


def write_response(
    response: HTTPResponse, file: BinaryIO, received: int, total: int | None, on_progress: Progress
) -> None:
    """Write the response to the file as it arrives."""
    on_progress(received, total)
    while received != total:
        try:
            piece = response.read1(PIECE_BYTES if total is None else min(PIECE_BYTES, total - received))
        except (OSError, HTTPException) as error:
            raise BrokenConnection(f"the connection broke off: {describe_network_error(error)}") from error
        if not piece:
            break
        file.write(piece)
        received += len(piece)
        on_progress(received, total)
    if total is not None and received < total:
        raise BrokenConnection("the connection broke off")


def read_response_version(address: str, response: HTTPResponse) -> RemoteVersion:
    """Return the version of a response. If-Range takes an ETag that is not weak, or a date (RFC 9110, 13.1.5)."""
    tag = response.headers["ETag"]
    validator = response.headers["Last-Modified"] if tag is None or tag.startswith("W/") else tag
    if response.status == 206:
        total = (response.headers["Content-Range"] or "").rpartition("/")[2]
    else:
        total = response.headers["Content-Length"] or ""
    return RemoteVersion(address, validator, int(total) if total.isdecimal() else None)


def read_version(part: Path) -> RemoteVersion | None:
    """Return the recorded version of a part; None if there is none, or it cannot be read."""
    try:
        return RemoteVersion(**json.loads(add_suffix(part, ".json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def delete_part(part: Path) -> None:
    """Delete a part and the record of its version."""
    part.unlink(missing_ok=True)
    add_suffix(part, ".json").unlink(missing_ok=True)


def get_size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


# The archive


def unpack(archive: Path, out: Path) -> Path:
    """Unpack CIFAR-10's files, and no others, into a temporary folder; when complete, move them into place."""
    target = out / cifar10.FOLDER
    with stage_folder(target) as folder:
        extract(archive, folder)
        sums = "".join(f"{compute_md5(file)}  {file.name}\n" for file in sorted(folder.iterdir()))
        (folder / SUMS_FILE).write_text(sums, encoding="utf-8")
        move_files(folder, target, last=SUMS_FILE)
    return target


def extract(archive: Path, folder: Path) -> None:
    """Unpack CIFAR-10's own files into the folder."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = check_member(archive, member)
                if name is not None:
                    extract_member(tar, member, folder / name)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadData(f"{archive}: could not be unpacked: {describe_error(error)}.") from error
    missing = [name for name in RECORD_FILES if not (folder / name).is_file()]
    if missing:
        raise BadData(f"{archive}: there is no {cifar10.FOLDER}/{missing[0]} in it.")


def check_member(archive: Path, member: tarfile.TarInfo) -> str | None:
    """Return the name of one of CIFAR-10's own files, None for other members; refuse unsafe and damaged members."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise BadData(f"{archive}: {member.name!r} in it would be written outside of the folder.")
    if str(path.parent) != cifar10.FOLDER or path.name not in (*RECORD_FILES, *TEXT_FILES):
        return None
    if not member.isreg():
        raise BadData(f"{archive}: {member.name!r} in it is not a plain file.")
    expected = cifar10.RECORDS_PER_FILE * cifar10.RECORD_BYTES
    if path.name in RECORD_FILES and member.size != expected:
        raise BadData(f"{archive}: {member.name!r}: expected {expected:,} bytes, found {member.size:,}.")
    if path.name in TEXT_FILES and member.size > MAX_TEXT_BYTES:
        raise BadData(f"{archive}: {member.name!r}: expected a short text, found {member.size:,} bytes.")
    return path.name


def extract_member(tar: tarfile.TarFile, member: tarfile.TarInfo, file: Path) -> None:
    """Write a member of the archive to a file, and flush it to the disk."""
    source = tar.extractfile(member)
    assert source is not None, "check_member accepts plain files only"
    with source, open(file, "wb") as opened:
        shutil.copyfileobj(source, opened)
        opened.flush()
        os.fsync(opened.fileno())
