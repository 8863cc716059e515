"""viaduct launch"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from viaduct.cluster.environment import DEFAULT_JOB, DEFAULT_PORT, Target, check_port
from viaduct.cluster.findings import format_count
from viaduct.cluster.launch import (
    MAX_RESTARTS,
    TIMEOUT_S,
    NodeShare,
    Show,
    create_log_dir,
    quiet_import,
    resolve_command,
    run_cluster,
    share_from_nodes,
    share_from_table,
)
from viaduct.cluster.links import format_endpoint, parse_endpoint
from viaduct.cluster.plan import DEFAULT_INNER_LINK, DEFAULT_LINK, DEFAULT_TFLOPS
from viaduct.cluster.ranktable import read_table
from viaduct.cluster.rules import Card
from viaduct.cluster.scripts import Kind
from viaduct.cluster.secret import find_secret
from viaduct.errors import BadValue
from viaduct.usage import find_flag_value
from viaduct.verbs._grouped_help import AsJson, DefaultGroup, GroupedCommand, Subcommands
from viaduct.verbs._recipe_changes import RecipeArgument

OLD_FLAGS = {"--plan": "plan", "--write-scripts": "scripts"}  # former flag -> the subcommand that replaces it
COMMAND_HINT = "What follows `--` is the command's own: `… -- python my_script.py --epochs 3`."
HOW_MANY_RANKS = "Give --ranktable FILE, or --ranks N (of each machine) and, for several machines, --nodes and --rdzv."
HELP = """Start this machine's ranks of a job under torch's elastic agent: `viaduct launch --ranks 8 -- train RECIPE`.

Run the same command on every machine. If a rank fails, viaduct names it and starts all ranks again, at most
--max-restarts times; `train` resumes from its last checkpoint. Exit code 2, a user's mistake, ends the job at once.
Ctrl-C ends all ranks, a second one kills them.
"""


class StartByDefault(DefaultGroup):
    """Group whose subcommand `start` may be left out, and which replaces OLD_FLAGS by their subcommands."""

    default = "start"

    def prepend_subcommand(self, arguments: list[str]) -> list[str]:
        """Return the arguments behind a subcommand: their own, the one that replaces an old flag, or `start`."""
        if arguments and arguments[0] in self.commands:
            return arguments
        for index, argument in enumerate(drop_command(arguments)):
            flag, equals, value = argument.partition("=")
            before, after = arguments[:index], arguments[index + 1 :]
            if flag in OLD_FLAGS and (equals or after):
                return [OLD_FLAGS[flag], *before, *([value] if equals else []), *after]
        return [self.default, *arguments]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments behind their subcommand; print a notice if an old flag was given."""
        flags = drop_command(args)
        if "--help" in flags and not (flags[0] in self.commands or set(flags) & set(OLD_FLAGS)):
            return super().parse_args(ctx, args)
        arguments = self.prepend_subcommand(args)
        for flag, name in OLD_FLAGS.items():
            if arguments[0] == name and args[:1] != [name]:
                new = f"viaduct launch {name} {'RECIPE' if name == 'plan' else 'DIR'}"
                print(f"viaduct launch: {flag} is now `{new}`; the next release removes the flag.", file=sys.stderr)
        return super().parse_args(ctx, arguments)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS] -- COMMAND, or plan RECIPE, or scripts DIR"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Show the flags that start ranks, then the subcommands."""
        self.commands[self.default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def drop_command(arguments: list[str]) -> list[str]:
    """Return the arguments before `--`, without the command to be launched."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


class StartCommand(GroupedCommand):
    """Command whose error about an unknown flag points out that the launched command belongs after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        original = list(args)  # the parser consumes args
        try:
            return list(super().parse_args(ctx, args))
        except Exception as error:  # click's NoSuchOption, which newer typer releases define themselves
            if type(error).__name__ == "NoSuchOption" and "--" not in original:
                vars(error)["hint"] = COMMAND_HINT  # usage.py adds it to the message
            raise


app = Subcommands(HELP, cls=StartByDefault, no_args_is_help=False)
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        help="After --: train RECIPE …, python SCRIPT …, or any executable.", show_default=False, metavar="[-- COMMAND]"
    ),
]
RankTable = Annotated[Path | None, typer.Option(help="Rank table of the cluster.", metavar="FILE")]
CardOption = Annotated[
    Card | None, typer.Option(help="Card whose rules the rank table must follow.", show_default="by --target")
]
Nodes = Annotated[int, typer.Option(help="Number of machines.", min=1)]
JobName = Annotated[str, typer.Option(help="JOB_ID, the same on all machines.")]


