"""Folders of viaduct's own beside or within a project, each locked by one process; and signals that have to wait.

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


class Busy(Exception):
    """Another process holds the folder."""


class Foreign(Exception):
    """Something at the folder's path is not viaduct's; the message says what it is."""


class Held:
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


def hold_folder(folder: Path) -> Held:
    """Make the folder, or take over one that a killed process has left; raise Busy or Foreign."""
    for _ in range(20):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        try:
            check_own(folder)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # its owner has just removed it
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Foreign(f"{folder / LOCK} is a link") from None
            raise
        try:
            take_lock(lock)
            if os.fstat(lock).st_nlink:
                return Held(folder, lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    raise Busy


def check_own(folder: Path) -> None:
    """Raise Foreign unless a path is a folder of this user's."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise Foreign(f"{folder} is not a folder")
    if found.st_uid != os.geteuid():
        raise Foreign(f"{folder} belongs to another user (uid {found.st_uid})")


def take_lock(lock: int) -> None:
    """Lock an open file; raise Busy, or Foreign if it is no plain file. lockf serves file systems without flock."""
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        raise Foreign(f"its {LOCK} is not a plain file")
    for take in (fcntl.flock, fcntl.lockf):
        try:
            take(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Busy from None
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
        """Keep the first signal: the handler of all."""
        self.signal = self.signal or signal.Signals(number)


class Stopped(Exception):
    """A signal has asked to end while something was being written."""


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
