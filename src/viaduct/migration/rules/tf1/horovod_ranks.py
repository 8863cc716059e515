"""Replace Horovod's functions for ranks by functions of hccl, the NPU's library of collectives.

With `--distributed`:

     import horovod.tensorflow as hvd
     import tensorflow as tf
    +from hccl.manage.api import get_rank_size
    -learning_rate = 0.1 * hvd.size()
    +learning_rate = 0.1 * get_rank_size()

rank, size, local_rank and local_size have counterparts in hccl, which work after communication was started. `--style
wrapper` writes the helpers of npu_init. Code that runs before main, and every call with `--rank env` or without
`--distributed`, reads RANK_ID, RANK_SIZE and DEVICE_ID from the environment. No variable has the number of ranks on one
server, so local_size needs manual review there.
"""

from __future__ import annotations

from viaduct.cards import NPU
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1 import _ranks as ranks

# After horovod_devices, which recognises the choice of a device by `hvd.local_rank()`.
rule = Rule(__name__, target_needs="communication", spec_rows=("2.8",), after=("horovod_devices",))


@horovod.register_call(rule, *ranks.HCCL_FUNCTIONS)
def replace_rank(site: Site) -> None:
    """Replace a call by hccl's function or by an environment variable."""
    quantity = horovod.get_name_in_horovod(site)
    text = ranks.render_rank_quantity(site, site.node, quantity)
    if text is None:
        horovod.request_manual_change(
            site,
            f"no environment variable has this number, and {NPU.backend} has not been started here",
            "没有对应的环境变量,且此处集合通信尚未初始化",
        )
    elif not horovod.replace_call(site, text):
        horovod.request_manual_change(
            site, f"write {text}; it cannot be edited safely here", f"请改为 {text};此处无法安全改写"
        )
    else:
        site.report_change(f"hvd.{quantity}() becomes {text}", zh=f"hvd.{quantity}() 替换为 {text}")


@rule.reference(*horovod.qualified_names(*ranks.HCCL_FUNCTIONS))
def replace_reference(site: Site) -> None:
    """Replace a function that is passed on, as in `make(rank=hvd.rank)`."""
    if not horovod.keeps_horovod(site) and site.is_editable and ranks.can_ask_hccl(site, site.node):
        quantity = horovod.get_name_in_horovod(site)
        site.rename(ranks.import_rank_function(site, quantity))
        site.report_change(
            f"hvd.{quantity} becomes its counterpart in {NPU.backend}",
            zh=f"hvd.{quantity} 替换为 {NPU.backend} 的对应函数",
        )
