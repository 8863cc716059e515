"""viaduct launch"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from viaduct.cluster.environment import DEFAULT_JOB, DEFAULT_PORT, Target, check_port
from viaduct.cluster.findings import counted
from viaduct.cluster.launch import (
    MAX_RESTARTS,
    TIMEOUT_S,
    Place,
    Show,
    check_log_dir,
    from_nodes,
    from_table,
    quiet_import,
    resolve,
    run_cluster,
)
from viaduct.cluster.plan import DEFAULT_INNER_LINK, DEFAULT_LINK, DEFAULT_TFLOPS
from viaduct.cluster.ranktable import read
from viaduct.cluster.rules import Card
from viaduct.cluster.scripts import Kind
from viaduct.cluster.secret import find_secret
from viaduct.errors import BadValue

if TYPE_CHECKING:
    from viaduct.cluster.plan import Cluster, Plan, Workload
    from viaduct.models.layers import LayerSizes

PLAN_ONLY = ("servers", "devices", "batch", "link", "inner_link", "step_ms", "tflops", "as_json")
SLOTS = {"Sgd": 1, "Lars": 1, "Thor": 1, "AdamW": 2, "RmsProp": 2}
"""fp32 numbers that an optimizer keeps for each parameter; THOR's factors come on top."""
HINT = "What follows `--` is the command's own: `… -- python my_script.py --epochs 3`."
NEITHER = "Give --ranktable FILE, or --ranks N (of each machine) and, for several machines, --nodes and --rdzv."


