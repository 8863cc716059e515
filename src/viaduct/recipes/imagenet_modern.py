"""Any classifier on ImageNet-1k as networks are trained today: AdamW, cosine, mixup, cutmix, RandAugment, EMA.

`--model` names the network: one of viaduct's, `timm:NAME`, `torchvision:NAME` or `package.module:function`; without it
`resnet50_v15` is trained. Size, mean, standard deviation, interpolation and crop of the images are those that the
network's own package uses, unless flags set them. The learning rate is 1e-3 for a batch of 1024. The settings are those
that published recipes have in common (timm's, ConvNeXt's, DeiT's); no accuracy has been measured with them here.

    viaduct train imagenet_modern --model timm:convnext_tiny --data records/
"""

from viaduct.recipes import AdamW, Checkpoint, Cosine, CrossEntropy, Ema, Recipe, Records

recipe = Recipe(
    model="resnet50_v15",
    data=Records(
        global_batch=1024,
        size=224,
        classes=1000,
        label_shift=-1,
        preprocess="source",
        auto_augment="randaugment-2-9",
    ),
    optimizer=AdamW(lr=1e-3, weight_decay=0.05, decay="weights"),
    schedule=Cosine(warmup_epochs=5, floor=1e-3),
    loss=CrossEntropy(label_smoothing=0.1),
    mixup=0.8,
    cutmix=1.0,
    epochs=300,
    ema=Ema(decay=0.9999),
    clip_norm=1.0,
    checkpoint=Checkpoint(every_minutes=10, keep=3),
)
