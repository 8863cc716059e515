"""A trained classifier behind HTTP: the Open Inference Protocol, `POST /predict`, a page to try it in the browser.

open_inference.py   requests and responses of the protocol, JSON and binary
uploads.py          bodies read within limits of size, time and memory
intake.py           encoded images, pixels and tensors to the network's input
batching.py         the thread that owns the network, and which requests share a batch
connections.py      how many connections there may be, and how slow
metrics.py          /metrics for Prometheus
access_log.py       a JSON line for each request
page.py             the page: HTML, CSS and JavaScript in one answer
app.py              the routes
server.py           socket, warm-up, signals
"""
