"""npu_bridge and hccl as seen from outside, on the CPU. This folder goes on sys.path; none of it is the adapter's."""
