"""Pages of runs that are served while they go on."""

from __future__ import annotations

import fcntl
import json
import socket
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from runs.sample_runs import make_run
from viaduct.errors import BadRun, BadValue
from viaduct.runs.watching import open_page


def fetch_data(url: str) -> dict[str, Any]:
    with urlopen(f"{url}data.json") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_a_folder_that_is_no_run_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(BadRun, match="is damaged"), open_page(tmp_path, 0):
        pass


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadValue, match=f"--port {port} cannot be used"), open_page(tmp_path, port):
            pass


def test_the_page_of_a_folder_changes_with_its_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    with open_page(tmp_path, 0) as page:
        before = fetch_data(page.url)
        assert [run["name"] for run in before["runs"]] == ["a"]
        assert fetch_data(page.url)["version"] == before["version"]
        make_run(tmp_path / "b", done=50, finished=False)
        after = fetch_data(page.url)
        assert {run["name"]: run["state"] for run in after["runs"]} == {"a": "finished", "b": "crashed"}
        assert after["version"] != before["version"]
        with urlopen(page.url) as answer:
            text = answer.read().decode()
        assert f'data-version="{after["version"]}"' in text
        assert "connect-src 'self'" in text


def test_the_page_of_a_run_shows_that_it_has_ended(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", done=100, finished=False)
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open_page(run, 0) as page:
            assert fetch_data(page.url)["ended"] is None
            fcntl.flock(lock, fcntl.LOCK_UN)
            end = time.monotonic() + 30
            while (ended := fetch_data(page.url)["ended"]) is None:
                assert time.monotonic() < end, "the end was never told"
                time.sleep(0.05)
    assert ended["kind"] == "stopped"
    assert "Crashed after step 100" in ended["sentence"]
