"""The application: routes of the Open Inference Protocol, /predict, /metrics and the page."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from viaduct import __version__
from viaduct.errors import is_out_of_memory
from viaduct.handover.classifier import Classifier
from viaduct.handover.serving.access_log import AccessLog
from viaduct.handover.serving.batching import Batcher, Probabilities
from viaduct.handover.serving.intake import prepare_images, prepare_request
from viaduct.handover.serving.limits import Limits, Refusal
from viaduct.handover.serving.metrics import Metrics
from viaduct.handover.serving.open_inference import (
    EXTENSIONS,
    HEADER_LENGTH,
    VERSION,
    build_response,
    describe_model,
    parse_request,
    rank_classes,
)
from viaduct.handover.serving.page import render_page
from viaduct.handover.serving.uploads import UploadMemory, discard_body, find_file_part, read_body

LINGER_SECONDS = 2.0  # how long the body of a refused request is still read
Result = TypeVar("Result")
Handler = Callable[[Request], Awaitable[Response]]


class Service:
    """State shared by the routes: the classifier, its batcher, limits and counters."""

    def __init__(
        self, classifier: Classifier, name: str, batcher: Batcher, limits: Limits, metrics: Metrics, decoders: int
    ) -> None:
        self.classifier = classifier
        self.name = name
        self.batcher = batcher
        self.limits = limits
        self.metrics = metrics
        self.uploads = UploadMemory(limits)
        self.decoders = ThreadPoolExecutor(decoders, thread_name_prefix="decode")
        self.in_flight = 0  # number of images that are accepted and not answered
        self.stopping = False

    def accept(self, images: int) -> None:
        """Count images as accepted; raise Refusal if the queue is too full."""
        if self.in_flight + images > self.limits.queue:
            seconds = self.batcher.estimate_seconds(self.limits.max_batch) * self.in_flight / self.limits.max_batch
            raise Refusal(
                503, f"{self.in_flight:,} images are waiting already.", retry_after=max(1, math.ceil(seconds))
            )
        self.add_in_flight(images)

    def add_in_flight(self, images: int) -> None:
        """Add a number, negative for answered images, to the images in flight."""
        self.in_flight += images
        self.metrics.queued.set(self.in_flight)

    async def classify(
        self, request: Request, prepare: Callable[[], tuple[Result, torch.Tensor]]
    ) -> tuple[Result, Probabilities]:
        """Run `prepare` in a decoding thread, then the network; raise Refusal if its outputs are not finite.

        `prepare` returns a pair: any value, and the network's input. Return that value and the probabilities.
        """
        self.accept(1)
        accepted = 1
        try:
            start = time.monotonic()
            with self.batcher.count_decoding():
                context, inputs = await asyncio.get_running_loop().run_in_executor(self.decoders, prepare)
                seconds = time.monotonic() - start
                self.accept(len(inputs) - 1)
                accepted = len(inputs)
                job = self.batcher.submit(inputs)
            probabilities = await job.answer
        finally:
            self.add_in_flight(-accepted)
        self.metrics.preprocess.observe(seconds)
        timing = job.timing
        self.metrics.queue.observe(timing.queue)
        request.state.notes = {
            "images": len(inputs),
            "preprocess_ms": round(1e3 * seconds, 2),
            "queue_ms": round(1e3 * timing.queue, 2),
            "network_ms": round(1e3 * timing.network, 2),
            "batch": timing.batch,
        }
        if not np.isfinite(probabilities).all():
            raise Refusal(400, "the network's outputs for this input are not finite.")
        return context, probabilities


def answer_json(content: Any, status: int = 200, **headers: str) -> Response:
    return Response(json.dumps(content, allow_nan=False).encode(), status, headers, "application/json")


class Routes:
    """Handlers of the requests; each takes a Request and returns a Response."""

    def __init__(self, service: Service) -> None:
        classifier = service.classifier
        self.service, self.classifier, self.limits = service, classifier, service.limits
        self.metadata = describe_model(service.name, classifier.size, len(classifier.labels))
        self.page, self.page_headers = render_page(service.name, len(classifier.labels), classifier.size)

    def list_routes(self) -> list[Route]:
        handlers: list[tuple[str, Handler, str]] = [
            ("/", self.show_page, "GET"),
            ("/v2", self.describe_server, "GET"),
            ("/v2/health/live", self.report_live, "GET"),
            ("/v2/health/ready", self.report_ready, "GET"),
            ("/predict", self.predict, "POST"),
            ("/metrics", self.show_metrics, "GET"),
        ]
        for prefix in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            handlers += [
                (prefix, self.describe_model, "GET"),
                (prefix + "/ready", self.report_ready, "GET"),
                (prefix + "/infer", self.infer, "POST"),
            ]
        return [Route(path, label_route(path, handler), methods=[method]) for path, handler, method in handlers]

    def check_model(self, request: Request) -> None:
        """Raise Refusal for a model or version that this server does not have."""
        name, version = request.path_params["model"], request.path_params.get("version", VERSION)
        if name != self.service.name:
            raise Refusal(404, f"there is no model '{name[:60]}'; this server has '{self.service.name}'.")
        if version != VERSION:
            raise Refusal(404, f"model '{name}' has no version '{version[:20]}'; it has '{VERSION}'.")

    async def describe_server(self, request: Request) -> Response:
        return answer_json({"name": "viaduct", "version": __version__, "extensions": EXTENSIONS})

    async def report_live(self, request: Request) -> Response:
        return answer_json({"live": True})

    async def report_ready(self, request: Request) -> Response:
        if "model" in request.path_params:
            self.check_model(request)
        return answer_json({"ready": not self.service.stopping}, 503 if self.service.stopping else 200)

    async def describe_model(self, request: Request) -> Response:
        self.check_model(request)
        return answer_json(self.metadata)

    async def infer(self, request: Request) -> Response:
        """Answer a request of the Open Inference Protocol."""
        self.check_model(request)
        with self.service.uploads.reserve() as reservation:
            body = await read_body(request, self.limits, reservation)
            header_length = request.headers.get(HEADER_LENGTH)

            def prepare() -> tuple[Any, torch.Tensor]:
                parsed = parse_request(body, header_length, self.limits)
                return parsed, prepare_request(parsed, self.classifier, self.limits)

            parsed, probabilities = await self.service.classify(request, prepare)
        content, headers = build_response(parsed, self.service.name, probabilities, self.classifier.labels)
        return Response(content, 200, headers)

    async def predict(self, request: Request) -> Response:
        """Answer a request whose body is an image, or a form with one."""
        top = read_top(request, len(self.classifier.labels))
        content_type = request.headers.get("content-type", "application/octet-stream")
        kind = content_type.partition(";")[0].strip().lower()
        if not (kind.startswith("image/") or kind in ("application/octet-stream", "multipart/form-data", "")):
            raise Refusal(
                415,
                f"Content-Type {kind[:60]!r}: send the image itself as image/* or application/octet-stream "
                "(curl --data-binary @photo.jpg -H 'Content-Type: image/jpeg'), or as the part 'file' of a form.",
            )
        with self.service.uploads.reserve() as reservation:
            body = await read_body(request, self.limits, reservation)

            def prepare() -> tuple[None, torch.Tensor]:
                image = find_file_part(body, content_type) if kind == "multipart/form-data" else body
                return None, prepare_images([image], self.classifier, self.limits)

            _, probabilities = await self.service.classify(request, prepare)
        row = probabilities[0]
        predictions = [
            {"label": self.classifier.labels[index], "index": index, "probability": float(row[index])}
            for index in rank_classes(row, top)
        ]
        return answer_json({"model": self.service.name, "predictions": predictions})

    async def show_metrics(self, request: Request) -> Response:
        return Response(self.service.metrics.render(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def show_page(self, request: Request) -> Response:
        return Response(self.page, headers=self.page_headers)


def build_app(service: Service, log: AccessLog | None) -> ASGIApp:
    """Return the application that uvicorn runs."""
    app = Starlette(
        routes=Routes(service).list_routes(),
        exception_handlers={
            Refusal: partial(answer_refusal, service.limits),
            HTTPException: partial(answer_unknown, service.limits),
            ClientDisconnect: answer_disconnected,
            Exception: answer_failure,
        },
    )
    app.router.redirect_slashes = False  # a redirect would contain the client's Host header
    return MeasuredApp(app, service, log)


def label_route(path: str, handler: Handler) -> Handler:
    """Return a handler that stores the route's pattern in the request, for the metrics."""

    async def handle(request: Request) -> Response:
        request.state.route = path
        return await handler(request)

    return handle


