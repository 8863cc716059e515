"""Ranks are started, watched, named when they fail, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from cluster.local_cluster import find_free_port, make_rank_table
from forked_viaduct import start_viaduct
from viaduct.cluster import launch, links
from viaduct.cluster.generate import make_table
from viaduct.cluster.launch import (
    NodeShare,
    resolve_command,
    run_cluster,
    run_local,
    share_from_nodes,
    share_from_table,
)
from viaduct.cluster.ranktable import read_table
from viaduct.errors import BadData, BadValue, UnknownName, ViaductError

SAY = """
import json, os, sys
names = sys.argv[2].split(",")
told = {name: os.environ.get(name) for name in names}
open(f"{sys.argv[1]}/{os.environ['RANK']}.json", "w").write(json.dumps(told))
"""
TORCHRUN = "RANK,LOCAL_RANK,WORLD_SIZE,LOCAL_WORLD_SIZE,MASTER_ADDR,MASTER_PORT"
SLEEP = """
import os, sys, time
open(f"{sys.argv[1]}/{os.environ['RANK']}.pid", "w").write(str(os.getpid()))
time.sleep(120)
"""
STUBBORN = (
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
)
MEET = """
import torch, torch.distributed as dist, json, os, sys
dist.init_process_group("gloo")
mine = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(mine)
open(f"{sys.argv[1]}/{os.environ['RANK']}.json", "w").write(json.dumps({"sum": mine.item(), **os.environ}))
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the logs of failed ranks in this test's folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("logs")))
    monkeypatch.setattr(tempfile, "tempdir", None)


