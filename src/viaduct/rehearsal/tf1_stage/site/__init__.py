"""Stand-ins for npu_bridge and hccl with their public names, on the CPU. This folder is put on sys.path."""
