"""The page of a run while it goes on, asked as a browser asks it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forked_viaduct import start_viaduct, viaduct
from reporting.page_requests import get, get_status
from training.made_up_run import (
    append_evaluation,
    append_histograms,
    append_line,
    append_log,
    write_recipe,
    write_run,
)
from viaduct.training.live import Ending, LivePage, format_time

SLOW_RECIPE = """
import time
from torch import nn
from viaduct.recipes import Evaluation, Log, Recipe, Sgd, Shapes
from viaduct.training import Callback

class Slowly(Callback):
    def step(self, training):
        time.sleep(0.05)
        if training.step == 20 and "diverge" in str(training.run.path):
            next(training.model.parameters()).data.fill_(float("nan"))

recipe = Recipe(
    model=lambda classes: nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, classes)),
    data=Shapes(global_batch=16, size=16, train_images=320, validation_images=32),
    optimizer=Sgd(lr=0.01),
    epochs=20,
    evaluation=Evaluation(every_epochs=1),
    log=Log(every_steps=2),
    callbacks=(Slowly(),),
)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture
def page(run: Path) -> Iterator[LivePage]:
    opened = LivePage(run)
    yield opened
    opened.close()


def get_data(page: LivePage | str, query: str = "") -> dict[str, Any]:
    url = page if isinstance(page, str) else page.url
    found: dict[str, Any] = json.loads(get(f"{url}data.json{query}"))
    return found


# What it shows


def test_the_page_shows_state_curves_metrics_histograms_and_images(page: LivePage) -> None:
    html = get(page.url).decode()
    for text in ("made_up", "30 % of 1,000", "Loss", "Top-1", "Learning rate", "Speed", "kappa", "Evaluations"):
        assert text in html, text
    assert 'src="images/step-00000300.png"' in html
    assert 'href="images/step-00000100.png"' in html
    assert "stages.<wbr>0.<wbr>conv.<wbr>weight, gradient" in html
    assert "step 100 (back) to 300 (front)" in html


def test_the_data_say_where_the_run_is(page: LivePage) -> None:
    data = get_data(page)
    assert (data["step"], data["steps"], data["ended"]) == (300, 1000, None)
    assert data["seconds_left"] == pytest.approx(700 * 64 / 640)
    assert data["validation"]["kappa"] == 0.15
    assert {chart["title"] for chart in data["curves"]} == {"Loss", "Top-1", "kappa", "Learning rate", "Speed"}


def test_a_process_that_knows_its_step_is_believed_before_its_log_lines(page: LivePage) -> None:
    page.follow(lambda: (307, 900))
    assert (get_data(page)["step"], get_data(page)["steps"]) == (307, 900)


def test_what_is_added_is_seen(page: LivePage, run: Path) -> None:
    before = get_data(page)
    append_log(run, 310)
    after = get_data(page)
    assert after["version"] != before["version"]
    assert after["curves"][0]["series"][0]["step"][-1] == 310
    assert "31 % of 1,000" in get(page.url).decode()


def test_a_long_curve_stays_small_and_keeps_its_spike(tmp_path: Path) -> None:
    write_recipe(tmp_path)
    for step in range(1, 5001):
        append_log(tmp_path, step, losses=[], loss=99.0 if step == 3333 else 1.0)
    opened = LivePage(tmp_path)
    try:
        loss = get_data(opened)["curves"][0]["series"][0]
    finally:
        opened.close()
    assert len(loss["step"]) <= 402
    assert (loss["step"][0], loss["step"][-1]) == (1, 5000)
    assert max(loss["value"]) == 99.0


def test_a_run_that_has_not_begun_has_a_page(tmp_path: Path) -> None:
    opened = LivePage(tmp_path / "later")
    try:
        assert "The run is starting" in get(opened.url).decode()
        assert get_data(opened)["steps"] is None
        write_run(tmp_path / "later")
        assert "The run is starting" not in get(opened.url).decode()
    finally:
        opened.close()


def test_a_run_on_noise_says_that_its_figures_are_none(run: Path, page: LivePage) -> None:
    write_recipe(run, data="synthetic")
    assert "Trained on noise" in get(page.url).decode()


def test_layers_are_chosen_by_name(run: Path, page: LivePage) -> None:
    append_histograms(run, 400, names=40)
    assert "12 of 40 parameters" in get(page.url).decode()
    chosen = get(f"{page.url}?layers=stages.37.*").decode()
    assert "1 of 40 parameters" in chosen
    assert "stages.<wbr>37.<wbr>conv" in chosen
    assert "stages.<wbr>0.<wbr>conv" not in chosen