class Command(typer.core.TyperCommand):
    """Knows that a flag it does not know may be the launched command's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return list(super().parse_args(ctx, args))
        except Exception as error:  # of click, which typer 0.12 imports and later ones contain
            if type(error).__name__ == "NoSuchOption" and "--" not in words:
                vars(error)["hint"] = HINT  # usage.py adds it
            raise


def main(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: train RECIPE …, python SCRIPT …, or any executable.", show_default=False),
    ] = None,
    ranktable: Annotated[Path | None, typer.Option(help="The rank table of the cluster.", metavar="FILE")] = None,
    server: Annotated[
        str | None, typer.Option(help="Which server of the table this is.", show_default="found by its addresses")
    ] = None,
    card: Annotated[
        Card | None, typer.Option(help="Whose rules the table must keep.", show_default="by --target")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Machines.", min=1)] = 1,
    ranks: Annotated[int | None, typer.Option(help="Ranks of each machine.", show_default=False, min=1)] = None,
    rdzv: Annotated[
        str | None,
        typer.Option(
            help=f"Where the machines meet: one of them. Without :PORT it is {DEFAULT_PORT}.",
            metavar="HOST:PORT",
            show_default=False,
        ),
    ] = None,
    node_rank: Annotated[
        int | None, typer.Option(help="This machine's number, from 0.", show_default="as they come", min=0)
    ] = None,
    port: Annotated[int, typer.Option(help="With --ranktable: where its first server is met.")] = DEFAULT_PORT,
    job: Annotated[str, typer.Option(help="JOB_ID, the same on all machines.")] = DEFAULT_JOB,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the job's secret, the same on all machines.",
            metavar="FILE",
            show_default="VIADUCT_JOB_SECRET",
        ),
    ] = None,
    target: Annotated[
        Kind | None,
        typer.Option(help="The devices that must be there, or that scripts are for.", show_default="as --device says"),
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(help="So often all ranks are started again after one has failed.", min=0)
    ] = MAX_RESTARTS,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the other machines.", min=1)] = TIMEOUT_S,
    log_dir: Annotated[
        Path | None, typer.Option(help="Where ranks that do not speak here write.", show_default="a temporary one")
    ] = None,
    show: Annotated[Show, typer.Option(help="Whose output is shown: each machine's first rank's, or all.")] = "first",
    write_scripts: Annotated[
        Path | None,
        typer.Option(help="Start nothing; write scripts, container and Kubernetes files there.", metavar="DIR"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --write-scripts: replace what is there.")] = False,
    plan: Annotated[
        str | None, typer.Option(help="Start nothing; predict step time and memory.", metavar="RECIPE")
    ] = None,
    servers: Annotated[int, typer.Option(help="With --plan: servers.", min=1)] = 1,
    devices: Annotated[int, typer.Option(help="With --plan: devices of each.", min=1)] = 8,
    batch: Annotated[
        int | None, typer.Option(help="With --plan: global batch.", show_default="the recipe's", min=1)
    ] = None,
    link: Annotated[
        float, typer.Option(help="With --plan: GB/s out of a server, each way.", metavar="GB/s")
    ] = DEFAULT_LINK,
    inner_link: Annotated[
        float, typer.Option(help="With --plan: GB/s of a device within its server.", metavar="GB/s")
    ] = DEFAULT_INNER_LINK,
    step_ms: Annotated[
        float | None,
        typer.Option(help="With --plan: a step of one device, measured at its share of the batch.", metavar="MS"),
    ] = None,
    tflops: Annotated[
        float, typer.Option(help="With --plan, without --step-ms: TFLOP/s that a device sustains.")
    ] = DEFAULT_TFLOPS,
    as_json: Annotated[bool, typer.Option("--json", help="With --plan: as JSON.")] = False,
) -> None:
    """Start this machine's ranks of a job, under torch's elastic agent; or write scripts, or predict.

    Run the same command on every machine. A rank that fails is named, and all are started again from the last
    checkpoint; exit code 2, a mistake, ends the job at once. Ctrl-C ends all ranks, a second one kills them.
    """
    if plan is not None:
        refuse_beside_plan(context)
        return show_plan(plan, servers, devices, batch, link, inner_link, step_ms, tflops, as_json)
    refuse_plan_flags(context)
    argv = command or []
    kind = target or device_of(argv)
    if write_scripts is not None:
        return write(write_scripts, argv, kind, ranktable, card, nodes, ranks, job, port, force)
    resolve(argv)
    if ranktable is None:
        refuse_table_flags(context, rdzv, port)
    place = find_place(
        ranktable, server, card, kind, nodes, ranks, rdzv, node_rank, port, job, find_secret(secret_file)
    )
    with quiet_import():
        check_devices(kind, place)
        finished = check_training(argv, place)
    if finished:
        return print("\n".join(finished), file=sys.stderr)
    if log_dir is not None:
        check_log_dir(log_dir)
    begin(place, argv, show)
    raise typer.Exit(run_cluster(argv, place, max_restarts=max_restarts, log_dir=log_dir, show=show, timeout=timeout))


def given(context: typer.Context, name: str) -> bool:
    """Whether it stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_plan_flags(context: typer.Context) -> None:
    for name in PLAN_ONLY:
        if given(context, name):
            flag = "--json" if name == "as_json" else "--" + name.replace("_", "-")
            raise BadValue(
                f"{flag} is for --plan RECIPE.", "On a cluster --nodes are the machines, --ranks their ranks."
            )


def refuse_beside_plan(context: typer.Context) -> None:
    """A plan starts and writes nothing: what says how to, was meant for something else."""
    for name in context.params:
        if name in ("plan", *PLAN_ONLY) or not given(context, name):
            continue
        if name == "command":
            raise BadValue(
                f"--plan starts nothing, but there is a command: {' '.join(context.params[name])[:80]}",
                "Leave it out, or leave out --plan.",
            )
        raise BadValue(
            f"--{name.replace('_', '-')} means nothing to --plan.",
            "The cluster that is planned: --servers N --devices M, with --link and --inner-link.",
        )


def refuse_table_flags(context: typer.Context, rdzv: str | None, port: int) -> None:
    """What a rank table would make sense of, and a --rdzv that nobody else comes to."""
    check_port(port)
    if given(context, "port"):
        say = f"Write it into --rdzv: {rdzv.rpartition(':')[0] or rdzv}:{port}." if rdzv else NEITHER
        raise BadValue("--port is for --ranktable.", say)
    if rdzv is not None and not given(context, "nodes"):
        raise BadValue(f"how many machines meet at {rdzv}?", "Give --nodes N, the same on all of them.")


