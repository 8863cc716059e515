"""Public sets of images: fetched once, checksummed, continued where they broke off.

    fetch("cifar10", Path("data"))                                    -> data/cifar-10-batches-bin
    fetch("fashion-mnist", Path("data"), source="http://mirror/set/") -> data

What lies in the folder, besides the set itself:

    NAME.part         what has come of a file so far
    NAME.part.json    from where, and of which version; another version on the server starts over
    NAME.bad          what had the wrong checksum, to be looked at
    MD5SUMS           beside CIFAR-10's unpacked files: their sums, for `md5sum -c` and for the next fetch

A file takes its own name only when its checksum is right, so a fetch that was killed is simply run again.
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

from viaduct.atomic_files import lock_folder, replace_file
from viaduct.data import cifar10
from viaduct.data.notices import reason
from viaduct.errors import BadData, BadValue, DiskFull, UnknownName

Progress = Callable[[int, int | None], None]
"""Bytes of the file at hand that are here, and of how many, if the server says so."""

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each new try after a broken connection; a try that got further begins the row again."""

STALL_SECONDS = 30.0
PIECE_BYTES = 1 << 18
TEXT_BYTES = 1 << 20

SUMS_FILE = "MD5SUMS"
RECORD_FILES = (*cifar10.TRAIN_FILES, cifar10.TEST_FILE)
TEXT_FILES = (cifar10.NAMES_FILE, "readme.html")

UNPACKED = "It is unpacked already: it needs no fetching, give it as --data."
TRY_ANOTHER = "Give another source with --from: an address, a file or a folder."


@dataclass(frozen=True)
class PublicFile:
    """Name and checksum of a file of a public data set."""

    name: str
    md5: str


@dataclass(frozen=True)
class PublicSet:
    """Files at an address, each in the forms it may have (gzipped, plain); the first form is the one downloaded."""

    address: str
    files: tuple[tuple[PublicFile, ...], ...]
    is_archive: bool = False

    def names(self) -> set[str]:
        """Return the names of all files, in every form."""
        return {form.name for forms in self.files for form in forms}


def zipped_or_plain(name: str, zipped_md5: str, plain_md5: str) -> tuple[PublicFile, ...]:
    """Return both forms in which a file may be there."""
    return PublicFile(f"{name}.gz", zipped_md5), PublicFile(name, plain_md5)


