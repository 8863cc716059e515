"""Call a function as an ordinary user: tests often run as root."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from viaduct.errors import ViaductError

NOBODY = 65534


@contextmanager
def open_folder() -> Iterator[Path]:
    """Make a folder that any user may enter; in memory where that can be, as some tests flush every write."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def as_nobody(work: Callable[[], object]) -> int:
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