def test_text_of_a_run_is_no_markup(run: Path, page: LivePage) -> None:
    write_recipe(run, name="<script>alert(1)</script>")
    append_evaluation(run, 400, **{"<img src=x>": 0.5})
    html = get(page.url).decode()
    assert "<script>alert" not in html
    assert "<img src=x>" not in html


# What is half written, damaged or replaced


def test_damaged_lines_are_passed_over(run: Path, page: LivePage) -> None:
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n{"kind": "log", "step": "x"}\n[]\n{"kind": "log", "step": 305}\n')
    append_log(run, 310, loss=None, top1=None, images_per_s=None)
    parts = [
        7,
        {"min": 0, "max": 1},
        {"min": 0, "max": 1, "counts": []},
        {"min": 0, "max": 1, "counts": [-1]},
        {"min": None, "max": 1, "counts": [1]},
        {"min": 2, "max": 1, "counts": [1]},
        {"min": -1e308, "max": 1e308, "counts": [1]},
    ]
    odd = {f"odd{number}": part for number, part in enumerate(parts)}
    same = {"min": 0, "max": 0, "counts": [9]}
    append_line(run / "histograms.jsonl", {"step": 500, "parameters": {"zeros": same, **odd}, "gradients": [1]})
    append_line(run / "histograms.jsonl", {"step": None})
    (run / "recipe.json").write_text('{"name": ')
    html = get(page.url).decode()
    assert get_data(page)["step"] == 310
    titles = re.findall(r"<h3>([^<]*)", html)
    assert "zeros" in titles
    assert not any(title.startswith("odd") for title in titles)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "histograms.jsonl"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "images").mkdir()
    os.mkfifo(tmp_path / "images" / "step-00000001.png")
    opened = LivePage(tmp_path)
    try:
        assert get_data(opened)["step"] == 0
        assert get_status(opened, "/images/step-00000001.png")[0] == 404
    finally:
        opened.close()


# Who is answered


def test_an_image_is_served_and_nothing_else_is(run: Path, page: LivePage) -> None:
    assert get_status(page, "/images/step-00000100.png") == (200, (run / "images/step-00000100.png").read_bytes())
    (run / "images" / "step-00000007.png").symlink_to("/etc/passwd")
    (run / "images" / "step-00000008.png").write_text("not a PNG")
    (run / "images" / "other.png").write_bytes((run / "images/step-00000100.png").read_bytes())
    for path in (
        "/images/step-00000007.png",
        "/images/step-00000008.png",
        "/images/other.png",
        "/images/../recipe.json",
        "/images/..%2Frecipe.json",
        "/images/%2e%2e/recipe.json",
        "/images//etc/passwd",
        "/../../../../etc/passwd",
        "/recipe.json",
        "/images/",
        "/images/step-00000100.png/",
        "/images/step-00000100.png%00",
        "//127.0.0.1/images/step-00000100.png.txt",
        "http://127.0.0.1/",
        "*",
    ):
        status, body = get_status(page, path)
        assert status == 404, path
        assert b"root:" not in body


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET http://[/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + 200 * b"A: b\r\n" + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",  # and gone before the answer
    ],
)
def test_odd_requests_leave_no_traceback_in_the_output_of_the_run(
    page: LivePage, request_bytes: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", page.port), timeout=20) as connection:
        connection.sendall(request_bytes)
    with socket.create_connection(("127.0.0.1", page.port), timeout=20) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass
    assert get_data(page)["step"] == 300
    assert capfd.readouterr().err == ""


def test_the_page_needs_no_torch(run: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import urllib.request as u\n"
        "from viaduct.training.live import LivePage\n"
        f"page = LivePage(Path({str(run)!r}))\n"
        "assert b'made_up' in u.urlopen(page.url).read()\n"
        "assert 'torch' not in sys.modules\n"
    )
    # It also ends by itself, though nobody has closed the page: its thread does not keep the process.
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# The end


def test_a_waiting_page_gets_the_end_at_once(page: LivePage) -> None:
    heard: dict[str, Any] = {}
    version = get_data(page)["version"]

    def visit() -> None:
        heard.update(get_data(page, f"?since={version}&idle=1"))
        heard["page"] = get(page.url).decode()

    visitor = threading.Thread(target=visit)
    visitor.start()
    time.sleep(0.5)
    before = time.monotonic()
    page.show_ending(Ending("interrupted", "Interrupted by SIGINT after step 300 of 1,000."))
    assert time.monotonic() - before < 10
    visitor.join()
    assert heard["ended"]["kind"] == "interrupted"
    assert heard["version"] != version
    assert heard["seconds_left"] is None
    assert "Interrupted by SIGINT after step 300 of 1,000." in heard["page"]
    assert "time left" not in heard["page"]


def test_an_end_without_open_pages_takes_no_time(page: LivePage) -> None:
    before = time.monotonic()
    page.show_ending(Ending("finished", "Finished."))
    assert time.monotonic() - before < 1


def test_times_are_written_shortly() -> None:
    assert [format_time(seconds) for seconds in (5, 89, 600, 5399, 7260, 360_000)] == [
        "5 s",
        "89 s",
        "10 min",
        "1 h 30 min",
        "2 h 01 min",
        "100 h 00 min",
    ]


# As a command


def test_a_run_is_watched_while_it_goes_on_and_says_that_it_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_RECIPE)
    with start_viaduct("train", "slow.py", "--device", "cpu", "--run", "run", "--watch", cwd=tmp_path) as command:
        url = wait_for_address(command)
        command.wait_for(lambda _: get_data(url)["step"] >= 4)
        first = get_data(url)
        command.wait_for(lambda _: len(get_data(url)["curves"][0]["series"][0]["step"]) >= 4)
        assert first["steps"] == 400
        ended: dict[str, Any] = {}
        visitor = threading.Thread(target=lambda: ended.update(hear_end(url)))
        visitor.start()
        time.sleep(0.3)
        os.kill(command.pid, signal.SIGINT)
        visitor.join()
        _, stderr = command.communicate()
    assert command.returncode == 130
    assert ended["kind"] == "interrupted"
    assert re.fullmatch(r"Interrupted by SIGINT after step \d+ of 400\.", ended["sentence"])
    assert "Traceback" not in stderr
    with pytest.raises(urllib.error.URLError):
        get(url)


