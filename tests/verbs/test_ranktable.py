"""Output of `viaduct ranktable`: tables, findings, images, `export` lines, refusals; and its document."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from cluster.rank_tables import GUIDE_1, GUIDE_2, edit, table_1
from viaduct import cli
from viaduct.cluster import RULES, read

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
PAIR = ("--servers", "10.0.0.10,10.0.0.11")


class CommandResult(NamedTuple):
    code: int
    out: str
    stderr: str


Call = Callable[..., CommandResult]


@pytest.fixture
def viaduct(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """The command line, in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")

    def call(*words: str | Path) -> CommandResult:
        monkeypatch.setattr("sys.argv", ["viaduct", "ranktable", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return CommandResult(int(end.value.code or 0), printed.out, printed.err)

    return call


def check_refusal(answer: CommandResult, *fragments: str) -> None:
    assert answer.code == 2
    assert "Traceback" not in answer.stderr
    for fragment in fragments:
        assert fragment in answer.stderr


def save_table(table: object, name: str = "r.json") -> Path:
    Path(name).write_text(table if isinstance(table, str) else json.dumps(table))
    return Path(name)


def test_a_table_is_made_checked_and_not_overwritten(viaduct: Call) -> None:
    made = viaduct("make", *PAIR, "--devices", "8", "--device-ips", "auto", "--out", "r.json")
    assert made.code == 0, made.stderr
    assert made.out == "r.json: 16 devices on 2 servers, template 1\n"
    assert "hccn_tool" in made.stderr
    checked = viaduct("check", "r.json")
    assert (checked.code, checked.out) == (0, "r.json: template 1, 16 devices on 2 servers; 0 errors, 0 warnings\n")
    again = ("make", *PAIR, "--device-ips", "auto", "--template", "2", "--out", "r.json")
    check_refusal(viaduct(*again), "viaduct ranktable make: r.json is there already.", "--force")
    assert viaduct(*again, "--force").code == 0
    assert read("r.json").template == 2


def test_without_a_file_to_write_the_table_goes_to_the_screen(viaduct: Call) -> None:
    made = viaduct("make", "--servers", "10.0.0.10", "--devices", "4,5,6,7", "--device-ips", "auto")
    devices = json.loads(made.out)["server_list"][0]["device"]
    assert [(device["device_id"], device["rank_id"]) for device in devices] == [
        ("4", "0"),
        ("5", "1"),
        ("6", "2"),
        ("7", "3"),
    ]


def test_what_make_cannot_do_is_reported_with_the_flag_or_the_rule(viaduct: Call) -> None:
    check_refusal(viaduct("make", *PAIR), "the devices' addresses are not given", "--device-ips auto")
    check_refusal(viaduct("make", *PAIR, "--devices", "4", "--device-ips", "auto"), "cluster-server-devices")
    check_refusal(viaduct("make", "--servers", "a,a", "--device-ips", "auto"), "--servers names 'a' twice")
    check_refusal(
        viaduct("make", *PAIR, "--device-ips", "nowhere.csv"), "no file nowhere.csv", "CSV of server,device,ip"
    )
    check_refusal(viaduct("make", *PAIR, "--card", "atlas-300-9000", "--device-ips", "auto"), "card-single")
    check_refusal(
        viaduct("make", "--servers", "10.0.0.1", "--devices", "2", "--present", "1", "--device-ips", "auto"),
        "devices-present",
    )


def test_servers_by_name_are_made_with_a_note(viaduct: Call) -> None:
    made = viaduct("make", "--servers", "node-a", "--devices", "1", "--device-ips", "auto", "--out", "r.json")
    assert made.code == 0
    assert "Note: server-id-name: server_list[0].server_id" in made.stderr


@pytest.mark.parametrize("text", [GUIDE_1, GUIDE_2])
def test_the_tables_of_the_guide_pass_with_a_notice(viaduct: Call, text: str) -> None:
    checked = viaduct("check", save_table(text))
    assert checked.code == 0
    assert "warning json-comments\n" in checked.out
    assert "JSON has none" in checked.out
    assert checked.out.endswith("2 devices on 1 server; 0 errors, 1 warning\n")


def test_a_violation_is_shown_with_rule_path_value_and_fix(viaduct: Call) -> None:
    table = edit(table_1(), {"server_list[1].device[3].device_ip": "192.168.0.\x1b[2J"})
    checked = viaduct("check", save_table(table))
    assert checked.code == 1
    assert checked.out.splitlines()[:4] == [
        "error device-ip-address",
        "  server_list[1].device[3].device_ip = '192.168.0.\\x1b[2J'",
        "  '192.168.0.\\x1b[2J' is not an IPv4 address.",
        "  Write it as 192.168.0.2.",
    ]


def test_findings_are_printed_as_json(viaduct: Call) -> None:
    checked = viaduct("check", save_table(edit(table_1(3), {"status": 1})), "--json")
    report = json.loads(checked.out)
    assert checked.code == 1
    assert {key: report[key] for key in ("template", "servers", "devices", "errors", "warnings")} == {
        "template": 1,
        "servers": 3,
        "devices": 24,
        "errors": 2,
        "warnings": 1,
    }
    assert report["findings"][0] == {
        "severity": "error",
        "rule": "number-as-string",
        "path": "status",
        "value": "1",
        "wrong": "1 is a number; in a rank table numbers are strings",
        "fix": 'Write "1", with quotes.',
    }


def test_a_file_that_is_no_json_is_shown_with_line_and_column(viaduct: Call) -> None:
    checked = viaduct("check", save_table('{\n "status": completed\n}'))
    assert checked.code == 1
    assert "error json-syntax\n  line 2, column 12\n" in checked.out
    assert json.loads(viaduct("check", "r.json", "--json").out)["template"] is None


def test_a_file_that_does_not_exist_could_not_be_checked(viaduct: Call) -> None:
    check_refusal(viaduct("check", "none.json"), "viaduct ranktable check: there is no file none.json.")


def test_cards_and_present_devices_are_flags_of_check(viaduct: Call) -> None:
    path = save_table(table_1(2, [0]))
    assert viaduct("check", path).code == 1
    assert viaduct("check", path, "--card", "other").code == 0
    assert "devices-present" in viaduct("check", path, "--card", "other", "--present", "0").out


def test_a_table_is_drawn_and_a_broken_one_is_not(viaduct: Call) -> None:
    shown = viaduct("show", save_table(GUIDE_1))
    assert shown.code == 0
    assert "10.0.0.10 · node 0" in shown.out
    assert "rank 1" in shown.out
    assert "json-comments" in shown.stderr
    check_refusal(
        viaduct("show", save_table("{}")), "r.json cannot be used: 1 violation", "viaduct ranktable check r.json"
    )


def test_a_table_goes_through_all_forms_and_back(viaduct: Call) -> None:
    save_table(table_1(1, [4, 5]))
    assert viaduct("convert", "r.json", "--to", "2", "--out", "two.json").code == 0
    assert viaduct("convert", "two.json", "--to", "1", "--out", "one.json").code == 0
    assert read("one.json").servers == read("r.json").servers
    hosts = viaduct("convert", "one.json", "--to", "hostfile")
    assert hosts.out == "10.0.0.10 slots=2\n"
    assert "of 10.0.0.10 to 4,5" in hosts.stderr
    check_refusal(viaduct("convert", "one.json", "--to", "1", "--out", "two.json"), "is there already")
    check_refusal(viaduct("convert", "one.json", "--to", "2", "--device-ips", "gone"), "--device-ips is for a hostfile")
    check_refusal(viaduct("convert", save_table(hosts.out, "hosts"), "--to", "1"), "--device-ips auto")


def test_a_hostfile_with_names_becomes_a_table_with_a_note(viaduct: Call) -> None:
    answer = viaduct("convert", save_table("node-a slots=8\n", "hosts"), "--to", "1", "--device-ips", "auto")
    assert json.loads(answer.out)["server_list"][0]["server_id"] == "node-a"
    assert "Note: server-id-name" in answer.stderr


def test_mixed_ranks_are_renumbered_on_request(viaduct: Call) -> None:
    changes = {"server_list[0].device[7].rank_id": "8", "server_list[1].device[0].rank_id": "7"}
    save_table(edit(table_1(), changes))
    check_refusal(viaduct("env", "r.json", "--rank", "0"), "convert r.json --to 1 --renumber")
    answer = viaduct("convert", "r.json", "--to", "1", "--renumber", "--out", "straight.json")
    assert (answer.code, answer.stderr) == (0, "")
    assert viaduct("env", "straight.json", "--rank", "0").code == 0


def test_the_variables_of_a_rank_are_export_lines(viaduct: Call, tmp_path: Path) -> None:
    answer = viaduct("env", save_table(table_1()), "--rank", "9", "--port", "4000", "--job", "j1")
    assert answer.stderr == ""
    lines = answer.out.splitlines()
    assert f"export RANK_TABLE_FILE={tmp_path / 'r.json'}" in lines
    assert {"export RANK_ID=9", "export DEVICE_ID=1", "export MASTER_PORT=4000", "export JOB_ID=j1"} < set(lines)


def test_devices_that_torch_would_count_otherwise_are_noted(viaduct: Call) -> None:
    save_table(table_1(1, [4, 5]))
    assert "give --target" in viaduct("env", "r.json", "--server", "10.0.0.10").stderr
    mapped = viaduct("env", "r.json", "--server", "10.0.0.10", "--target", "npu")
    assert "export ASCEND_RT_VISIBLE_DEVICES=4,5\n" in mapped.out
    assert mapped.stderr == ""


def test_variables_without_a_rank_or_server_are_refused(viaduct: Call) -> None:
    save_table(table_1())
    check_refusal(viaduct("env", "r.json"), "whose variables?", "--rank N")
    check_refusal(viaduct("env", "r.json", "--rank", "0", "--server", "10.0.0.10"), "were both given")
    check_refusal(viaduct("env", "r.json", "--rank", "16"), "no rank 16 in r.json", "0 to 15")
    check_refusal(viaduct("env", "r.json", "--server", "10.0.9.9"), "no server in r.json called '10.0.9.9'")
    check_refusal(viaduct("env", "r.json", "--rank", "0", "--port", "0"), "no port 0")


def test_rank_tables_need_no_torch() -> None:
    words = ["-X", "importtime", "-m", "viaduct", "ranktable", "check", "--help"]
    answer = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert answer.returncode == 0
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in answer.stderr.splitlines() if "|" in line}
    assert "viaduct" in imported
    assert not imported & {"torch", "numpy", "rich"}


def test_the_commands_of_the_document_run_in_their_order(viaduct: Call) -> None:
    commands = re.findall(r"^    viaduct ranktable (.+)$", DOCUMENT, re.MULTILINE)
    assert len(commands) >= 10
    for command in commands:
        answer = viaduct(*shlex.split(command))
        assert answer.code == 0, (command, answer.stderr)
    assert read("from_hosts.json") == read("rank_table_16p.json") == read("template_1.json")
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    exec(compile(code, "docs/cluster.md", "exec"), {})


def test_the_document_lists_every_rule_as_it_is() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \| (.+) \|$", DOCUMENT, re.MULTILINE)
    assert rows == [(name, rule.severity, rule.sentence) for name, rule in RULES.items()]
