def broadcast(tensors, root_rank):
    return list(tensors)


def allreduce(tensor, reduction):
    return tensor
