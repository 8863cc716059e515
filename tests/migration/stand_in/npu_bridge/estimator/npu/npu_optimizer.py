def NPUDistributedOptimizer(optimizer, name=None):
    return optimizer


npu_distributed_optimizer_wrapper = KerasDistributeOptimizer = NPUDistributedOptimizer
