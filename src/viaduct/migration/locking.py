"""Folders of viaduct's own beside or within a project, each locked by one process; and deferred signals.

A killed process leaves its folder, but not the lock.
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

from viaduct.signals import stop_signals

LOCK = "lock"


class FolderBusy(Exception):
    """Another process holds the folder."""


class NotOurFolder(Exception):
    """Something at the folder's path is not viaduct's; the message says what it is."""


class LockedFolder:
    """A folder of ours that this process alone writes to."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder, self.lock = folder, lock

    def release(self, *, remove: bool) -> None:
        """Let go of the folder; `remove` it first if nothing but the lock is left in it."""
        if remove:
            with contextlib.suppress(OSError):
                os.unlink(self.folder / LOCK)
                os.rmdir(self.folder)
        os.close(self.lock)


def lock_folder(folder: Path) -> LockedFolder:
    """Make and lock the folder, or lock one that a killed process has left; raise FolderBusy or NotOurFolder."""
    for _ in range(20):  # another process may remove the folder at each step
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        try:
            check_owner(folder)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # its owner has just removed it
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotOurFolder(f"{folder / LOCK} is a link") from None
            raise
        try:
            take_lock(lock)
            if os.fstat(lock).st_nlink:  # 0: its owner has removed the file that was opened
                return LockedFolder(folder, lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    raise FolderBusy


def check_owner(folder: Path) -> None:
    """Raise NotOurFolder unless the path is a folder, not a link, that belongs to this user."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise NotOurFolder(f"{folder} is not a folder")
    if found.st_uid != os.geteuid():
        raise NotOurFolder(f"{folder} belongs to another user (uid {found.st_uid})")


def take_lock(lock: int) -> None:
    """Lock an open file; raise FolderBusy, or NotOurFolder if it is not a plain file.

    lockf is taken as well, for file systems on which flock does not work.
    """
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        raise NotOurFolder(f"its {LOCK} is not a plain file")
    for take in (fcntl.flock, fcntl.lockf):
        try:
            take(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise FolderBusy from None
            if take is fcntl.lockf:
                raise


class Stop:
    """Holds the first signal that asked this process to end; None until one has come."""

    signal: signal.Signals | None = None

    @property
    def name(self) -> str:
        """Name of the signal that came, if any."""
        return self.signal.name if self.signal is not None else ""

    def report_outcome(self, outcome: str) -> None:
        """Print the outcome on stderr: the signal ends the process without a message."""
        print(f"viaduct migrate: stopped by {self.name}. {outcome}", file=sys.stderr, flush=True)

    def check(self) -> None:
        """Raise Stopped if a signal has come."""
        if self.signal is not None:
            raise Stopped

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the signal if it is the first. This is the handler of all deferred signals."""
        self.signal = self.signal or signal.Signals(number)


class Stopped(Exception):
    """A signal has asked this process to end while it was writing."""


@contextlib.contextmanager
def defer_signals() -> Iterator[Stop]:
    """Hold Ctrl-C, SIGTERM and SIGHUP back within the block; the first that has come is delivered when it ends."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = [number for number in stop_signals() if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop.handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if stop.signal is not None:
            os.kill(os.getpid(), stop.signal)