def script(folder: Path, text: str, name: str = "work.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def read_results(folder: Path) -> dict[int, dict[str, str]]:
    return {int(path.stem): json.loads(path.read_text()) for path in folder.glob("*.json")}


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        yield holder.getsockname()[1]


# The command


def test_our_own_verbs_run_with_the_python_that_runs_us() -> None:
    assert resolve_command(["train", "x", "--steps", "2"]) == [
        sys.executable,
        "-m",
        "viaduct",
        "train",
        "x",
        "--steps",
        "2",
    ]
    assert resolve_command(["viaduct", "evaluate", "r"]) == [sys.executable, "-m", "viaduct", "evaluate", "r"]
    assert resolve_command(["python", "-m", "this"]) == [sys.executable, "-m", "this"]
    assert resolve_command(["sh", "-c", "true"])[0].endswith("/sh")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "nothing to launch"),
        (["python"], "without a script"),
        (["no-such-program"], "no program 'no-such-program'"),
    ],
)
def test_a_command_that_cannot_be_is_refused(argv: list[str], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        run_local(argv, 2)


def test_a_script_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for argv in (["python", "gone.py"], ["gone.py"]):
        with pytest.raises(BadData, match=r"no script gone\.py in "):
            run_local(argv, 2)


def test_numbers_are_checked() -> None:
    with pytest.raises(BadValue, match="--ranks is 0"):
        run_local(["true"], 0)
    with pytest.raises(BadValue, match="restarts is -1"):
        run_local(["true"], 1, -1)


# This machine's share


def test_this_machine_is_found_in_the_table_by_its_address() -> None:
    share = share_from_table(make_rank_table(["127.0.0.1", "10.255.255.1"]), port=find_free_port())
    assert (share.node, share.host, share.hosts_store, share.name) == (0, "127.0.0.1", True, "127.0.0.1")
    assert share.shared["GLOO_SOCKET_IFNAME"] == "lo"


def test_a_machine_that_is_not_in_the_table_gets_both_lists() -> None:
    with pytest.raises(BadValue, match="not in the rank table") as caught:
        share_from_table(make_rank_table(["10.255.255.1", "10.255.255.2"]))
    assert "10.255.255.1, 10.255.255.2" in str(caught.value)
    assert all(address in str(caught.value) for address in links.list_own_addresses())


def test_a_machine_that_is_in_the_table_twice_needs_the_server_flag() -> None:
    table = make_rank_table(["127.0.0.1", "127.0.0.2"])
    with pytest.raises(BadValue, match=r"several servers .* 127\.0\.0\.1, 127\.0\.0\.2"):
        share_from_table(table)
    assert share_from_table(table, server="127.0.0.2").node == 1
    with pytest.raises(UnknownName, match=r"no server in the rank table called '127\.0\.0\.3'"):
        share_from_table(table, server="127.0.0.3")


def test_a_rank_size_that_contradicts_the_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK_SIZE", "3")
    with pytest.raises(BadValue, match="RANK_SIZE is '3' in the environment, but the rank table has 2 devices"):
        share_from_table(make_rank_table(["127.0.0.1", "127.0.0.2"]), server="127.0.0.1")


def test_a_port_in_use_is_named(busy_port: int) -> None:
    with pytest.raises(BadValue, match=f"port {busy_port} is in use on this machine"):
        share_from_table(make_rank_table(["127.0.0.1", "127.0.0.2"]), server="127.0.0.1", port=busy_port)


def test_several_machines_need_a_rendezvous() -> None:
    with pytest.raises(BadValue, match="4 machines need a rendezvous"):
        share_from_nodes(4, 8, None)
    for text in ("10.0.0.1:x", ":29500", "10.0.0.1:70000", "10.0.0.1:"):
        with pytest.raises(BadValue, match=r"is not HOST:PORT|no machine"):
            share_from_nodes(2, 1, text)
    with pytest.raises(BadValue, match="--node-rank is 2; with 2 machines it is 0 to 1"):
        share_from_nodes(2, 1, "127.0.0.1:29500", node=2)


def test_a_rendezvous_that_no_machine_serves_is_given_up_in_time() -> None:
    share = share_from_table(make_rank_table(["127.0.0.1", "127.0.0.2"]), server="127.0.0.2", port=find_free_port())
    begin = time.monotonic()
    with pytest.raises(BadValue, match=r"the rendezvous 127\.0\.0\.1:\d+ was not reached within 1 seconds"):
        run_cluster(["true"], share, timeout=1)
    assert time.monotonic() - begin < 100  # by itself it is given 300 seconds


def test_a_server_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from viaduct.cluster import rendezvous

    monkeypatch.setattr(rendezvous, "LINGER_S", 0.1)
    share = share_from_table(make_rank_table(["127.0.0.1", "127.0.0.2"]), server="127.0.0.1", port=find_free_port())
    with pytest.raises(ViaductError, match=r"server 127\.0\.0\.2 did not join within 1 seconds"):
        run_cluster(["true"], share, timeout=1)


class AnswersAsTheWebDoes(BaseRequestHandler):
    def handle(self) -> None:
        if self.request.recv(1):
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def test_a_foreign_program_on_the_port_is_recognised(busy_port: int) -> None:
    with ThreadingTCPServer(("127.0.0.1", 0), AnswersAsTheWebDoes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for port in (busy_port, server.server_address[1]):
            with pytest.raises(
                BadValue, match=r"no rendezvous answers at .*: perhaps the port is used by something else"
            ):
                run_cluster(["true"], share_from_nodes(2, 1, f"127.0.0.1:{port}"), timeout=3)
        server.shutdown()


# Running


def test_every_rank_has_torchruns_variables(tmp_path: Path) -> None:
    assert run_local(["python", script(tmp_path, SAY), str(tmp_path), TORCHRUN], 3, log_dir=tmp_path / "logs") == 0
    answers = read_results(tmp_path)
    assert {(a["RANK"], a["LOCAL_RANK"]) for a in answers.values()} == {(str(n), str(n)) for n in range(3)}
    assert {(a["WORLD_SIZE"], a["LOCAL_WORLD_SIZE"]) for a in answers.values()} == {("3", "3")}
    assert len({(a["MASTER_ADDR"], a["MASTER_PORT"]) for a in answers.values()}) == 1


def test_ranks_of_a_table_also_have_those_of_hccl(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text(make_table(["127.0.0.1"], [4, 5], ["auto"]))
    names = "RANK,RANK_ID,RANK_SIZE,DEVICE_ID,RANK_TABLE_FILE,JOB_ID,ASCEND_RT_VISIBLE_DEVICES"
    share = share_from_table(read_table(path), job="j7", target="npu")
    assert run_cluster(["python", script(tmp_path, SAY), str(tmp_path), names], share) == 0
    shared = {"RANK_SIZE": "2", "RANK_TABLE_FILE": str(path), "JOB_ID": "j7", "ASCEND_RT_VISIBLE_DEVICES": "4,5"}
    assert read_results(tmp_path) == {
        rank: {"RANK": str(rank), "RANK_ID": str(rank), "DEVICE_ID": str(4 + rank), **shared} for rank in (0, 1)
    }


def test_the_rank_that_failed_is_named_with_its_last_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "import os, sys\nif os.environ['RANK'] == '1':\n    print('no more disk', file=sys.stderr); sys.exit(7)\n"
    assert run_local(["python", script(tmp_path, text)], 2, 1, tmp_path / "logs") == 1
    output = capfd.readouterr().err
    assert "rank 1 ended with exit code 7; starting all ranks again (1 of 1)." in output
    assert "rank 1 ended with exit code 7, after 1 restart." in output
    assert "no more disk" in output
    assert str(tmp_path / "logs") in output
    attempts = sorted(path.name for path in (tmp_path / "logs").glob("*/attempt_*"))
    assert attempts == ["attempt_0", "attempt_1"]


def test_a_single_rank_that_failed_has_no_log_files_to_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert run_local(["python", script(tmp_path, "raise SystemExit(7)\n")], 1, 0) == 1
    output = capfd.readouterr().err
    assert "rank 0 ended with exit code 7." in output
    assert str(tmp_path / "temporary") not in output
    assert not list((tmp_path / "temporary").glob("viaduct_launch_*"))


def test_a_killed_rank_is_blamed_and_not_one_that_is_ended_after_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        "import os, signal, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)\n"
    )
    assert run_local(["python", script(tmp_path, text)], 2, 0) == 1
    assert "rank 1 was ended by SIGKILL.\n" in capfd.readouterr().err


def test_a_users_mistake_is_not_tried_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_local(["train", "no_such_recipe"], 2) == 2
    output = capfd.readouterr().err
    # Of two ranks that make it at the same moment, the second may have said so before it was stopped.
    assert output.count("no recipe called 'no_such_recipe'") in (1, 2)
    assert "again" not in output


@pytest.mark.parametrize(("code", "last"), [(143, 143), (130, 130), (143, 5)])
def test_ranks_that_were_asked_to_stop_are_not_started_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], code: int, last: int
) -> None:
    # Both end at one moment: a rank that starts late on a busy machine would be stopped before it can end by itself.
    text = f"""import os, pathlib, sys, time
here, rank = pathlib.Path({str(tmp_path)!r}), os.environ["RANK"] + "-" + os.environ["TORCHELASTIC_RESTART_COUNT"]
(here / rank).touch()
while not (here / (("1" if rank[0] == "0" else "0") + rank[1:])).exists():
    time.sleep(0.001)
sys.exit({last} if rank[0] == "1" else {code})
"""
    assert run_local(["python", script(tmp_path, text)], 2, 1, tmp_path / "logs") == (code if last == code else 1)
    output = capfd.readouterr().err
    assert ("starting all ranks again" in output) == (last != code)
    assert ("it was asked to stop; no rank is started again." in output) == (last == code)


