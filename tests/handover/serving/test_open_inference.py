"""The Open Inference Protocol: responses to malformed requests, and to Triton's client."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import numpy as np
import pytest
import torch

httpx = pytest.importorskip("httpx", reason="the tests of serve need httpx")

from .conftest import NAME, Running, draw, encode  # noqa: E402

PNG = encode(draw())
FLAT = [0.5] * (3 * 32 * 32)


def tensor(name: str = "images", datatype: str = "FP32", shape: Any = (1, 3, 32, 32), **rest: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape) if isinstance(shape, tuple) else shape, **rest}


def infer(served: Running, content: bytes, **headers: str) -> httpx.Response:
    return served.client.post(f"/v2/models/{NAME}/infer", content=content, headers=headers)


def infer_json(served: Running, request: Any) -> httpx.Response:
    return infer(served, json.dumps(request).encode())


def infer_binary(served: Running, request: Any, data: bytes, length: str | None = None) -> httpx.Response:
    head = json.dumps(request).encode()
    return infer(served, head + data, **{"Inference-Header-Content-Length": length or str(len(head))})


MALFORMED: dict[str, Any] = {
    "no inputs": {},
    "inputs that are no array": {"inputs": {"name": "images"}},
    "an empty list of inputs": {"inputs": []},
    "two inputs": {"inputs": [tensor(data=FLAT), tensor(data=FLAT)]},
    "an input that is no object": {"inputs": ["images"]},
    "an unknown input": {"inputs": [tensor("x", data=FLAT)]},
    "a name that is no string": {"inputs": [tensor(3, data=FLAT)]},  # type: ignore[arg-type]
    "another datatype": {"inputs": [tensor(datatype="FP64", data=FLAT)]},
    "a datatype that is no string": {"inputs": [tensor(datatype={}, data=FLAT)]},  # type: ignore[arg-type]
    "no shape": {"inputs": [{"name": "images", "datatype": "FP32", "data": FLAT}]},
    "a shape that is no array": {"inputs": [tensor(shape="1", data=FLAT)]},
    "a shape with a fraction": {"inputs": [tensor(shape=[1.0, 3, 32, 32], data=FLAT)]},
    "a shape with a truth value": {"inputs": [tensor(shape=[True, 3, 32, 32], data=FLAT)]},
    "a negative shape": {"inputs": [tensor(shape=[-1, 3, 32, 32], data=FLAT)]},
    "no images": {"inputs": [tensor(shape=[0, 3, 32, 32], data=[])]},
    "another size": {"inputs": [tensor(shape=[1, 3, 16, 16], data=[0.5] * 768)]},
    "a rank of three": {"inputs": [tensor(shape=[3, 32, 32], data=FLAT)]},
    "a shape of a thousand numbers": {"inputs": [tensor(shape=[1] * 1000, data=[1])]},
    "a huge shape": {"inputs": [tensor("pixels", "UINT8", (1, 2**30, 2**30, 3), data=[1])]},
    "a shape beyond 64 bits": {"inputs": [tensor(shape=[1, 2**80, 1, 1], data=[1])]},
    "no data": {"inputs": [tensor()]},
    "data that are no array": {"inputs": [tensor(data=0.5)]},
    "too few numbers": {"inputs": [tensor(data=FLAT[:-1])]},
    "text among the numbers": {"inputs": [tensor(data=["0.5", *FLAT[1:]])]},
    "null among the numbers": {"inputs": [tensor(data=[None, *FLAT[1:]])]},
    "an object among the numbers": {"inputs": [tensor(data=[{}, *FLAT[1:]])]},
    "truth values": {"inputs": [tensor(data=[True] * len(FLAT))]},
    "a truth value among numbers": {"inputs": [tensor("pixels", "UINT8", (1, 1, 1, 3), data=[True, 0, 255])]},
    "a truth value in a nested list": {"inputs": [tensor("pixels", "UINT8", (1, 1, 1, 3), data=[[[[0, False, 255]]]])]},
    "lists of unequal length": {"inputs": [tensor(data=[[1, 2], [3]])]},
    "another nested shape": {"inputs": [tensor(data=[FLAT[: len(FLAT) // 2], FLAT[: len(FLAT) // 2]])]},
    "numbers beyond FP32": {"inputs": [tensor(data=[1e39, *FLAT[1:]])]},
    "numbers beyond FP64": {"inputs": [tensor(data=[10**400, *FLAT[1:]])]},
    "pixels above 255": {"inputs": [tensor("pixels", "UINT8", (1, 1, 1, 3), data=[0, 0, 256])]},
    "negative pixels": {"inputs": [tensor("pixels", "UINT8", (1, 1, 1, 3), data=[0, 0, -1])]},
    "pixels with fractions": {"inputs": [tensor("pixels", "UINT8", (1, 1, 1, 3), data=[0, 0, 0.5])]},
    "pixels with four channels": {"inputs": [tensor("pixels", "UINT8", (1, 1, 1, 4), data=[0, 0, 0, 0])]},
    "an image that is not base64": {"inputs": [tensor("image_bytes", "BYTES", (1,), data=["ÿØÿà"])]},
    "an image that is a number": {"inputs": [tensor("image_bytes", "BYTES", (1,), data=[1])]},
    "two images where the shape says one": {"inputs": [tensor("image_bytes", "BYTES", (1,), data=["", ""])]},
    "an empty image": {"inputs": [tensor("image_bytes", "BYTES", (1,), data=[""])]},
    "base64 of what is no image": {"inputs": [tensor("image_bytes", "BYTES", (1,), data=["aGVsbG8="])]},
    "an id that is a number": {"id": 3, "inputs": [tensor(data=FLAT)]},
    "parameters that are a list": {"parameters": [1], "inputs": [tensor(data=FLAT)]},
    "binary_data_output that is a number": {"parameters": {"binary_data_output": 1}, "inputs": [tensor(data=FLAT)]},
    "a binary size without binary data": {"inputs": [tensor(parameters={"binary_data_size": 12288})]},
    "a binary size that is text": {"inputs": [tensor(parameters={"binary_data_size": "12288"})]},
    "a negative binary size": {"inputs": [tensor(parameters={"binary_data_size": -1})]},
    "both data and a binary size": {"inputs": [tensor(parameters={"binary_data_size": 0}, data=FLAT)]},
    "shared memory": {"inputs": [tensor(parameters={"shared_memory_region": "/etc/passwd"})]},
    "an unknown output": {"inputs": [tensor(data=FLAT)], "outputs": [{"name": "logits"}]},
    "an output twice": {"inputs": [tensor(data=FLAT)], "outputs": [{"name": "labels"}, {"name": "labels"}]},
    "outputs that are an object": {"inputs": [tensor(data=FLAT)], "outputs": {"name": "labels"}},
    "outputs that are an empty object": {"inputs": [tensor(data=FLAT)], "outputs": {}},
    "an output that is no object": {"inputs": [tensor(data=FLAT)], "outputs": ["labels"]},
    "negative classification": {
        "inputs": [tensor(data=FLAT)],
        "outputs": [{"name": "labels", "parameters": {"classification": -1}}],
    },
    "a list": [],
    "a string": "inputs",
    "a number": 3,
    "null": None,
}


def check_refused(response: httpx.Response, status: int = 400) -> str:
    assert response.status_code == status, response.text
    answer = response.json()
    assert list(answer) == ["error"]
    assert answer["error"]
    assert "Traceback" not in answer["error"]
    return str(answer["error"])


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_request_is_refused_with_a_reason(what: str, served: Running) -> None:
    check_refused(infer_json(served, MALFORMED[what]))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"{'inputs': 1}", b'{"inputs": NaN}', b"9" * 5000, b"\x00", PNG],
    ids=["nothing", "cut short", "not UTF-8", "deep", "quotes", "NaN", "digits", "NUL", "an image"],
)
def test_what_is_not_json_is_refused(text: bytes, served: Running) -> None:
    assert "JSON" in check_refused(infer(served, text))


def test_a_number_of_thousands_of_digits_is_refused_without_advice_about_python(served: Running) -> None:
    assert "sys." not in check_refused(infer(served, b'{"inputs": ' + b"9" * 5000 + b"}"))


def test_null_is_called_null(served: Running) -> None:
    assert check_refused(infer(served, b"null")) == "the request must be an object; it is null."


@pytest.mark.parametrize("length", ["0", "-1", "abc", "1e3", "999999999", "9" * 30, "³"])
def test_a_wrong_header_length_is_refused(length: str, served: Running) -> None:
    content = json.dumps({"inputs": [tensor(data=FLAT)]}).encode()
    name = b"Inference-Header-Content-Length"
    head = f"POST /v2/models/{NAME}/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()
    head += name + b": " + length.encode() + b"\r\nContent-Length: " + str(len(content)).encode() + b"\r\n\r\n"
    answer = served.exchange(head + content)
    assert answer.startswith(b"HTTP/1.1 400")


def bytes_tensor(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([1], PNG),
        ([1], bytes_tensor(PNG)[:-1]),
        ([2], bytes_tensor(PNG)),
        ([1], bytes_tensor(PNG, PNG)),
        ([1], b"\xff\xff\xff\xff" + PNG),
        ([1], bytes_tensor(PNG) + b"\0\0"),
        ([1], b""),
    ],
    ids=["no length", "cut short", "one of two", "two of one", "huge length", "left over", "nothing"],
)
def test_malformed_binary_elements_are_refused(shape: list[int], data: bytes, served: Running) -> None:
    described = tensor("image_bytes", "BYTES", shape, parameters={"binary_data_size": len(data)})
    check_refused(infer_binary(served, {"inputs": [described]}, data))


def test_bytes_after_the_binary_data_are_refused(served: Running) -> None:
    described = tensor(parameters={"binary_data_size": 12288})
    assert "follow" in check_refused(infer_binary(served, {"inputs": [described]}, bytes(12289)))
    assert "follow" in check_refused(infer_binary(served, {"inputs": [described]}, bytes(12287)))


def test_binary_values_that_are_not_finite_are_refused(served: Running) -> None:
    values = np.full((1, 3, 32, 32), np.nan, "<f4").tobytes()
    described = tensor(parameters={"binary_data_size": len(values)})
    assert "finite" in check_refused(infer_binary(served, {"inputs": [described]}, values))


def test_too_many_images_are_refused_by_the_shape(served: Running) -> None:
    request = {"inputs": [tensor(shape=[65, 3, 32, 32], data=[1])]}
    assert "65 images" in check_refused(infer_json(served, request), 413)


def test_a_compressed_body_is_refused(served: Running) -> None:
    check_refused(infer(served, b"x", **{"Content-Encoding": "gzip"}), 415)


@pytest.mark.parametrize("path", ["/v2/models/other", f"/v2/models/{NAME}/versions/2", f"/v2/models/{NAME}/x", "/x"])
def test_what_does_not_exist_is_not_found(path: str, served: Running) -> None:
    check_refused(served.client.get(path), 404)
    assert served.client.post(f"{path}/infer", content=b"{}").status_code == 404


def test_json_answers_are_what_the_network_computes(served: Running) -> None:
    inputs = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 3, 32, 32)).astype(np.float32))
    with torch.inference_mode():
        expected = served.classifier.network(inputs).softmax(1).numpy()
    for data in (inputs.tolist(), inputs.reshape(-1).tolist()):
        answer = infer_json(served, {"id": "a", "inputs": [tensor(shape=[3, 3, 32, 32], data=data)]}).json()
        assert (answer["model_name"], answer["model_version"], answer["id"]) == (NAME, "1", "a")
        outputs = {output["name"]: output for output in answer["outputs"]}
        assert outputs["probabilities"]["shape"] == [3, 10]
        np.testing.assert_allclose(outputs["probabilities"]["data"], expected.reshape(-1), atol=1e-5)
        assert outputs["classes"]["data"] == expected.argmax(1).tolist()
        assert outputs["labels"]["data"] == [served.classifier.labels[index] for index in expected.argmax(1)]


def test_an_image_is_the_same_as_base64_and_as_pixels(served: Running) -> None:
    pixels = draw(seed=3)
    image = tensor("image_bytes", "BYTES", (1, 1), data=[base64.b64encode(encode(pixels)).decode()])
    decoded = tensor("pixels", "UINT8", (1, 32, 32, 3), data=[pixels.tolist()])
    outputs = [{"name": "probabilities"}]
    answers = [infer_json(served, {"inputs": [given], "outputs": outputs}).json() for given in (image, decoded)]
    first, second = (answer["outputs"][0]["data"] for answer in answers)
    np.testing.assert_allclose(first, second, atol=1e-6)


class TestTritonClient:
    """tritonclient, from NVIDIA, as a user would call it."""

    @pytest.fixture
    def client(self, served: Running) -> Any:
        http = pytest.importorskip("tritonclient.http", reason="pip install 'tritonclient[http]'")
        with http.InferenceServerClient(f"127.0.0.1:{served.port}") as client:
            yield client

    def test_it_finds_the_server_and_the_model(self, client: Any) -> None:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready(NAME)
        assert client.is_model_ready(NAME, "1")
        assert not client.is_model_ready("other")
        assert client.get_server_metadata()["name"] == "viaduct"
        metadata = client.get_model_metadata(NAME, "1")
        assert {entry["name"]: entry["shape"] for entry in metadata["inputs"]}["images"] == [-1, 3, 32, 32]

    @pytest.mark.parametrize("binary_input", [True, False])
    @pytest.mark.parametrize("binary_output", [True, False, None])
    def test_its_tensors_are_answered_as_the_network_does(
        self, client: Any, served: Running, binary_input: bool, binary_output: bool | None
    ) -> None:
        import tritonclient.http as http

        values = np.random.default_rng(2).normal(size=(2, 3, 32, 32)).astype(np.float32)
        given = http.InferInput("images", list(values.shape), "FP32")
        given.set_data_from_numpy(values, binary_data=binary_input)
        names = ("probabilities", "classes", "labels")
        wanted = [http.InferRequestedOutput(name, binary_data=binary_output) for name in names]
        result = client.infer(NAME, [given], outputs=None if binary_output is None else wanted, request_id="7")
        with torch.inference_mode():
            expected = served.classifier.network(torch.from_numpy(values)).softmax(1).numpy()
        np.testing.assert_allclose(result.as_numpy("probabilities"), expected, atol=1e-5)
        assert result.as_numpy("classes").tolist() == expected.argmax(1).tolist()
        labels = [text.decode() if isinstance(text, bytes) else text for text in result.as_numpy("labels")]
        assert labels == [served.classifier.labels[index] for index in expected.argmax(1)]
        assert result.get_response()["id"] == "7"

    def test_its_encoded_images_are_prepared_as_evaluation_does(self, client: Any, served: Running) -> None:
        import tritonclient.http as http

        images = [encode(draw(40, 50, seed), "JPEG") for seed in range(3)]
        given = http.InferInput("image_bytes", [3], "BYTES")
        given.set_data_from_numpy(np.array(images, dtype=object))
        result = client.infer(NAME, [given])
        inputs = torch.stack([torch.from_numpy(served.classifier.prepare(image)).permute(2, 0, 1) for image in images])
        with torch.inference_mode():
            expected = served.classifier.network(inputs).softmax(1).numpy()
        np.testing.assert_allclose(result.as_numpy("probabilities"), expected, atol=1e-5)

    def test_it_can_ask_for_the_most_probable_classes(self, client: Any, served: Running) -> None:
        import tritonclient.http as http

        given = http.InferInput("pixels", [1, 32, 32, 3], "UINT8")
        given.set_data_from_numpy(draw()[None])
        wanted = http.InferRequestedOutput("probabilities", class_count=3)
        (row,) = client.infer(NAME, [given], outputs=[wanted]).as_numpy("probabilities")
        values = [text.decode().split(":") for text in row]
        assert len(values) == 3
        assert [float(value) for value, _, _ in values] == sorted(
            (float(value) for value, _, _ in values), reverse=True
        )
        assert all(served.classifier.labels[int(index)] == label for _, index, label in values)

    def test_it_understands_what_is_refused(self, client: Any) -> None:
        import tritonclient.http as http
        from tritonclient.utils import InferenceServerException

        given = http.InferInput("images", [1, 3, 16, 16], "FP32")
        given.set_data_from_numpy(np.zeros((1, 3, 16, 16), np.float32))
        with pytest.raises(InferenceServerException, match="the network takes") as caught:
            client.infer(NAME, [given])
        assert caught.value.status() == "400"
