"""Rank tables for the tests: the two that the guide prints, sound ones of any size, and edits by JSON path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

GUIDE_1 = """\
{
"server_count":"1",  //server数目，此例中，只有一个server
"server_list":       //本次参与训练的Server实例列表
[
   {
        "device":[    // server中的device列表
                       {
                        "device_id":"0",  // 芯片物理ID，即Device在Server上的序列号，对应HDC通道号，取值范围：[0-7]
                        "device_ip":"192.168.0.2",  // 芯片真实网卡IP，全局唯一，以点分十进制表示的字符串
                        "rank_id":"0"   // Rank唯一标识，从0开始配置，且全局唯一，取值范围：[0, 总Device数量-1]
                        },
                        {
                         "device_id":"1",
                         "device_ip":"192.168.1.2",
                         "rank_id":"1"
                         }
                  ],
         "server_id":"10.0.0.10"  //server物理IP，以点分十进制表示的字符串
    }
],
"status":"completed",  // ranktable可用标识，completed为可用
"version":"1.0"        // ranktable模板版本信息,当前必须为"1.0"
}
"""
GUIDE_2 = """\
{
"status":"completed",   // Rank table可用标识，completed为可用
"group_count":"1",      // group数量，建议为1
"group_list":           // group列表
 [
   {
    "group_name":"hccl_world_group",//group名称，建议hccl_world_group
    "instance_count":"2",        // instance实例个数，容器场景下可理解为容器个数
    "device_count":"2",         // group中的所有device数目
    "instance_list":[
        {
           "pod_name":"tf-bae41",     //instance实例名称，一般为容器名称
           "server_id":"10.0.0.10",   //server标识，以IP格式填入
           "devices":[                //instance实例的device列表
            {
              "device_id":"0",           // 芯片HDC通道号
              "device_ip":"192.168.0.2"  // 芯片真实网卡IP
            }
           ]
        },
        {
            "pod_name":"tf-tbdf1",
            "server_id":"10.0.0.10",
            "devices":[
                {
                    "device_id":"1",
                    "device_ip":"192.168.1.2"
                }
             ]
          }
       ]
   }
 ]
}
"""


def table_1(servers: int = 2, devices: Sequence[int] = range(8)) -> Json:
    """Template 1 with nothing to say against it; the ranks count through."""
    entries = [
        {
            "server_id": f"10.0.{server}.10",
            "device": [
                {
                    "device_id": str(device),
                    "device_ip": ip(server, device),
                    "rank_id": str(server * len(devices) + index),
                }
                for index, device in enumerate(devices)
            ],
        }
        for server in range(servers)
    ]
    return {"server_count": str(servers), "server_list": entries, "status": "completed", "version": "1.0"}


def table_2(servers: int = 2, devices: Sequence[int] = range(8)) -> Json:
    instances = [
        {
            "pod_name": f"pod-{server}",
            "server_id": f"10.0.{server}.10",
            "devices": [{"device_id": str(device), "device_ip": ip(server, device)} for device in devices],
        }
        for server in range(servers)
    ]
    group = {
        "group_name": "hccl_world_group",
        "instance_count": str(servers),
        "device_count": str(servers * len(devices)),
        "instance_list": instances,
    }
    return {"status": "completed", "group_count": "1", "group_list": [group]}


def ip(server: int, device: int) -> str:
    return f"192.168.{100 + 4 * (server // 100) + device % 4}.{1 + 2 * (server % 100) + device // 4}"


def edit(table: Json, changes: dict[str, Any]) -> Json:
    """Set what stands at each JSON path; `...` removes it."""
    for path, value in changes.items():
        *parents, last = [int(step) if step.isdigit() else step for step in re.findall(r"\w+", path)]
        node: Any = table
        for step in parents:
            node = node[step]
        if value is ...:
            del node[last]
        else:
            node[last] = value
    return table
