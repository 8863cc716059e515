"""HTTP server for a trained classifier: the Open Inference Protocol, `POST /predict`, a page for the browser.

open_inference.py   requests and responses of the protocol, in JSON and binary data
uploads.py          bodies read within limits of size, time and memory
intake.py           encoded images, pixels and tensors to the network's input
batching.py         the thread that runs the network, and the batching of requests
connections.py      limits on the number and the slowness of connections
metrics.py          /metrics for Prometheus
access_log.py       a JSON line for each request
page.py             the page: HTML, CSS and JavaScript in one response
app.py              the routes
server.py           socket, warm-up, signals
"""
