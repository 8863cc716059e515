"""AmoebaNet-D on ImageNet-1k as its Ascend port trains it: six cells, 35 epochs of plain SGD, averaged weights.

Source: the port's defaults: batch 64; learning rate 2.56 (for any batch) after 0.35 epochs of warm-up, times 0.88 after
every epoch; weight decay on all parameters but norms and biases; an auxiliary head with weight 0.4; evaluation of the
weights' moving average; a checkpoint every 1251 steps (an epoch has 20,018). Published: 75.60 % top-1 and 92.69 % top-5
at step 700,665, 35 steps more than here, because the port rounds its epochs up. In fp16 the loss scale starts at 2^32
and is halved after two overflows. Google's own settings (12 cells, 299 pixels, RMSProp) are in docs/flags.md.

    viaduct train amoebanet_d_imagenet --data records/
"""

from viaduct.recipes import (
    Amoebanet,
    AmoebanetDecay,
    Checkpoint,
    CrossEntropy,
    Ema,
    Log,
    Precision,
    Recipe,
    Records,
    Sgd,
    Top1,
)

recipe = Recipe(
    model="amoebanet_d",
    data=Records(global_batch=64, size=224, preprocess="amoebanet"),
    network=Amoebanet(cells=6, dropout_keep=0.5, drop_path_keep=1.0),
    optimizer=Sgd(lr=2.56, momentum=0.0, weight_decay=4e-5, decay="weights"),
    schedule=AmoebanetDecay(mode="exponential", warmup_epochs=0.35, decay=0.88),
    loss=CrossEntropy(label_smoothing=0.1, smooth_evaluation=True),
    aux_weight=0.4,
    ema=Ema(decay=0.9999),
    epochs=35,
    precision=Precision(scale_start=2.0**32, scale_grow_every=1000, scale_shrink_after=2),
    checkpoint=Checkpoint(every_steps=1251, every_minutes=0),
    log=Log(format="tf"),
    expects=Top1(75.6, within=0.5),
)