def check_training(argv: list[str], place: Place) -> list[str]:
    """Refuse what `train` would; and if its run has finished, what there is to say of it."""
    words = argv[1:] if argv[0] == "viaduct" else argv
    if words[:1] != ["train"] or {"--help", "--list"} & set(words):
        return []
    from viaduct.verbs.train import check

    ranks = place.table.size if place.table else place.ranks * len(place.names)
    finished = check(words[1:], ranks, place.ranks, first=place.node == 0)
    return [] if place.host else finished  # other machines wait for our ranks, which will say so


def device_of(argv: list[str]) -> Kind | None:
    """What the command itself says: `train … --device npu`."""
    kinds: dict[str, Kind] = {"npu": "npu", "mlu": "mlu", "cuda": "cuda", "cpu": "cpu"}
    said = [after for word, after in pairwise(argv) if word == "--device"]
    said += [word.partition("=")[2] for word in argv if word.startswith("--device=")]
    return kinds.get(said[-1]) if said else None


def visible(kind: Kind | None) -> Target | None:
    return kind if kind is not None and kind != "cpu" else None


def find_place(
    ranktable: Path | None,
    server: str | None,
    card: Card | None,
    kind: Kind | None,
    nodes: int,
    ranks: int | None,
    rdzv: str | None,
    node_rank: int | None,
    port: int,
    job: str,
    secret: str,
) -> Place:
    if ranktable is not None:
        for flag, given in (("--rdzv", rdzv), ("--node-rank", node_rank), ("--nodes", nodes - 1 or None)):
            if given is not None:
                raise BadValue(f"{flag} and --ranktable: the table says where the servers meet, and who is who.")
        place = from_table(
            read(ranktable, card_for(card, kind)),
            server=server,
            port=port,
            job=job,
            target=visible(kind),
            secret=secret,
        )
        if ranks not in (None, place.ranks):
            raise BadValue(f"--ranks is {ranks}, but {ranktable} gives this server {counted(place.ranks, 'device')}.")
        return place
    if server is not None:
        raise BadValue("--server is for --ranktable.", NEITHER)
    if ranks is None:
        raise BadValue("how many ranks?", NEITHER)
    return from_nodes(nodes, ranks, rdzv, node=node_rank, job=job, secret=secret)


def card_for(card: Card | None, kind: Kind | None) -> Card:
    return card or ("ascend-910" if kind in (None, "npu") else "other")


def check_devices(kind: Kind | None, place: Place) -> None:
    """Better said once, here, than by every rank."""
    target = visible(kind)
    if target is None:
        return
    from viaduct import devices as rooms
    from viaduct.devices.base import check_index

    device = rooms.get(target)
    numbers = [place.ranks - 1]
    if place.table is not None:
        mine = place.table.servers[place.node or 0]
        numbers = [one.device_id for one in mine.devices]
    check_index(target, max(numbers), device.count(), device.missing())


def begin(place: Place, argv: list[str], show: Show) -> None:
    where = f" on {place.name}, one of {len(place.names)} servers" if place.host else ""
    hidden = "; rank 0 of them is shown here (--show all: every one)" if place.ranks > 1 and show == "first" else ""
    print(f"{counted(place.ranks, 'rank')}{where}{hidden}", file=sys.stderr, flush=True)
    if place.hosts_store and not place.secret:
        told = f"Note: the job has no secret; whoever reaches {place.host}:{place.port} can disturb it."
        print(
            f"{told} VIADUCT_JOB_SECRET or --secret-file, on all machines, gives it one.", file=sys.stderr, flush=True
        )


def write(
    folder: Path,
    argv: list[str],
    kind: Kind | None,
    ranktable: Path | None,
    card: Card | None,
    nodes: int,
    ranks: int | None,
    job: str,
    port: int,
    force: bool,
) -> None:
    from viaduct.cluster.scripts import Job, write_all

    if kind is None:
        raise BadValue("scripts for which devices?", "Give --target npu, mlu, cuda or cpu.")
    if not argv:
        raise BadValue("scripts for which command?", "Write it after --: `… -- train RECIPE --data DIR`.")
    table = read(ranktable, card_for(card, kind)) if ranktable else None
    if table is not None and (nodes > 1 or ranks is not None):
        raise BadValue("--ranktable says how many servers and ranks there are; leave out --nodes and --ranks.")
    written = write_all(folder, Job(argv, kind, nodes, ranks or 8, table, job, port), force)
    for path, meaning in written.items():
        print(f"{path}  {meaning}")


