"""npu_bridge.tf_adapter, which loads the library of Ascend's TF Adapter; here there is nothing to load."""