def read_top(request: Request, classes: int) -> int:
    """Return the requested number of predictions, at most the number of classes."""
    texts = request.query_params.getlist("top") or ["5"]
    if len(texts) > 1:
        raise Refusal(400, f"top is given {len(texts):,} times; give it once.")
    text = texts[0]
    if not (text.isascii() and text.isdigit() and text.strip("0")):
        raise Refusal(400, f"top is {text[:20]!r}; it must be a whole number from 1 on.")
    return classes if len(text.lstrip("0")) > 9 else min(int(text), classes)


async def answer_refusal(limits: Limits, request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    headers = {}
    if refusal.retry_after is not None:
        headers["retry-after"] = str(refusal.retry_after)
    return answer_error(request, refusal.message, refusal.status, headers, limits)


def answer_error(request: Request, message: str, status: int, headers: dict[str, str], limits: Limits) -> Response:
    """Return an error response; if the body was not read, the response also closes the connection."""
    if request.method in ("GET", "HEAD") or getattr(request.state, "body_read", False):
        return answer_json({"error": message}, status, **headers)
    return LingeringResponse({"error": message}, status, headers, request, limits)


class LingeringResponse(Response):
    """Error response that closes the connection after reading the rest of the body for a while.

    If the connection closed at once, a client that is still sending might never see the response.
    """

    def __init__(self, content: Any, status: int, headers: dict[str, str], request: Request, limits: Limits) -> None:
        super().__init__(json.dumps(content).encode(), status, {**headers, "connection": "close"}, "application/json")
        self.request = request
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        if "expect" not in self.request.headers:
            await discard_body(self.request, LINGER_SECONDS, self.limits.max_bytes)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def answer_unknown(limits: Limits, request: Request, error: Exception) -> Response:
    """Answer a request for a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    messages = {404: "there is nothing at this path", 405: f"this path does not take {request.method}"}
    message = messages.get(error.status_code, error.detail)
    return answer_error(request, f"{message}.", error.status_code, dict(error.headers or {}), limits)


async def answer_disconnected(request: Request, error: Exception) -> Response:
    """Return status 499, which only the access log and the metrics show: the client disconnected early."""
    return Response(status_code=499)


async def answer_failure(request: Request, error: Exception) -> Response:
    """Answer a request that failed because of an error of the server."""
    if is_out_of_memory(error):
        return answer_json({"error": "the device has not enough memory for this batch."}, 503, **{"retry-after": "1"})
    return answer_json({"error": "the server failed; its log says why."}, 500)


class MeasuredApp:
    """Application with metrics and a line in the access log for each request."""

    def __init__(self, app: ASGIApp, service: Service, log: AccessLog | None) -> None:
        self.app = app
        self.service = service
        self.log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        start, status, sent = time.monotonic(), 0, 0
        state = scope.setdefault("state", {})
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def send_counted(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                now = formatdate(usegmt=True).encode()  # uvicorn's is the time at which the request began
                message = {**message, "headers": [*message.get("headers", []), (b"date", now)]}
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive_counted, send_counted)
        finally:
            seconds = time.monotonic() - start
            route = state.get("route", "other")
            metrics = self.service.metrics
            metrics.responses.labels(route, str(status)).inc()
            if route.endswith(("infer", "predict")):
                metrics.total.observe(seconds)
            if self.log is not None:
                self.log.add(
                    client=(scope.get("client") or ("",))[0],
                    method=scope["method"],
                    path=scope["path"],
                    status=status,
                    bytes_in=received,
                    bytes_out=sent,
                    total_ms=round(1e3 * seconds, 2),
                    **state.get("notes", {}),
                )