def test_what_a_failed_rank_printed_is_shown_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        "import os, sys\nif os.environ['RANK'] == '1':\n    print('step 41')\n"
        "    print('no more disk', file=sys.stderr); sys.exit(7)\n"
    )
    assert run_local(["python", script(tmp_path, text)], 2, 0) == 1
    output = capfd.readouterr().err
    assert "The end of its stderr:\n    no more disk\n  The end of its stdout:\n    step 41\n" in output


def test_a_restarted_rank_may_succeed(tmp_path: Path) -> None:
    text = "import os, sys\nsys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT']) < 2)\n"
    assert run_local(["python", script(tmp_path, text)], 2, 2) == 0
    assert run_local(["python", script(tmp_path, text)], 2, 1) == 1


def test_all_output_is_shown_with_its_rank(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "import os\nprint('I am', os.environ['RANK'])\n"
    assert run_local(["python", script(tmp_path, text)], 2, show="all") == 0
    assert set(capfd.readouterr().out.split("\n")) == {"[rank 0] I am 0", "[rank 1] I am 1", ""}
    assert run_local(["python", script(tmp_path, text)], 2) == 0
    assert capfd.readouterr().out == "I am 0\n"


def test_the_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)))
    assert [launch.limit_threads(ranks) for ranks in (1, 4, 24)] == [{"OMP_NUM_THREADS": n} for n in ("12", "3", "1")]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert launch.limit_threads(4) == {}