def show_plan(
    recipe: str,
    servers: int,
    devices: int,
    batch: int | None,
    link: float,
    inner_link: float,
    step_ms: float | None,
    tflops: float,
    as_json: bool,
) -> None:
    from viaduct.cluster.plan import Cluster, predict

    cluster = Cluster(servers, devices, link, inner_link, step_ms, tflops)
    plan = predict(workload_of(recipe, batch), cluster)
    if as_json:
        print(json.dumps(plan.as_dict(), indent=1))
    else:
        print_plan(recipe, plan, cluster)


def workload_of(name: str, batch: int | None) -> Workload:
    from viaduct.cluster.plan import Layer, Workload
    from viaduct.models import checked_classes
    from viaduct.models.catalogue import entries
    from viaduct.models.layers import read_layers
    from viaduct.recipes import load

    recipe = load(name).recipe
    if not isinstance(recipe.model, str):
        raise BadValue(f"{name} builds its own network, whose sizes are not known.", "`viaduct models` lists ours.")
    network, classes = read_layers(recipe.model), checked_classes(recipe.data.classes)
    area = (recipe.data.size / entries()[recipe.model].input_size) ** 2
    compute = recipe.precision.compute
    return Workload(
        layers=[Layer(*costs(layer, classes, area)) for layer in network],
        global_batch=batch or recipe.data.global_batch,
        accumulate=recipe.accumulate,
        gradient_bytes=4 if recipe.parallel.compress == "none" else 2,
        compute_bytes=4 if compute in ("fp32", "O0") else 2,
        optimizer_slots=SLOTS.get(type(recipe.optimizer).__name__, 1),
        half_copy=compute in ("O2", "O3"),
        average=recipe.ema is not None,
        bucket_mb=recipe.parallel.bucket_mb,
    )


def costs(layer: LayerSizes, classes: int, area: float) -> tuple[int, int, int]:
    """Return parameters, multiplications and outputs; what has a height and a width grows with the image's area."""
    scale = area if layer.is_spatial else 1.0
    return layer.parameters.at(classes), round(layer.macs.at(classes) * scale), round(layer.outputs.at(classes) * scale)


def print_plan(name: str, plan: Plan, cluster: Cluster) -> None:
    measured = cluster.step_ms is not None
    speed = f"measured, {cluster.step_ms:g} ms" if measured else f"assumed, {cluster.tflops:g} TFLOP/s sustained"
    rows = [
        ("devices", f"{plan.ranks} ({counted(plan.servers, 'server')} of {plan.devices})"),
        ("pictures", f"{plan.batch_per_device} a device, in each step"),
        ("computing", f"{plan.compute_ms:.2f} ms ({speed})"),
        ("gradients", f"{plan.gradient_bytes / 1e6:.1f} MB in {counted(len(plan.buckets), 'bucket')}"),
        (
            "sent",
            f"{plan.sent_inner_bytes / 1e6:.1f} MB within the server, {plan.sent_outer_bytes / 1e6:.1f} MB out of it, "
            "by each device",
        ),
        ("all-reduce", f"{plan.communication_ms:.2f} ms, of which {plan.exposed_ms:.2f} ms are not hidden"),
        ("step", f"{plan.step_ms:.2f} ms, {plan.images_per_second:,.0f} pictures/s"),
        ("efficiency", f"{plan.efficiency:.1%}"),
        (
            "memory",
            f"{sum(plan.memory_bytes.values()) / 2**30:.2f} GiB a device: "
            + ", ".join(f"{what} {size / 2**30:.2f}" for what, size in plan.memory_bytes.items() if size),
        ),
    ]
    print(f"{name}, predicted (links: {cluster.inner_link:g} GB/s within a server, {cluster.link:g} GB/s out of it)")
    for what, text in rows:
        print(f"  {what:<11} {text}")