@app.command("start", cls=StartCommand, hidden=True, help=HELP)
def start(
    context: typer.Context,
    command: Arguments = None,
    ranktable: RankTable = None,
    server: Annotated[
        str | None, typer.Option(help="This machine's server in the table.", show_default="found by its addresses")
    ] = None,
    card: CardOption = None,
    nodes: Nodes = 1,
    ranks: Annotated[int | None, typer.Option(help="Ranks of each machine.", show_default=False, min=1)] = None,
    rdzv: Annotated[
        str | None,
        typer.Option(
            help=f"Rendezvous address: one of the machines. Without :PORT it is {DEFAULT_PORT}.",
            metavar="HOST:PORT",
            show_default=False,
        ),
    ] = None,
    node_rank: Annotated[
        int | None, typer.Option(help="Number of this machine, from 0.", show_default="in order of arrival", min=0)
    ] = None,
    port: Annotated[int, typer.Option(help="With --ranktable: rendezvous port on its first server.")] = DEFAULT_PORT,
    job: JobName = DEFAULT_JOB,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the job's secret, the same on all machines.",
            metavar="FILE",
            show_default="VIADUCT_JOB_SECRET",
        ),
    ] = None,
    target: Annotated[
        Kind | None, typer.Option(help="Devices that must be present.", show_default="the command's --device")
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(help="Number of times that all ranks are started again after one has failed.", min=0)
    ] = MAX_RESTARTS,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the other machines.", min=1)] = TIMEOUT_S,
    log_dir: Annotated[
        Path | None, typer.Option(help="Folder for the output of ranks not shown here.", show_default="a temporary one")
    ] = None,
    show: Annotated[Show, typer.Option(help="Output shown here: each machine's first rank, or all.")] = "first",
) -> None:
    argv = command or []
    kind = target or find_device(argv)
    resolve_command(argv)
    if ranktable is None:
        refuse_table_flags(context, rdzv, port)
    share = find_share(
        ranktable, server, card, kind, nodes, ranks, rdzv, node_rank, port, job, find_secret(secret_file)
    )
    with quiet_import():
        check_devices(kind, share)
        finished = check_training(argv, share)
    if finished:
        return print("\n".join(finished), file=sys.stderr)
    if log_dir is not None:
        create_log_dir(log_dir)
    announce_ranks(share, argv, show)
    raise typer.Exit(run_cluster(argv, share, max_restarts=max_restarts, log_dir=log_dir, show=show, timeout=timeout))


