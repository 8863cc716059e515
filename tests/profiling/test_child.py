"""The process that runs the profiled script."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from viaduct.profiling.child import end_script


def test_a_child_without_a_job_says_who_starts_it() -> None:
    code = "from viaduct.profiling.child import main; import sys; sys.exit(main())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "started by `viaduct profile run`" in ended.stderr


def test_sigterm_ends_a_script_by_an_exception_so_that_it_can_clean_up() -> None:
    with pytest.raises(SystemExit) as ended:
        end_script(signal.SIGTERM, None)
    assert ended.value.code == 143
