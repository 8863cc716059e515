"""Page of the server in a browser: an image chosen, dropped, pasted; wide and narrow; light and dark; by keyboard."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from reporting.browser import DevTools, browser, capture, complaints, evaluate, list_requests, needs_browser, prepare

from .conftest import Running, encode

pytestmark = [pytest.mark.browser, needs_browser]

LOOK = """
({
  rows: [...document.querySelectorAll("#predictions .row")].map((row) => [...row.children].map((it) => it.textContent)),
  bars: [...document.querySelectorAll(".meter span")].map((bar) => bar.offsetWidth / bar.parentElement.offsetWidth),
  shown: !document.getElementById("result").hidden,
  natural: document.getElementById("image").naturalWidth,
  preview: !document.getElementById("image").hidden,
  error: document.getElementById("error").hidden ? "" : document.getElementById("error").textContent,
  status: document.getElementById("status").textContent,
  wide: document.documentElement.scrollWidth,
  command: document.getElementById("command").textContent,
})
"""
# Gives a file to the page as a drop or a paste does.
GIVE = """
((kind, name, encoded) => {
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  if (name) transfer.items.add(new File([bytes], name, { type: "image/png" }));
  else transfer.items.add("some text", "text/plain");
  const event = kind === "drop"
    ? new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
    : new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true });
  document.body.dispatchEvent(event);
})
"""


def draw_shape() -> bytes:
    image = Image.new("RGB", (320, 240), (230, 233, 240))
    ImageDraw.Draw(image).ellipse((90, 50, 230, 190), fill=(200, 60, 50))
    return encode(image, "JPEG")


@contextmanager
def open_tab(url: str, width: int, dark: bool = False) -> Iterator[DevTools]:
    with browser() as tools:
        target = tools.call("Target.createTarget", url="about:blank")["targetId"]
        tools.session = tools.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        prepare(tools, width, dark, with_scripts=True)
        if width < 500:
            tools.call("Emulation.setTouchEmulationEnabled", enabled=True)
        tools.call("Page.navigate", url=url)
        tools.wait_for_event("Page.loadEventFired")
        yield tools


def look_until(tools: DevTools, condition: str) -> Any:
    script = f"""new Promise((done) => {{
      const look = () => {{ const now = {LOOK.strip()}; if ({condition}) done(now); else setTimeout(look, 20); }};
      look();
      setTimeout(() => done({LOOK.strip()}), 20000);
    }})"""
    return evaluate(tools, script)


def give_file(tools: DevTools, kind: str, name: str, content: bytes) -> None:
    words = [json.dumps(argument) for argument in (kind, name, base64.b64encode(content).decode())]
    evaluate(tools, f"{GIVE.strip()}({', '.join(words)})")


def choose(tools: DevTools, file: Path, identity: str = "file") -> None:
    root = tools.call("DOM.getDocument")["root"]["nodeId"]
    node = tools.call("DOM.querySelector", nodeId=root, selector=f"#{identity}")["nodeId"]
    tools.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])


def keep_screenshot(tools: DevTools, name: str, width: int) -> None:
    """Keep what the page looks like, where somebody wants to see it."""
    if folder := os.environ.get("VIADUCT_SCREENSHOTS"):
        Path(folder, f"{name}.png").write_bytes(capture(tools, width))


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1280, False), (1280, True)])
def test_a_chosen_image_is_shown_with_its_five_classes(served: Running, tmp_path: Path, width: int, dark: bool) -> None:
    file = tmp_path / "disc <b>.jpg"
    file.write_bytes(draw_shape())
    expected = served.client.post("/predict", content=file.read_bytes()).json()["predictions"]
    with open_tab(served.url, width, dark) as tools:
        keep_screenshot(tools, f"empty_{width}_{'dark' if dark else 'light'}", width)
        choose(tools, file)
        now = look_until(tools, "now.shown && now.natural > 0 && now.status.includes('ms')")
        keep_screenshot(tools, f"result_{width}_{'dark' if dark else 'light'}", width)
        assert [label for label, _ in now["rows"]] == [row["label"] for row in expected]
        for (_, percent), row, bar in zip(now["rows"], expected, now["bars"], strict=True):
            assert percent == f"{100 * row['probability']:.1f} %"
            assert bar == pytest.approx(row["probability"], abs=0.02)
        assert now["natural"] == 320
        assert now["wide"] <= width
        assert served.url in now["command"]
        assert complaints(tools) == []
        asked = {address for address in list_requests(tools) if not address.startswith(("data:", "blob:"))}
        assert asked == {f"{served.url}/", f"{served.url}/predict?top=5"}


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_an_image_can_be_dropped_and_pasted(served: Running, kind: str) -> None:
    with open_tab(served.url, 1280) as tools:
        give_file(tools, kind, "disc.jpg", draw_shape())
        assert len(look_until(tools, "now.shown && now.natural > 0")["rows"]) == 5
        assert complaints(tools) == []


def test_an_error_is_shown_until_the_next_image(served: Running) -> None:
    with open_tab(served.url, 390) as tools:
        give_file(tools, "drop", "notes.txt", b"no image at all")
        now = look_until(tools, "now.error !== ''")
        keep_screenshot(tools, "error_390_light", 390)
        assert "not an image of a known format" in now["error"]
        assert not now["shown"]
        give_file(tools, "drop", "", b"")
        assert "not a file" in look_until(tools, "now.error.includes('not a file')")["error"]
        give_file(tools, "drop", "disc.tiff", encode(Image.new("RGB", (40, 40)), "TIFF"))
        now = look_until(tools, "now.shown && !now.preview")
        assert (now["error"], len(now["rows"]), now["preview"]) == ("", 5, False)


def test_the_keyboard_reaches_the_file_dialog(served: Running) -> None:
    with open_tab(served.url, 1280) as tools:
        tools.call("Page.setInterceptFileChooserDialog", enabled=True)
        for kind in ("keyDown", "keyUp"):
            tools.call("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
        assert evaluate(tools, "document.activeElement.id") == "file"
        for kind in ("keyDown", "keyUp"):
            tools.call("Input.dispatchKeyEvent", type=kind, key=" ", text=" ", windowsVirtualKeyCode=32)
        tools.wait_for_event("Page.fileChooserOpened")


def test_the_camera_is_offered_on_phones_only(served: Running) -> None:
    visible = "getComputedStyle(document.querySelector('.camera')).display !== 'none'"
    with open_tab(served.url, 390) as tools:
        assert evaluate(tools, visible)
        assert evaluate(tools, "document.getElementById('camera').getAttribute('capture')") == "environment"
    with open_tab(served.url, 1280) as tools:
        assert not evaluate(tools, visible)
