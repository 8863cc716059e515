"""Wrong flags of `viaduct serve`."""

from __future__ import annotations

from pathlib import Path

import pytest

from forked_viaduct import viaduct


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "70000"], "70000"),
        (["--max-batch", "0"], "--max-batch"),
        (["--latency-budget", "nan"], "finite"),
        (["--quiet", "--access-log", "x"], "--quiet"),
        (["--name", "a/b"], "--name 'a/b'"),
        (["--access-log", "/no/a.log"], "--access-log /no/a.log cannot be written: there is no folder /no."),
        (["--recipe", "nothing"], "nothing"),
    ],
)
def test_wrong_flags_are_refused(flags: list[str], message: str, shapes_run: Path) -> None:
    done = viaduct("serve", str(shapes_run), "--port", "0", *flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
