"""File permissions for tests that run as root, which may read and enter everything."""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from viaduct.errors import ViaductError

DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2  # <linux/capability.h>
CAPSET, DROP_FROM_BOUNDING = {"x86_64": 126, "aarch64": 91}, 24
VERSION_3 = 0x20080522
NOBODY = 65534


def drop_file_privileges() -> None:
    """Make the permissions of files apply to this process and its children, even if it runs as root."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
        libc.prctl(DROP_FROM_BOUNDING, capability, 0, 0, 0)
    with open("/proc/self/status") as file:
        lines = dict(line.split(":\t", 1) for line in file)
    kept = ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    effective, permitted, inherited = (int(lines[name], 16) & kept for name in ("CapEff", "CapPrm", "CapInh"))
    header = struct.pack("=Ii", VERSION_3, 0)
    halves = [value >> shift & 0xFFFFFFFF for shift in (0, 32) for value in (effective, permitted, inherited)]
    if libc.syscall(CAPSET[os.uname().machine], header, struct.pack("=6I", *halves)):
        raise OSError(ctypes.get_errno(), "capset")


@contextmanager
def make_public_folder() -> Iterator[Path]:
    """Make a folder that any user may enter; in memory where that can be, as some tests flush every write."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def run_as_nobody(work: Callable[[], object]) -> int:
    """Call a function as an ordinary user in a forked process.

    Return 2 if it was refused, 3 after a traceback, else its result if that is an int, or 0.
    """
    child = os.fork()
    if child == 0:
        code = 3
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            answer = work()
            code = answer if isinstance(answer, int) else 0
        except ViaductError as error:
            print(error)
            code = 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
