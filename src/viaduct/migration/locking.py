"""Lock viaduct's folders beside or within a project, and defer signals while files are written.

A killed process leaves its folder behind, but no longer holds the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from viaduct.signals import list_stop_signals

LOCK = "lock"


class FolderBusy(Exception):
    """Another process has locked the folder."""


class NotOurFolder(Exception):
    """The folder or its lock file cannot have been made by viaduct for this user; the message says why."""


class LockedFolder:
    """Folder that this process has locked."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder, self.lock = folder, lock

    def release(self, *, remove: bool) -> None:
        """Unlock the folder. `remove`: delete the lock first, and the folder if it is then empty."""
        if remove:
            with contextlib.suppress(OSError):
                os.unlink(self.folder / LOCK)
                os.rmdir(self.folder)
        os.close(self.lock)


def lock_folder(folder: Path) -> LockedFolder:
    """Make the folder if it is missing, and lock it; raise FolderBusy or NotOurFolder."""
    for _ in range(20):  # another process may remove the folder or the lock file between two steps
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        try:
            check_owner(folder)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # another process has just removed it
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotOurFolder(f"{folder / LOCK} is a link") from None
            raise
        try:
            take_lock(lock)
            if os.fstat(lock).st_nlink:  # 0: another process has removed the file that was opened
                return LockedFolder(folder, lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    raise FolderBusy


def check_owner(folder: Path) -> None:
    """Raise NotOurFolder unless the path is a folder, not a link, that belongs to this user."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise NotOurFolder(f"{folder} is not a folder")
    if status.st_uid != os.geteuid():
        raise NotOurFolder(f"{folder} belongs to another user (uid {status.st_uid})")


def take_lock(lock: int) -> None:
    """Lock an open file with flock, or with lockf on file systems that lack flock.

    Raise FolderBusy if another process has locked it, NotOurFolder if it is not a plain file.
    """
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        raise NotOurFolder(f"its {LOCK} is not a plain file")
    for lock_function in (fcntl.flock, fcntl.lockf):
        try:
            lock_function(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise FolderBusy from None
            if lock_function is fcntl.lockf:
                raise


class DeferredSignal:
    """The first signal that arrives while signals are deferred."""

    signal: signal.Signals | None = None  # None: none has arrived yet

    @property
    def name(self) -> str:
        return self.signal.name if self.signal is not None else ""

    def report_outcome(self, outcome: str) -> None:
        """Print the outcome on stderr, before the signal ends the process."""
        print(f"viaduct migrate: stopped by {self.name}. {outcome}", file=sys.stderr, flush=True)

    def raise_if_signalled(self) -> None:
        if self.signal is not None:
            raise Stopped

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the signal if it is the first; handler of all deferred signals."""
        self.signal = self.signal or signal.Signals(number)


class Stopped(Exception):
    """A deferred signal has stopped the writing."""


@contextlib.contextmanager
def defer_signals() -> Iterator[DeferredSignal]:
    """Defer Ctrl-C, SIGTERM and SIGHUP in the main thread within the block; the first one is delivered at its end."""
    deferred = DeferredSignal()
    if threading.current_thread() is not threading.main_thread():
        yield deferred
        return
    numbers = [number for number in list_stop_signals() if signal.getsignal(number) is not signal.SIG_IGN]
    former_handlers = {number: signal.signal(number, deferred.handle) for number in numbers}
    try:
        yield deferred
    finally:
        for number, handler in former_handlers.items():
            signal.signal(number, handler)
        if deferred.signal is not None:
            os.kill(os.getpid(), deferred.signal)
