"""Costs of a recipe's training step for `viaduct launch plan`, and the output of the prediction."""

from __future__ import annotations

from viaduct.cluster.findings import format_count
from viaduct.cluster.plan import Cluster, Layer, Plan, Workload
from viaduct.errors import BadValue
from viaduct.models import check_classes
from viaduct.models.catalogue import LayerSizes, find_entry
from viaduct.recipes import load


def build_workload(name: str, batch: int | None) -> Workload:
    """Return the costs of a training step of the recipe `name`; `batch` replaces its global batch."""
    recipe = load(name).recipe
    if not isinstance(recipe.model, str):
        raise BadValue(f"{name} builds its own network, whose sizes are not known.", "`viaduct models` lists ours.")
    network, classes = find_entry(recipe.model), check_classes(recipe.data.classes)
    area_ratio = (recipe.data.size / network.input_size) ** 2
    compute = recipe.precision.compute
    return Workload(
        layers=[make_layer(layer, classes, area_ratio) for layer in network.layers],
        global_batch=batch or recipe.data.global_batch,
        accumulate=recipe.accumulate,
        gradient_bytes=4 if recipe.parallel.compress == "none" else 2,
        compute_bytes=4 if compute in ("fp32", "O0") else 2,
        optimizer_slots=recipe.optimizer_slots,
        half_copy=compute in ("O2", "O3"),  # a copy of the weights in half precision
        average=recipe.ema is not None,  # averaged weights
        bucket_mb=recipe.parallel.bucket_mb,
    )


def make_layer(layer: LayerSizes, classes: int, area_ratio: float) -> Layer:
    """Return the costs of a layer; `area_ratio`: the images' area relative to that of the network's standard input."""
    scale = area_ratio if layer.is_spatial else 1.0
    multiplications, outputs = layer.macs.at(classes) * scale, layer.outputs.at(classes) * scale
    return Layer(layer.parameters.at(classes), round(multiplications), round(outputs))


def print_plan(name: str, plan: Plan, cluster: Cluster) -> None:
    measured = cluster.step_ms is not None
    speed = f"measured, {cluster.step_ms:g} ms" if measured else f"assumed, {cluster.tflops:g} TFLOP/s sustained"
    rows = [
        ("devices", f"{plan.ranks} ({format_count(plan.servers, 'server')} of {plan.devices})"),
        ("images", f"{plan.batch_per_device} a device, in each step"),
        ("computing", f"{plan.compute_ms:.2f} ms ({speed})"),
        ("gradients", f"{plan.gradient_bytes / 1e6:.1f} MB in {format_count(len(plan.buckets), 'bucket')}"),
        (
            "sent",
            f"{plan.sent_inner_bytes / 1e6:.1f} MB within the server, {plan.sent_outer_bytes / 1e6:.1f} MB out of it, "
            "by each device",
        ),
        ("all-reduce", f"{plan.communication_ms:.2f} ms, of which {plan.exposed_ms:.2f} ms are not hidden"),
        ("step", f"{plan.step_ms:.2f} ms, {plan.images_per_second:,.0f} images/s"),
        ("efficiency", f"{plan.efficiency:.1%}"),
        (
            "memory",
            f"{sum(plan.memory_bytes.values()) / 2**30:.2f} GiB a device: "
            + ", ".join(f"{purpose} {size / 2**30:.2f}" for purpose, size in plan.memory_bytes.items() if size),
        ),
    ]
    print(f"{name}, predicted (links: {cluster.inner_link:g} GB/s within a server, {cluster.link:g} GB/s out of it)")
    for label, text in rows:
        print(f"  {label:<11} {text}")
