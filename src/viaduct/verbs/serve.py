"""viaduct serve"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from viaduct.errors import BadValue
from viaduct.extras import require
from viaduct.verbs._option_flags import with_option_flags
from viaduct.verbs._recipe_changes import DeviceOption
from viaduct.verbs._weights import PrecisionOption, WeightsArgument, WeightsOptions, open_classifier

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@with_option_flags
def main(
    weights: WeightsArgument,
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.", min=0, max=65535)] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen at. 0.0.0.0: every machine that reaches this one may use it.")
    ] = "127.0.0.1",
    name: Annotated[
        str | None, typer.Option(help="Name of the model in addresses.", show_default="the network's")
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(help="Largest batch of the network.", min=1, max=4096, show_default="16; on a card 64")
    ] = None,
    latency_budget: Annotated[
        float,
        typer.Option(help="Milliseconds from arrival to answer within which requests may wait for a batch.", min=0.0),
    ] = 50.0,
    queue: Annotated[
        int, typer.Option(help="Largest number of images waiting for an answer; further requests get 503.", min=1)
    ] = 256,
    max_bytes: Annotated[int, typer.Option(help="Largest body of a request in bytes.", min=1)] = 32 << 20,
    max_pixels: Annotated[int, typer.Option(help="Largest number of pixels in a request.", min=1)] = 1 << 26,
    device: DeviceOption = "auto",
    precision: PrecisionOption = None,
    *,
    options: WeightsOptions,
    access_log: Annotated[
        Path | None,
        typer.Option(help="Append a JSON line for each request to this file.", metavar="FILE", show_default="stderr"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Write no access log.")] = False,
) -> None:
    """Serve a trained classifier over HTTP: the Open Inference Protocol v2, POST /predict, and a page to try it.

    Clients of the protocol, such as Triton's for HTTP, need no change. SIGTERM and Ctrl-C end the server when accepted
    requests are answered, after 30 s at most. There is no encryption and no authentication, so by default only this
    machine can reach the server.

    \b
    viaduct serve runs/try1 --port 8000
    curl --data-binary @photo.jpg -H 'Content-Type: image/jpeg' 'http://127.0.0.1:8000/predict?top=3'
    """
    if quiet and access_log is not None:
        raise BadValue("--quiet writes no access log, and --access-log names one.", "Leave one of them out.")
    require("torch", "uvicorn", "starlette", "prometheus_client", "python_multipart")
    from viaduct.handover.serving.server import Address, bind_socket, choose_name, open_log

    log = None if quiet else open_log(access_log)
    listener = bind_socket(Address(host, port))
    address = Address(host, listener.getsockname()[1])
    classifier = open_classifier(weights, options)
    model = choose_name(name, classifier)
    from viaduct.devices import pick
    from viaduct.handover.engine import build_engine
    from viaduct.handover.folding_effect import draw_sample, measure_effect
    from viaduct.handover.serving.limits import Limits
    from viaduct.handover.serving.server import build_server

    kind = pick(device)[1].type
    images = max_batch or (16 if kind == "cpu" else 64)
    engine = build_engine(classifier, device, precision, batch=images)
    effect = measure_effect(engine, draw_sample(classifier, device, precision)) if engine.folded else engine.note
    print(effect, file=sys.stderr)
    limits = Limits(
        max_batch=images, latency_budget=latency_budget / 1000, queue=queue, max_bytes=max_bytes, max_pixels=max_pixels
    )

    trained = "" if classifier.step is None else f", step {classifier.step:,}"
    folded = ", batch norms folded," if engine.folded else ""

    def print_ready() -> None:
        print(
            f"Serving {model} ({len(classifier.labels)} classes{trained}) on {kind} in {engine.precision}{folded} "
            f"at {address.url}",
            flush=True,
        )

    if host not in LOOPBACK:
        print(
            f"--host {host}: anyone who reaches port {address.port} of this machine can use the model; "
            "there is no authentication and no encryption.",
            file=sys.stderr,
        )
    server = build_server(classifier, engine.run, name=model, limits=limits, log=log, on_ready=print_ready)
    server.run([listener])
    print(f"Stopped: {server.server_state.total_requests:,} requests received.", file=sys.stderr)
