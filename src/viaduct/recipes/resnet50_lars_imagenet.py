"""ResNet-50 v1 on ImageNet-1k in batches of 8192 with LARS: `enable_lars` of TensorFlow's official models (r1).

The schedule knows the batch: peak 10 for 8192 (5 below, 25 from 16384, 32 from 32768), five epochs of warm-up, then a
square down to 1e-4 over ninety epochs. `--lr` multiplies all of it. On one card work through the batch in parts. The
reference publishes no figure for it.

    viaduct train resnet50_lars_imagenet --data records/ --accumulate 32
"""

from viaduct.recipes import Lars, LarsPolynomial, Records, replace
from viaduct.recipes.resnet50_imagenet import recipe as resnet50

recipe = replace(
    resnet50,
    data=Records(global_batch=8192, eval_batch=256, size=224, preprocess="official"),
    optimizer=Lars(lr=1.0, momentum=0.9, weight_decay=1e-4, form="contrib"),
    schedule=LarsPolynomial(),
    expects=None,
)
