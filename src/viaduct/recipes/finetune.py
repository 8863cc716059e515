"""Any classifier, started from trained weights, on images of one's own: AdamW at a low rate under a cosine.

`--model` names the network: one of viaduct's, `timm:NAME`, `torchvision:NAME` or `package.module:function`; without it
`resnet50_v15` is trained. Images are prepared as the network's own package prepares them. If the number of classes
differs from that of the trained weights, the last layer starts from random weights; `--freeze 'all but head'` trains
that layer alone.

    viaduct train finetune --model timm:convnext_tiny --data records/ --init pretrained.safetensors
"""

from viaduct.recipes import AdamW, Checkpoint, Cosine, CrossEntropy, Recipe, Records

recipe = Recipe(
    model="resnet50_v15",
    data=Records(global_batch=128, size=224, classes=1000, label_shift=-1, preprocess="source"),
    optimizer=AdamW(lr=1e-4, weight_decay=0.05, decay="weights"),
    schedule=Cosine(warmup_epochs=1),
    loss=CrossEntropy(label_smoothing=0.1),
    epochs=20,
    clip_norm=1.0,
    checkpoint=Checkpoint(every_minutes=10, keep=3),
)