def test_own_handlers_are_back_afterwards(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert run_local(["true"], 1) == 0
    assert signal.getsignal(signal.SIGTERM) is before


# Nobody is left behind


def launch_sleepers(tmp_path: Path, text: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Two sleeping ranks, and their process numbers."""
    command = [sys.executable, "-m", "viaduct", "launch", "--ranks", "2", "--"]
    agent = subprocess.Popen(
        [*command, "python", script(tmp_path, text), str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 600
    while len(pids := [int(text) for path in tmp_path.glob("*.pid") if (text := path.read_text())]) < 2:
        assert time.monotonic() < end, "the ranks did not start"
        time.sleep(0.1)
    return agent, pids


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}") and "Z" not in state(pid)]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_ranks(tmp_path: Path, number: signal.Signals) -> None:
    agent, pids = launch_sleepers(tmp_path, SLEEP)
    assert len(alive(pids)) == 2
    agent.send_signal(number)
    agent.communicate(timeout=600)
    assert agent.returncode == 128 + number
    assert alive(pids) == []


def test_a_closed_terminal_hangs_up_twice_and_leaves_ranks_their_time(tmp_path: Path) -> None:
    slow = "import signal, sys, time\nsignal.signal(signal.SIGHUP, lambda *_: (time.sleep(1), sys.exit(129)))\n"
    saved = "import atexit\natexit.register(lambda: open(f\"{sys.argv[1]}/{os.environ['RANK']}.saved\", 'w'))\n"
    agent, _ = launch_sleepers(tmp_path, slow + SLEEP.replace("time.sleep", saved + "time.sleep"))
    agent.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    agent.send_signal(signal.SIGHUP)
    agent.communicate(timeout=600)
    assert agent.returncode == 129
    assert len(list(tmp_path.glob("*.saved"))) == 2


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_launcher_and_ranks_stay_deaf_to_what_their_shell_has_ignored(tmp_path: Path, number: signal.Signals) -> None:
    short = SLEEP.replace("time.sleep(120)", "time.sleep(3)")
    before = signal.signal(number, signal.SIG_IGN)  # as nohup and background jobs have it
    try:
        agent, pids = launch_sleepers(tmp_path, short)
    finally:
        signal.signal(number, before)
    for pid in (agent.pid, *pids):
        os.kill(pid, number)
    agent.communicate(timeout=600)
    assert agent.returncode == 0


def test_a_second_signal_kills_ranks_that_do_not_listen(tmp_path: Path) -> None:
    agent, pids = launch_sleepers(tmp_path, STUBBORN + SLEEP)
    agent.send_signal(signal.SIGINT)
    time.sleep(1)
    assert len(alive(pids)) == 2
    begin = time.monotonic()
    while agent.poll() is None:  # a signal that arrives while the last one is handled is lost
        agent.send_signal(signal.SIGINT)
        time.sleep(0.5)
    agent.communicate(timeout=600)
    assert time.monotonic() - begin < 25  # after 30 seconds it would have killed them by itself
    assert alive(pids) == []


# Several machines, on this one


def start_machines(tmp_path: Path, shares: list[str], argv: list[str], *flags: str) -> list[tuple[int | None, str]]:
    """Start the same job with the flags of each share; return exit code and stderr of each launcher."""
    head = ["launch", "--timeout", "40", "--max-restarts", "1", *flags]
    with ExitStack() as running:
        agents = [running.enter_context(start_viaduct(*head, *share.split(), "--", *argv)) for share in shares]
        errors = [agent.communicate()[1] for agent in agents]
    return [(agent.returncode, stderr) for agent, stderr in zip(agents, errors, strict=True)]


def test_two_servers_of_a_table_work_as_one(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text(
        make_table(["127.0.0.2", "127.0.0.1"], [0], ["auto"], card="other")
    )  # c10d would number them otherwise
    flags = ("--ranktable", str(path), "--card", "other", "--port", str(find_free_port()))
    argv = ["python", script(tmp_path, MEET), str(tmp_path)]
    ends = start_machines(tmp_path, ["--server 127.0.0.1", "--server 127.0.0.2"], argv, *flags)
    assert [code for code, _ in ends] == [0, 0], ends
    answers = read_results(tmp_path)
    assert [answers[rank]["sum"] for rank in (0, 1)] == [3.0, 3.0]
    assert [answers[rank]["RANK_ID"] for rank in (0, 1)] == ["0", "1"]
    assert answers[1]["MASTER_ADDR"] == "127.0.0.2"


def test_machines_meet_at_an_ipv6_address(tmp_path: Path) -> None:
    try:
        links.open_listening_socket("::1").close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    argv = ["python", script(tmp_path, MEET), str(tmp_path)]
    ends = start_machines(
        tmp_path, ["", ""], argv, "--nodes", "2", "--ranks", "1", "--rdzv", f"[::1]:{find_free_port()}"
    )
    assert [code for code, _ in ends] == [0, 0], ends
    answers = read_results(tmp_path)
    assert [(answers[rank]["sum"], answers[rank]["MASTER_ADDR"]) for rank in (0, 1)] == [(3.0, "::1")] * 2


def test_a_failure_on_one_machine_starts_both_again(tmp_path: Path) -> None:
    fails = "import os, sys\nif os.environ['RANK'] + os.environ['TORCHELASTIC_RESTART_COUNT'] == '10': sys.exit(9)\n"
    argv = ["python", script(tmp_path, fails + MEET), str(tmp_path)]
    ends = start_machines(
        tmp_path, ["", ""], argv, "--nodes", "2", "--ranks", "1", "--rdzv", f"127.0.0.1:{find_free_port()}"
    )
    assert [code for code, _ in ends] == [0, 0], ends
    assert sum("rank 1 ended with exit code 9; starting all ranks again" in output for _, output in ends) == 1
    assert {rank: answer["TORCHELASTIC_RESTART_COUNT"] for rank, answer in read_results(tmp_path).items()} == {
        0: "1",
        1: "1",
    }


def test_a_mistake_on_one_machine_ends_the_other_too(tmp_path: Path) -> None:
    fails = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(2)\ntime.sleep(100)\n"
    argv = ["python", script(tmp_path, fails)]
    ends = start_machines(
        tmp_path, ["", ""], argv, "--nodes", "2", "--ranks", "1", "--rdzv", f"127.0.0.1:{find_free_port()}"
    )
    assert sorted(code for code, _ in ends) == [1, 2], ends
    assert (
        sum(
            "another server ended the job" in output and "rank 1 ended with exit code 2" in output for _, output in ends
        )
        == 1
    )


def test_a_stop_on_all_machines_is_passed_on_by_each(tmp_path: Path) -> None:
    argv = ["python", script(tmp_path, MEET + "sys.exit(143)\n"), str(tmp_path)]
    ends = start_machines(
        tmp_path, ["", ""], argv, "--nodes", "2", "--ranks", "1", "--rdzv", f"127.0.0.1:{find_free_port()}"
    )
    assert [code for code, _ in ends] == [143, 143], ends
    assert not any("again (" in output for _, output in ends)


def test_a_share_without_a_table_adds_only_its_own_variables() -> None:
    assert NodeShare(2, shared={"A": "1"}).build_variables(0) == {"A": "1"}


# Two servers, as far as a machine can be two


def namespaces_are_permitted() -> bool:
    name = f"viaduct-try-{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    except OSError:
        return False
    if made:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return made


def losses(run: Path) -> dict[int, float]:
    """Step -> loss; of a step that was done again, the last."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "log"}


@pytest.mark.slow
def test_a_cut_cable_is_noticed_and_the_run_continues_as_if_it_had_not_been(tmp_path: Path) -> None:
    if not namespaces_are_permitted():
        pytest.skip("network namespaces need root and iproute2")
    environment = {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    example = Path(__file__).parents[2] / "examples" / "two_servers.sh"
    answer = subprocess.run(
        ["bash", example, tmp_path / "two", "30"], capture_output=True, text=True, env=environment, timeout=400
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert int(answer.stdout.partition("ended within ")[2].split()[0]) <= 60
    for server in ("10.77.0.1", "10.77.0.2"):
        assert f"server {server} does not answer any more" in answer.stdout
    command = "shapes_taster --device cpu --steps 30 --batch 32 --save-every 5 --log-every 1 --eval-every 0 --ranks 2"
    command += " --set data.train_images=640 --set data.validation_images=64 --run"
    words = [sys.executable, "-m", "viaduct", "train", *command.split(), str(tmp_path / "calm")]
    subprocess.run(words, check=True, env=environment, capture_output=True, timeout=200)
    expected = losses(tmp_path / "calm")
    assert len(expected) == 30
    assert losses(tmp_path / "two" / "run") == pytest.approx(expected, rel=1e-5)


# Who may speak to a job


def listening(pid: int) -> set[str]:
    """The addresses at which a process and its children listen."""
    inodes = set()
    for process in (pid, *children(pid)):
        with suppress(OSError):
            for descriptor in os.scandir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    inodes.add(os.readlink(descriptor.path).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and inode in inodes:
                digits = local.partition(":")[0]
                words = [digits[index : index + 8] for index in range(0, len(digits), 8)]
                raw = b"".join(bytes.fromhex(argument)[::-1] for argument in words)
                found.add(socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw))
    return found


def children(pid: int) -> list[int]:
    try:
        own = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [process for child in own for process in (child, *children(child))]


WAIT_TOGETHER = MEET.replace("dist.destroy", "import time; time.sleep(60)\ndist.destroy")


def test_ranks_of_one_machine_are_not_reached_from_another(tmp_path: Path) -> None:
    with start_viaduct(
        "launch", "--ranks", "2", "--", "python", script(tmp_path, WAIT_TOGETHER), str(tmp_path)
    ) as agent:
        wait_for(lambda: len(read_results(tmp_path)) == 2)
        assert listening(agent.pid) == {"127.0.0.1"}


def test_a_job_listens_at_the_address_of_its_rendezvous_only(tmp_path: Path) -> None:
    head = ("launch", "--nodes", "2", "--ranks", "1", "--rdzv", f"127.0.0.3:{find_free_port()}", "--")
    argv = ("python", script(tmp_path, WAIT_TOGETHER), str(tmp_path))
    with start_viaduct(*head, *argv) as first, start_viaduct(*head, *argv) as second:
        wait_for(lambda: len(read_results(tmp_path)) == 2)
        # The store where they meet, and the ranks' at the address from which one gets there.
        assert listening(first.pid) | listening(second.pid) == {"127.0.0.1", "127.0.0.3"}


def wait_for(found: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(json.JSONDecodeError):  # a file that is being written
            if found():
                return
        time.sleep(0.05)
    assert found()


def test_two_machines_with_the_same_secret_work_as_one(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123\n")
    secret.chmod(0o600)
    argv = ["python", script(tmp_path, MEET), str(tmp_path)]
    flags = ("--nodes", "2", "--ranks", "1", "--rdzv", f"127.0.0.1:{find_free_port()}", "--secret-file", str(secret))
    ends = start_machines(tmp_path, ["", ""], argv, *flags)
    assert [code for code, _ in ends] == [0, 0], ends
    assert not any("no secret" in output for _, output in ends)
    assert [answer["VIADUCT_JOB_SECRET"] for answer in read_results(tmp_path).values()] == ["0123456789abcdef0123"] * 2


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    before = dict(os.environ)
    with launch.replace_environment({"ONLY": "this"}):
        assert dict(os.environ) == {"ONLY": "this"}
    assert dict(os.environ) == before
