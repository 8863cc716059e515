"""Ask the accelerator's own communication for ranks.

With `--distributed`:

     import horovod.tensorflow as hvd
     import tensorflow as tf
    +from hccl.manage.api import get_rank_size
    -learning_rate = 0.1 * hvd.size()
    +learning_rate = 0.1 * get_rank_size()

rank, size, local_rank and local_size have a counterpart in hccl, which answers once communication has been started;
`--style wrapper` writes the helpers of npu_init. What runs before main, `--rank env`, and a migration without
`--distributed` read RANK_ID, RANK_SIZE and DEVICE_ID from the environment instead; there is no such variable for the
number of ranks on one server.
"""

from __future__ import annotations

from viaduct.cards import NPU
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1 import _ranks as ranks

rule = Rule(__name__, after=("horovod_devices",))


@horovod.on_call(rule, *ranks.HCCL_FUNCTIONS)
def replace_rank(site: Site) -> None:
    """Replace a call by hccl's function, or by the environment variable where hccl cannot be asked."""
    what = horovod.short_name(site)
    text = ranks.render_rank(site, site.node, what)
    if text is None:
        horovod.report_by_hand(
            site,
            f"no environment variable holds it, and {NPU.backend} has not been started here",
            "没有对应的环境变量,且此处集合通信尚未初始化",
        )
    elif not horovod.replace_call(site, text):
        horovod.report_by_hand(
            site, f"write {text}; this place cannot be edited safely", f"请改为 {text};此处无法安全改写"
        )
    else:
        site.report_change(f"hvd.{what}() becomes {text}", zh=f"hvd.{what}() 替换为 {text}")


@rule.reference(*horovod.qualified_names(*ranks.HCCL_FUNCTIONS))
def replace_reference(site: Site) -> None:
    """Replace a function that is passed on, as in `make(rank=hvd.rank)`: hccl's is called in the same way."""
    if not horovod.keeps_horovod(site) and site.is_editable and ranks.can_ask_hccl(site, site.node):
        what = horovod.short_name(site)
        site.rename(ranks.function_name(site, what))
        site.report_change(
            f"hvd.{what} becomes its counterpart in {NPU.backend}", zh=f"hvd.{what} 替换为 {NPU.backend} 的对应函数"
        )