def test_a_run_that_diverges_says_so_on_its_page(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_RECIPE)
    with start_viaduct("train", "slow.py", "--device", "cpu", "--run", "diverge", "--watch", cwd=tmp_path) as command:
        ended = hear_end(wait_for_address(command))
        _, stderr = command.communicate()
    assert command.returncode == 2, stderr
    assert ended["kind"] == "stopped"
    assert ended["sentence"].startswith("Stopped: the loss became ")


def hear_end(url: str) -> dict[str, Any]:
    version = get_data(url)["version"]
    while not (state := get_data(url, f"?since={version}"))["ended"]:
        pass
    get(url)
    found: dict[str, Any] = state["ended"]
    return found


def wait_for_address(command: Any) -> str:
    command.wait_for(lambda _: "Watch it at" in command.stderr.read_text())
    found = re.search(r"^Watch it at (http://127\.0\.0\.1:\d+/)$", command.stderr.read_text(), re.MULTILINE)
    assert found, command.stderr.read_text()
    return found[1]


def test_a_watched_run_finishes_by_itself_and_is_then_said_to_have_finished(tmp_path: Path) -> None:
    words = ("train", "shapes_taster", "--device", "cpu", "--batch", "8", "--steps", "2", "--run", tmp_path / "run")
    done = viaduct(*words, "--set", "data.validation_images=16", "--watch")
    assert done.returncode == 0, done.stderr
    assert "Watch it at http://127.0.0.1:" in done.stderr
    again = viaduct("train", "--run", tmp_path / "run", "--watch")
    assert again.returncode == 0
    assert "has finished already" in again.stderr
    assert "nothing to watch" in again.stderr
    assert "Watch it at" not in again.stderr


def test_a_taken_port_stops_the_command_before_it_writes_anything(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        for more in ((), ("--ranks", "2")):
            words = ("train", "shapes_taster", "--device", "cpu", "--watch", "--watch-port", port, *more)
            done = viaduct(*words, cwd=tmp_path)
            assert done.returncode == 2
            assert f"--watch-port {port} cannot be used: another process listens there." in done.stderr
            assert "Leave --watch-port out" in done.stderr
            assert "Traceback" not in done.stderr
            assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (("--watch-port", "8080"), "--watch-port 8080 needs --watch"),
        (("--watch", "--watch-port", "70000"), "70000"),
        (("--watch", "--watch-port", "http"), "http"),
        (("--watch", "--eval-only"), "takes no steps to watch"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], fragment: str, tmp_path: Path) -> None:
    done = viaduct("train", "shapes_taster", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert fragment in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_of_several_ranks_the_first_serves(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_RECIPE)
    words = ("train", "slow.py", "--device", "cpu", "--ranks", "2", "--steps", "100", "--run", "run", "--watch")
    with start_viaduct(*words, cwd=tmp_path) as command:
        url = wait_for_address(command)
        command.wait_for(lambda _: get_data(url)["step"] >= 4)
        _, stderr = command.communicate()
    assert command.returncode == 0, stderr
    assert stderr.count("Watch it at") == 1
