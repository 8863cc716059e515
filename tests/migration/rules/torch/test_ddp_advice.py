from __future__ import annotations

from migration.checking import check_noop, check_says, migrated

HEAD = "from torch.nn.parallel import DistributedDataParallel as DDP\n"


def test_what_is_set_needs_no_advice() -> None:
    check_noop("ddp_advice", HEAD + "m = DDP(net, broadcast_buffers=False, bucket_cap_mb=100)\nn = DDP(net, **more)\n")


def test_buffers_on_both_and_buckets_on_the_npu() -> None:
    source = HEAD + "m = DDP(net, device_ids=[0])\n"
    check_says("ddp_advice", source, "advice", "broadcast_buffers=False")
    check_says("ddp_advice", source, "advice", "bucket_cap_mb=500")
    assert len(migrated(source, "ddp_advice", to="mlu").findings) == 1