@app.command("scripts", short_help="Write start scripts, also for Slurm; start nothing.")
def write_scripts(
    folder: Annotated[Path, typer.Argument(help="Folder for the files.", metavar="DIR")],
    command: Arguments = None,
    target: Annotated[
        Kind | None, typer.Option(help="Devices that the scripts are for.", show_default="the command's --device")
    ] = None,
    ranktable: RankTable = None,
    card: CardOption = None,
    nodes: Nodes = 1,
    ranks: Annotated[int | None, typer.Option(help="Ranks of each machine.", show_default="8", min=1)] = None,
    port: Annotated[int, typer.Option(help="With --ranktable: rendezvous port on its first server.")] = DEFAULT_PORT,
    job: JobName = DEFAULT_JOB,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> None:
    """Write start scripts for a job, also for Slurm, containers and Kubernetes; nothing is started.

    viaduct launch scripts job/ --target npu --ranktable rank_table_16p.json -- train resnet50_imagenet --data /data
    """
    from viaduct.cluster.scripts import Job, write_all

    argv = command or []
    kind = target or find_device(argv)
    if kind is None:
        raise BadValue("scripts for which devices?", "Give --target npu, mlu, cuda or cpu.")
    if not argv:
        raise BadValue("scripts for which command?", "Write it after --: `… -- train RECIPE --data DIR`.")
    table = read_table(ranktable, choose_card(card, kind)) if ranktable else None
    if table is not None and (nodes > 1 or ranks is not None):
        raise BadValue("--ranktable says how many servers and ranks there are; leave out --nodes and --ranks.")
    written = write_all(folder, Job(argv, kind, nodes, ranks or 8, table, job, port), force)
    for path, meaning in written.items():
        print(f"{path}  {meaning}")


@app.command("plan", short_help="Predict step time, scaling and memory; start nothing.")
def predict_scaling(
    recipe: RecipeArgument,
    servers: Annotated[int, typer.Option(help="Number of servers.", min=1)] = 1,
    devices: Annotated[int, typer.Option(help="Devices of each server.", min=1)] = 8,
    batch: Annotated[int | None, typer.Option(help="Global batch.", show_default="the recipe's", min=1)] = None,
    link: Annotated[float, typer.Option(help="Bandwidth out of a server, each way.", metavar="GB/s")] = DEFAULT_LINK,
    inner_link: Annotated[
        float, typer.Option(help="Bandwidth of a device within its server.", metavar="GB/s")
    ] = DEFAULT_INNER_LINK,
    step_ms: Annotated[
        float | None, typer.Option(help="Measured step time of one device at its share of the batch.", metavar="MS")
    ] = None,
    tflops: Annotated[float, typer.Option(help="Without --step-ms: TFLOP/s that a device sustains.")] = DEFAULT_TFLOPS,
    as_json: AsJson = False,
) -> None:
    """Predict step time, scaling efficiency and memory of a recipe on a cluster; nothing is started.

    viaduct launch plan resnet50_imagenet --servers 16 --batch 8192 --step-ms 150
    """
    from viaduct.cluster.plan import Cluster, predict_step
    from viaduct.verbs._launch_plan import build_workload, print_plan

    cluster = Cluster(servers, devices, link, inner_link, step_ms, tflops)
    plan = predict_step(build_workload(recipe, batch), cluster)
    if as_json:
        print(json.dumps(plan.as_dict(), indent=1))
    else:
        print_plan(recipe, plan, cluster)


def is_on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_table_flags(context: typer.Context, rdzv: str | None, port: int) -> None:
    """Raise BadValue for --port, which needs a rank table, and for --rdzv without --nodes."""
    check_port(port)
    if is_on_command_line(context, "port"):
        hint = HOW_MANY_RANKS
        if rdzv:
            hint = f"Write it into --rdzv: {format_endpoint(parse_endpoint(rdzv, DEFAULT_PORT)[0], port)}."
        raise BadValue("--port is for --ranktable.", hint)
    if rdzv is not None and not is_on_command_line(context, "nodes"):
        raise BadValue(f"how many machines meet at {rdzv}?", "Give --nodes N, the same on all of them.")


def check_training(argv: list[str], share: NodeShare) -> list[str]:
    """Raise the errors that `viaduct train` would raise; if the run has finished, return train's lines about it."""
    command = argv[1:] if argv[0] == "viaduct" else argv
    if command[:1] != ["train"] or {"--help", "--list"} & set(command):
        return []
    from viaduct.verbs.train import check_command

    ranks = share.table.size if share.table else share.ranks * len(share.names)
    finished = check_command(command[1:], ranks, share.ranks, has_rank_0=share.node == 0)
    return [] if share.host else finished  # with several machines the ranks must start: other machines wait for them


def find_device(argv: list[str]) -> Kind | None:
    """Return the value of --device in a command such as `train … --device npu`; None if it is missing or unknown."""
    kinds: dict[str, Kind] = {"npu": "npu", "mlu": "mlu", "cuda": "cuda", "cpu": "cpu"}
    return kinds.get(find_flag_value(["--device"], argv) or "")


def get_accelerator(kind: Kind | None) -> Target | None:
    """Return the kind of device unless it is unknown or the CPU."""
    return kind if kind is not None and kind != "cpu" else None


def find_share(
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
) -> NodeShare:
    """Return this machine's share of the job, from the rank table or else from --nodes, --ranks and --rdzv."""
    if ranktable is not None:
        given = {"--rdzv": rdzv is not None, "--node-rank": node_rank is not None, "--nodes": nodes > 1}
        for flag, is_given in given.items():
            if is_given:
                raise BadValue(f"{flag} and --ranktable: the table says where the servers meet, and who is who.")
        share = share_from_table(
            read_table(ranktable, choose_card(card, kind)),
            server=server,
            port=port,
            job=job,
            target=get_accelerator(kind),
            secret=secret,
        )
        if ranks not in (None, share.ranks):
            raise BadValue(
                f"--ranks is {ranks}, but {ranktable} gives this server {format_count(share.ranks, 'device')}."
            )
        return share
    if server is not None:
        raise BadValue("--server is for --ranktable.", HOW_MANY_RANKS)
    if ranks is None:
        raise BadValue("how many ranks?", HOW_MANY_RANKS)
    return share_from_nodes(nodes, ranks, rdzv, node=node_rank, job=job, secret=secret)


def choose_card(card: Card | None, kind: Kind | None) -> Card:
    """Return the card whose rules a rank table must follow; without --card, the one for the device."""
    return card or ("ascend-910" if kind in (None, "npu") else "other")


def check_devices(kind: Kind | None, share: NodeShare) -> None:
    """Raise an error if this machine lacks one of the devices that the ranks need."""
    target = get_accelerator(kind)
    if target is None:
        return
    from viaduct import devices
    from viaduct.devices.base import check_index

    device = devices.get(target)
    highest = share.ranks - 1
    if share.table is not None:
        highest = max(entry.device_id for entry in share.table.servers[share.node or 0].devices)
    check_index(target, highest, device.count_cards(), device.find_problem())


def announce_ranks(share: NodeShare, argv: list[str], show: Show) -> None:
    """Print the number of ranks; warn on the server of the rendezvous if the job has no secret."""
    server = f" on {share.name}, one of {len(share.names)} servers" if share.host else ""
    shown = "; output of the first is shown here (--show all: of all)" if share.ranks > 1 and show == "first" else ""
    print(f"{format_count(share.ranks, 'rank')}{server}{shown}", file=sys.stderr, flush=True)
    if share.hosts_store and not share.secret:
        endpoint = format_endpoint(share.host, share.port)
        print(
            f"Note: the job has no secret; anyone who can reach {endpoint} can disturb it. "
            "VIADUCT_JOB_SECRET or --secret-file, on all machines, gives it one.",
            file=sys.stderr,
            flush=True,
        )