# Sums of the archives as their authors publish them; of the plain files as found after gunzip.
SETS = {
    "cifar10": PublicSet(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        ((PublicFile("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),),
        is_archive=True,
    ),
    "fashion-mnist": PublicSet(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            zipped_or_plain(
                "train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"
            ),
            zipped_or_plain(
                "train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"
            ),
            zipped_or_plain(
                "t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"
            ),
            zipped_or_plain(
                "t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"
            ),
        ),
    ),
}


def fetch(name: str, out: Path, *, source: str | None = None, on_progress: Progress | None = None) -> Path:
    """Bring a set into `out` and return its folder.

    A complete set is left alone, and no network is used.

    `source` is an address (of the file, or of the folder it lies in) or a local file or folder; by default the
    set's public address.
    """
    wanted = find_set(name)
    with explain_errors(out):
        complete_folder = find_complete(wanted, out)
        if complete_folder is not None:
            return complete_folder
        origin = find_origin(source or wanted.address)
        create_folder(out)
        with lock_folder(out):
            obtained = [obtain(wanted, forms, out, origin, on_progress or ignore) for forms in wanted.files]
            return unpack(obtained[0], out) if wanted.is_archive else out


def present(name: str, out: Path) -> Path | None:
    """Return the folder of the set in `out` if it is there and complete."""
    wanted = find_set(name)
    with explain_errors(out):
        return find_complete(wanted, out)


def find_set(name: str) -> PublicSet:
    if name not in SETS:
        raise UnknownName("public data set", name, SETS)
    return SETS[name]


def ignore(done: int, total: int | None) -> None:
    pass


def create_folder(out: Path) -> None:
    """Create a folder and check that it can be written to, before the download."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass


@contextmanager
def explain_errors(out: Path) -> Iterator[None]:
    """Turn errors of the file system into messages that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"{out}: the disk is full.", "What has come is kept: make room and run the same command again."
            ) from error
        raise BadData(
            f"{out}: could not be used: {reason(error)}.", "Give --out a folder that may be written to."
        ) from error


# What is there already


def find_complete(wanted: PublicSet, out: Path) -> Path | None:
    """Return where all of the set lies, or None."""
    if wanted.is_archive:
        folder = out / cifar10.FOLDER
        return folder if is_unpacked(folder) else None
    return out if all(find_form(forms, out) for forms in wanted.files) else None


def find_form(forms: tuple[PublicFile, ...], folder: Path) -> Path | None:
    """Return the file in whichever form lies in the folder with the right checksum."""
    return next((folder / form.name for form in forms if has_sum(folder / form.name, form.md5)), None)


def is_unpacked(folder: Path) -> bool:
    """Return True if all files of records have the right size, and the checksums that MD5SUMS lists.

    A folder that was unpacked by hand has no MD5SUMS: there sizes alone decide.
    """
    size = cifar10.RECORDS_PER_FILE * cifar10.RECORD_BYTES
    files = [folder / name for name in RECORD_FILES]
    if not all(file.is_file() and file.stat().st_size == size for file in files):
        return False
    return all(has_sum(folder / name, md5) for name, md5 in read_sums(folder).items())


def read_sums(folder: Path) -> dict[str, str]:
    file = folder / SUMS_FILE
    if not file.is_file():
        return {}
    lines = (line.split() for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
    return {words[1]: words[0] for words in lines if len(words) == 2 and words[1] in (*RECORD_FILES, *TEXT_FILES)}


def has_sum(file: Path, md5: str) -> bool:
    return file.is_file() and md5_of(file) == md5


def md5_of(file: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with open(file, "rb") as opened:
            while piece := opened.read(PIECE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise BadData(f"{file}: could not be read: {reason(error)}.") from error
    return digest.hexdigest()


# Where it comes from


def find_origin(source: str) -> Path | SplitResult:
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


def obtain(
    wanted: PublicSet,
    forms: tuple[PublicFile, ...],
    out: Path,
    origin: Path | SplitResult,
    on_progress: Progress,
) -> Path:
    """Return one file of the set with the right checksum: one in `out`, a local copy, or a download."""
    present_file = find_form(forms, out)
    if present_file is not None:
        return present_file
    if isinstance(origin, SplitResult):
        return download(file_address(origin, forms[0].name, wanted), forms[0], out, on_progress)
    found = find_local(origin, forms, wanted)
    return found if wanted.is_archive else copy(found, out, on_progress)


def file_address(origin: SplitResult, name: str, wanted: PublicSet) -> str:
    """Return the address of a file: itself where it names the only one, else its neighbour of that name."""
    folder, _, last = origin.path.rpartition("/")
    if wanted.is_archive and (origin.query or last.endswith((".gz", ".tgz"))):
        return urlunsplit(origin)
    if last not in wanted.names():
        folder = origin.path.rstrip("/")
    return urlunsplit(origin._replace(path=f"{folder}/{name}"))


def find_local(origin: Path, forms: tuple[PublicFile, ...], wanted: PublicSet) -> Path:
    if wanted.is_archive and origin.is_file():
        return require_checksum(origin, forms[0])
    folder = origin if origin.is_dir() else origin.parent
    if origin.is_file() and origin.name not in wanted.names():
        raise BadData(f"{origin}: not one of the set's {len(wanted.files)} files.", "Give the folder they lie in.")
    for form in forms:
        if (folder / form.name).is_file():
            return require_checksum(folder / form.name, form)
    present = sorted(entry.name for entry in folder.iterdir())
    shown = ", ".join(present[:12]) + (f" and {len(present) - 12} more" if len(present) > 12 else "")
    raise BadData(
        f"{folder}: there is no {' or '.join(form.name for form in forms)}.",
        f"It has: {shown}" if present else "It is empty.",
        UNPACKED if wanted.is_archive and cifar10.TEST_FILE in present else TRY_ANOTHER,
    )


def require_checksum(file: Path, form: PublicFile) -> Path:
    """Return the file if its checksum is right."""
    found = md5_of(file)
    if found != form.md5:
        raise wrong_sum(file, form, found, "It is left as it is; copy or download it again.")
    return file


def wrong_sum(file: Path, form: PublicFile, found: str, *hints: str) -> BadData:
    """Return the error for a file with another checksum."""
    return BadData(
        f"{file}: wrong checksum: expected md5 {form.md5}, found {found} ({file.stat().st_size:,} bytes).", *hints
    )


def copy(file: Path, out: Path, on_progress: Progress) -> Path:
    """Copy a local file into the folder, atomically."""
    target = out / file.name
    with open(file, "rb") as source, replace_file(target) as opened:
        shutil.copyfileobj(source, opened)
        set_aside(target)
        on_progress(opened.tell(), opened.tell())
    return target


def set_aside(file: Path) -> Path:
    """Rename an existing file to NAME.bad, so that it is not overwritten; return that path."""
    aside = with_suffix(file, ".bad")
    if file.exists():
        os.replace(file, aside)
    return aside


def with_suffix(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)


# Over the network


class Broken(Exception):
    """Failure of a connection, which is worth another try."""


@dataclass(frozen=True)
class Version:
    """Identity of a file on a server, which tells it from a later one at the same address."""

    address: str
    validator: str | None
    total: int | None

    def agrees_with(self, other: Version) -> bool:
        """Return True if nothing that both know differs.

        An answer to If-Range need not repeat the date (RFC 9110, 15.3.7).
        """
        known = ((self.validator, other.validator), (self.total, other.total))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in known)


def download(address: str, form: PublicFile, out: Path, on_progress: Progress) -> Path:
    target = out / form.name
    part = with_suffix(target, ".part")
    continued = receive_all(address, part, on_progress)
    if continued and not has_sum(part, form.md5):
        # Two versions may have been pieced together where the server does not tell them apart: once more, in one.
        delete_part(part)
        receive_all(address, part, on_progress)
    found = md5_of(part)
    if found != form.md5:
        raise reject_download(part, target, form, found, address)
    publish(part, target)
    return target


def reject_download(part: Path, target: Path, form: PublicFile, found: str, address: str) -> BadData:
    """Set a downloaded file with a wrong checksum aside; return the error."""
    aside = with_suffix(target, ".bad")
    os.replace(part, aside)
    delete_part(part)
    return wrong_sum(aside, form, found, f"This is what came from {address}; it is not used.", TRY_ANOTHER)


def publish(part: Path, target: Path) -> None:
    """Give a finished part its final name."""
    with open(part, "rb+") as file:
        os.fsync(file.fileno())
    set_aside(target)
    os.replace(part, target)
    delete_part(part)


def receive_all(address: str, part: Path, on_progress: Progress) -> bool:
    """Bring a part to its full length, over several connections if need be; True if it was not all in one."""
    furthest = size_of(part)
    pauses = iter(PAUSES)
    while True:
        try:
            return receive(address, part, on_progress)
        except Broken as error:
            if size_of(part) > furthest:
                furthest, pauses = size_of(part), iter(PAUSES)
            pause = next(pauses, None)
            if pause is None:
                raise BadData(f"{address}: {error}.", describe_progress(part), TRY_ANOTHER) from error
        time.sleep(pause)


def describe_progress(part: Path) -> str:
    """Say how much has been downloaded and what continues it."""
    version, size = read_version(part), size_of(part)
    if not size:
        return "Nothing has come yet; the same command tries again."
    total = f" of {version.total:,}" if version and version.total is not None else ""
    return f"{size:,}{total} bytes have come and are kept in {part}; the same command continues from there."


def receive(address: str, part: Path, on_progress: Progress) -> bool:
    """Open one connection: continue the part if the server still has the same version, or else begin it again."""
    begun = read_version(part)
    if begun is None or begun.address != address:
        delete_part(part)
        begun = None
    have = size_of(part)
    if begun and have and have == begun.total:
        return True
    with connect(address, part, have, begun) as response:
        version = version_of(address, response)
        if response.status != 206:
            have = 0
            start_part(part, version)
        elif begun is None or not (begins_at(response, have) and begun.agrees_with(version)):
            delete_part(part)
            raise Broken("the file there has changed")
        with open(part, "ab") as file:
            write_response(response, file, have, version.total, on_progress)
    return have > 0


def connect(address: str, part: Path, have: int, begun: Version | None) -> HTTPResponse:
    """Request the file from byte `have` on, if the server still has the version that was begun."""
    headers = {"User-Agent": "viaduct", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    if have and begun and begun.validator:
        headers["If-Range"] = begun.validator
    try:
        response: HTTPResponse = urlopen(Request(address, headers=headers), timeout=STALL_SECONDS)
    except HTTPError as error:
        error.close()
        raise classify_answer(address, part, error.code, error.reason) from error
    except (ValueError, InvalidURL) as error:
        raise BadValue(f"--from {address}: not an address: {error}.") from error
    except (OSError, HTTPException) as error:
        raise Broken(f"could not be reached: {reason_of(error)}") from error
    return response


def classify_answer(address: str, part: Path, code: int, reason: str) -> Exception:
    """Return the error for an answer that is not the file: `Broken` if it is worth another try."""
    if code == 416:  # the file there is now shorter than what has come of it
        delete_part(part)
        return Broken("the file there has changed")
    answer = f"the server answered {code} {reason}".rstrip()
    if code >= 500 or code in (408, 425, 429):
        return Broken(answer)
    return BadData(f"{address}: {answer}.", TRY_ANOTHER)


def reason_of(error: Exception) -> str:
    inner = error.reason if isinstance(error, URLError) else error
    return str(inner) or type(inner).__name__


def write_response(response: HTTPResponse, file: BinaryIO, have: int, total: int | None, on_progress: Progress) -> None:
    """Write the response to the file and report progress."""
    on_progress(have, total)
    while have != total:
        piece = read_piece(response, PIECE_BYTES if total is None else min(PIECE_BYTES, total - have))
        if not piece:
            break
        file.write(piece)
        have += len(piece)
        on_progress(have, total)
    if total is not None and have < total:
        raise Broken("the connection broke off")


def read_piece(response: HTTPResponse, limit: int) -> bytes:
    """Read whatever has arrived, so that nothing is lost when the connection breaks."""
    try:
        return response.read1(limit)
    except (OSError, HTTPException) as error:
        raise Broken(f"the connection broke off: {reason_of(error)}") from error


def version_of(address: str, response: HTTPResponse) -> Version:
    """Return the version of a response.

    If-Range takes an ETag that is not weak, or a date (RFC 9110, 13.1.5).
    """
    tag = response.headers["ETag"]
    validator = response.headers["Last-Modified"] if tag is None or tag.startswith("W/") else tag
    if response.status == 206:
        total = (response.headers["Content-Range"] or "").rpartition("/")[2]
    else:
        total = response.headers["Content-Length"] or ""
    return Version(address, validator, int(total) if total.isdecimal() else None)


def begins_at(response: HTTPResponse, have: int) -> bool:
    """Return True if the response continues at byte `have`."""
    return (response.headers["Content-Range"] or "").startswith(f"bytes {have}-")


def start_part(part: Path, version: Version) -> None:
    """Start a new part.

    The old bytes go before the new version is written down, so that a kill between the two mixes nothing.
    """
    delete_part(part)
    with replace_file(with_suffix(part, ".json")) as file:
        file.write(json.dumps(asdict(version)).encode())


def read_version(part: Path) -> Version | None:
    try:
        return Version(**json.loads(with_suffix(part, ".json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def delete_part(part: Path) -> None:
    """Delete a part and its version."""
    part.unlink(missing_ok=True)
    with_suffix(part, ".json").unlink(missing_ok=True)


def size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


# The archive


def unpack(archive: Path, out: Path) -> Path:
    """Unpack CIFAR-10's files, and no others, in a folder that takes its name when all of them are there."""
    fresh = out / f"{cifar10.FOLDER}.part"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        extract(archive, fresh)
        sums = "".join(f"{md5_of(file)}  {file.name}\n" for file in sorted(fresh.iterdir()))
        (fresh / SUMS_FILE).write_text(sums, encoding="utf-8")
        return move_into_place(fresh, out / cifar10.FOLDER)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def extract(archive: Path, folder: Path) -> None:
    """Unpack CIFAR-10's own files into the folder."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = expected_name(archive, member)
                if name is not None:
                    extract_member(tar, member, folder / name)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadData(f"{archive}: could not be unpacked: {reason(error)}.") from error
    missing = [name for name in RECORD_FILES if not (folder / name).is_file()]
    if missing:
        raise BadData(f"{archive}: there is no {cifar10.FOLDER}/{missing[0]} in it.")


def expected_name(archive: Path, member: tarfile.TarInfo) -> str | None:
    """Return the file name of one of CIFAR-10's own files; None for others beside them."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise BadData(f"{archive}: {member.name!r} in it would land outside of the folder; nothing was unpacked.")
    if str(path.parent) != cifar10.FOLDER or path.name not in (*RECORD_FILES, *TEXT_FILES):
        return None
    if not member.isreg():
        raise BadData(f"{archive}: {member.name!r} in it is not a plain file.")
    check_size(archive, member, path.name)
    return path.name


def check_size(archive: Path, member: tarfile.TarInfo, name: str) -> None:
    """Refuse a member of the archive with an unexpected size."""
    expected = cifar10.RECORDS_PER_FILE * cifar10.RECORD_BYTES
    if name in RECORD_FILES and member.size != expected:
        raise BadData(f"{archive}: {member.name!r}: expected {expected:,} bytes, found {member.size:,}.")
    if name in TEXT_FILES and member.size > TEXT_BYTES:
        raise BadData(f"{archive}: {member.name!r}: expected a short text, found {member.size:,} bytes.")


def extract_member(tar: tarfile.TarFile, member: tarfile.TarInfo, file: Path) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise BadData(f"{member.name!r} in the archive is not a plain file.")
    with source, open(file, "wb") as opened:
        shutil.copyfileobj(source, opened)
        opened.flush()
        os.fsync(opened.fileno())


def move_into_place(fresh: Path, target: Path) -> Path:
    """Move the unpacked files to the final folder, MD5SUMS last; other files in that folder stay."""
    if not target.exists():
        os.rename(fresh, target)
        return target
    for file in sorted(fresh.iterdir(), key=lambda file: file.name == SUMS_FILE):
        os.replace(file, target / file.name)
    return target
