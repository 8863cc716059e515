"use strict";
// Sends the chosen image to /predict and shows the answer. A newer image replaces one that is under way.

const find = (name) => document.getElementById(name);
const zone = find("zone"), result = find("result"), image = find("image");
let underWay = null, address = "";

function showError(text) {
  find("status").textContent = "";
  find("error").textContent = text;
  find("error").hidden = text === "";
  if (text !== "") result.hidden = true;
}

function showImage(file) {
  if (address !== "") URL.revokeObjectURL(address);
  address = URL.createObjectURL(file);
  find("no-preview").hidden = true;
  image.hidden = false;
  image.alt = file.name ? `The chosen image, ${file.name}` : "The chosen image";
  image.src = address;
}

image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth < 192));
image.addEventListener("error", () => { image.hidden = true; find("no-preview").hidden = false; });

function buildRow(prediction) {
  const item = document.createElement("li"), row = document.createElement("div");
  row.className = "row";
  const percent = `${(100 * prediction.probability).toFixed(1)} %`;
  for (const text of [prediction.label, percent]) {
    const span = document.createElement("span");
    span.textContent = text;
    row.append(span);
  }
  const meter = document.createElement("div"), bar = document.createElement("span");
  meter.className = "meter";
  meter.setAttribute("aria-hidden", "true");
  bar.style.width = `${Math.max(0.5, 100 * prediction.probability)}%`;
  meter.append(bar);
  item.append(row, meter);
  return item;
}

async function explain(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `the server answered with status ${response.status}.`;
  }
}

async function classify(file) {
  if (underWay) underWay.abort();
  const request = underWay = new AbortController();
  showError("");
  showImage(file);
  find("status").textContent = "Classifying …";
  result.classList.add("waiting");
  const start = performance.now();
  try {
    const response = await fetch("predict?top=5", {
      method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" }, signal: request.signal,
    });
    if (!response.ok) throw new Error(await explain(response));
    const { predictions } = await response.json();
    if (request !== underWay) return;
    find("predictions").replaceChildren(...predictions.map(buildRow));
    result.hidden = false;
    result.classList.remove("waiting");
    const [first] = predictions;
    find("status").textContent =
      `${first.label}, ${(100 * first.probability).toFixed(1)} %, after ${Math.round(performance.now() - start)} ms.`;
  } catch (error) {
    if (request !== underWay) return;
    const lost = error instanceof TypeError;
    showError(lost ? "The server cannot be reached. Is it still running?" : `Not classified: ${error.message}`);
  }
}

for (const name of ["file", "camera"]) {
  find(name).addEventListener("change", (event) => {
    const [file] = event.target.files;
    event.target.value = ""; // so that the same file can be chosen again
    if (file) classify(file);
  });
}

function takeFrom(transfer) {
  const file = [...(transfer?.files ?? [])][0];
  if (file) classify(file);
  else showError("Not classified: what was given is not a file. Save the image first, then choose it.");
}

addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) zone.classList.remove("over"); });
addEventListener("drop", (event) => {
  event.preventDefault();
  zone.classList.remove("over");
  takeFrom(event.dataTransfer);
});
addEventListener("paste", (event) => takeFrom(event.clipboardData));

find("command").textContent = find("command").textContent.replace("http://127.0.0.1:8000/", new URL(".", location).href);
