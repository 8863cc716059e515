"""The variables of each process, and the environment that contradicts the table."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cluster.rank_tables import edit, table_1
from viaduct.cluster import RankTable, check_environment
from viaduct.cluster.environment import format_exports
from viaduct.cluster.ranktable import parse_table
from viaduct.errors import BadValue


def load(servers: int = 2, devices: Any = range(8), card: Any = "ascend-910", **changes: Any) -> RankTable:
    return parse_table(json.dumps(edit(table_1(servers, devices), changes)), card, Path("tables") / "r.json")


def test_a_rank_has_the_variables_of_hccl_and_of_torchrun() -> None:
    assert load().environment(11) == {
        "RANK_TABLE_FILE": str(Path("tables/r.json").resolve()),
        "JOB_ID": "viaduct",
        "RANK_SIZE": "16",
        "MASTER_ADDR": "10.0.0.10",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "16",
        "NNODES": "2",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "8",
        "RANK_ID": "11",
        "DEVICE_ID": "3",
        "RANK": "11",
        "LOCAL_RANK": "3",
    }


def test_ranks_are_numbered_as_torchrun_numbers_them() -> None:
    table = load()
    for rank in range(table.size):
        own = table.environment(rank)
        assert int(own["NODE_RANK"]) * int(own["NPROC_PER_NODE"]) + int(own["LOCAL_RANK"]) == rank


def test_the_variables_for_torchrun_have_no_rank() -> None:
    variables = load().server_environment("10.0.1.10", port=4000, job="night-1", target="mlu")
    assert variables["NODE_RANK"] == "1"
    assert variables["MASTER_PORT"] == "4000"
    assert variables["JOB_ID"] == "night-1"
    assert variables["MLU_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert not {"RANK", "RANK_ID", "LOCAL_RANK", "DEVICE_ID"} & set(variables)


def test_the_local_rank_is_the_position_among_the_visible_devices() -> None:
    table = load(1, [4, 5, 6, 7])
    assert table.environment(2, target="npu")["ASCEND_RT_VISIBLE_DEVICES"].split(",")[2] == "6"
    assert table.environment(2)["DEVICE_ID"] == "6"
    assert table.environment(2)["LOCAL_RANK"] == "2"


def test_ranks_that_change_between_servers_are_refused_with_the_way_out() -> None:
    changes = {"server_list[0].device[7].rank_id": "8", "server_list[1].device[0].rank_id": "7"}
    table = load(2, range(8), "ascend-910", **changes)
    for ask in (lambda: table.environment(0), lambda: table.server_environment("10.0.0.10")):
        with pytest.raises(BadValue, match=r"server by server.\n.*--renumber"):
            ask()


def test_servers_of_unequal_size_get_variables_for_ranks_but_not_for_torchrun() -> None:
    table = load(2, range(2), "other", **{"server_list[1].device[1]": ...})
    assert table.environment(2)["NPROC_PER_NODE"] == "1"
    with pytest.raises(BadValue, match=r"10.0.0.10 has 2, 10.0.1.10 has 1.\n.*--rank N"):
        table.server_environment("10.0.0.10")


def test_of_many_servers_one_of_each_size_is_named() -> None:
    table = load(6, range(2), "other", **{"server_list[5].device[1]": ...})
    with pytest.raises(BadValue, match=r"10.0.0.10 has 2, 10.0.5.10 has 1.\n"):
        table.server_environment("10.0.0.10")


@pytest.mark.parametrize(("port", "job", "named"), [(0, "a", "no port 0"), (65536, "a", "65536"), (1, "a b", "'a b'")])
def test_a_port_or_a_job_that_cannot_be_is_refused(port: int, job: str, named: str) -> None:
    with pytest.raises(BadValue, match=named):
        load().environment(0, port=port, job=job)


def test_an_environment_that_agrees_is_let_through() -> None:
    table = load()
    check_environment(table, {})
    check_environment(table, {"HOME": "/", **table.environment(9)})


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RANK_SIZE": "1"}, "RANK_SIZE is '1' .* has 16 devices"),
        ({"WORLD_SIZE": "8"}, "WORLD_SIZE is '8' .* has 16 devices"),
        ({"RANK_ID": "16"}, "RANK_ID is '16' .* ranks 0 to 15"),
        ({"RANK": "first"}, "RANK is 'first' .* ranks 0 to 15"),
        ({"RANK_ID": "9", "DEVICE_ID": "9"}, "DEVICE_ID is '9' .* rank 9 has device 1"),
    ],
)
def test_an_environment_that_contradicts_the_table_is_refused_naming_both(
    variables: dict[str, str], named: str
) -> None:
    with pytest.raises(BadValue, match=named):
        check_environment(load(), variables)


def test_a_shell_reads_the_lines_as_they_are_meant() -> None:
    lines = format_exports({"RANK_TABLE_FILE": "/a b/it's $HOME.json", "RANK_ID": "3"})
    shell = subprocess.run(
        ["sh", "-c", lines + 'printf "%s|%s" "$RANK_TABLE_FILE" "$RANK_ID"'], capture_output=True, text=True
    )
    assert shell.stdout == "/a b/it's $HOME.json|3"


def test_devices_out_of_order_are_refused_for_the_npu_which_would_see_none() -> None:
    swapped = {"server_list[0].device[0].rank_id": "1", "server_list[0].device[1].rank_id": "0"}
    table = load(1, [0, 1], "ascend-910", **swapped)
    assert table.environment(0, target="cuda")["CUDA_VISIBLE_DEVICES"] == "1,0"
    with pytest.raises(
        BadValue, match=r"are 1,0; ASCEND_RT_VISIBLE_DEVICES must list numbers in strictly ascending order"
    ):
        table.environment(0, target="npu")
