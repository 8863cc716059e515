// Script of every page: a switch for the theme, sorting of tables, read-outs for charts.
// Pages are readable without scripts, so this script adds all controls.
// `page` has the helpers for the scripts of larger parts (virtual_table.js, scatter_chart.js, …).
"use strict";
const page = (() => {
  const COLOURS = 6; // as in line_chart.py
  const NEAR = 0.06; // fraction of the axis within which a read-out shows a series' nearest point

  // Take the namespace of SVG from the browser, so that the page contains no address.
  const sample = document.createElement("template");
  sample.innerHTML = "<svg></svg>";
  const SVG = document.createElementNS.bind(document, sample.content.firstChild.namespaceURI);

  function make(tag, className, text = "") {
    const element = document.createElement(tag);
    element.className = className;
    element.textContent = text;
    return element;
  }

  // Return text that may break after separators, as allow_breaks in texts.py.
  function breakable(text) {
    const pieces = text.split(/(?<=[^./\\:_,=(\[-][./\\:_,=(\[-])(?=[^./\\:_,=(\[-])/);
    return pieces.flatMap((piece, place) => (place ? [document.createElement("wbr"), piece] : [piece]));
  }

  function draw(tag, attributes) {
    const element = SVG(tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    return element;
  }

  // Theme -------------------------------------------------------------------------------------------------------

  // Store a theme if one is given, and return the stored one; null if the browser refuses storage to files.
  function storeTheme(theme) {
    try {
      if (theme) localStorage.setItem("viaduct-theme", theme);
      return localStorage.getItem("viaduct-theme");
    } catch {
      return null;
    }
  }

  function offerThemes() {
    const root = document.documentElement;
    const system = matchMedia("(prefers-color-scheme: dark)");
    const button = make("button", "theme");
    button.type = "button";
    const other = () => ((root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark" ? "light" : "dark");
    const label = () => {
      button.textContent = other() === "dark" ? "Dark" : "Light";
      button.setAttribute("aria-label", `Switch to the ${other()} theme`);
    };
    const chosen = storeTheme();
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
    button.addEventListener("click", () => {
      root.dataset.theme = other();
      storeTheme(root.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    label();
    document.querySelector("header").append(button);
  }

  // Tables ------------------------------------------------------------------------------------------------------

  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

  function compareCells(a, b, numeric) {
    return numeric ? Number(a.dataset.order) - Number(b.dataset.order) || 0 : collator.compare(a.textContent, b.textContent);
  }

  function sortedRows(rows, column, numeric, direction) {
    if (direction === "none") return rows;
    const sign = direction === "ascending" ? 1 : -1;
    return [...rows].sort((first, second) => {
      const [a, b] = [first.cells[column], second.cells[column]];
      const missing = a.classList.contains("missing") - b.classList.contains("missing");
      return missing || sign * compareCells(a, b, numeric);
    });
  }

  function offerSorting(table) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const headings = [...table.tHead.rows[0].cells];
    if (original.length < 2) return;
    const isNumeric = (column) => headings[column].classList.contains("number");

    function sortBy(column, direction) {
      headings.forEach((each, place) => each.setAttribute("aria-sort", place === column ? direction : "none"));
      body.append(...(column < 0 ? original : sortedRows(original, column, isNumeric(column), direction)));
    }

    headings.forEach((heading, column) => {
      const button = make("button", "");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.replaceChildren(button);
      heading.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sortBy(column, NEXT[heading.getAttribute("aria-sort")]));
    });
    if (table.classList.contains("stacks")) offerSortList(table, headings, isNumeric, sortBy);
  }

  // On a phone, rows may be cards without headings to click.
  function offerSortList(table, headings, isNumeric, sortBy) {
    const [label, select] = [make("label", "sort-by", "Sort by"), make("select", "")];
    const option = (text, value) => Object.assign(make("option", "", text), { value });
    select.append(option("the order given", "-1 none"));
    headings.forEach((heading, column) => {
      const [up, down] = isNumeric(column) ? ["smallest first", "largest first"] : ["A to Z", "Z to A"];
      select.append(option(`${heading.textContent}, ${up}`, `${column} ascending`), option(`${heading.textContent}, ${down}`, `${column} descending`));
    });
    select.addEventListener("change", () => {
      const [column, direction] = select.value.split(" ");
      sortBy(Number(column), direction);
    });
    label.append(select);
    table.parentElement.before(label);
  }

  // Read-outs ---------------------------------------------------------------------------------------------------

  function formatNumber(value, precision = { maximumSignificantDigits: 10 }) {
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-4 || size >= 1e12)) return value.toExponential(3).replace("e-", "e−");
    return value.toLocaleString("en-US", precision);
  }

  function addReadout(frame) {
    const readout = make("div", "readout");
    readout.setAttribute("role", "status");
    readout.hidden = true;
    frame.append(readout);
    return readout;
  }

  function placeReadout(readout, frame, x, y) {
    // Beside the point, on the side with enough room.
    readout.hidden = false;
    const room = frame.clientWidth - readout.offsetWidth;
    const left = x + 14 > room ? x - 14 - readout.offsetWidth : x + 14;
    readout.style.left = `${Math.max(0, Math.min(left, room))}px`;
    readout.style.top = `${Math.max(0, Math.min(y, frame.clientHeight - readout.offsetHeight))}px`;
  }

  // Arrow keys, Home and End move a read-out between `count` stops; Escape, leaving and losing the focus hide it.
  function offerKeys(surface, count, current, show, hide) {
    surface.addEventListener("pointerleave", hide);
    surface.addEventListener("blur", hide);
    surface.addEventListener("keydown", (event) => {
      const [stop, last] = [current(), count - 1];
      const goal = { ArrowLeft: Math.max(0, stop - 1), ArrowRight: Math.min(last, stop + 1), Home: 0, End: last }[event.key];
      if (event.key === "Escape") hide();
      if (goal === undefined) return;
      event.preventDefault();
      show(goal);
    });
  }

  // Charts ------------------------------------------------------------------------------------------------------

  // Index of the value nearest to x; -1 without values.
  function nearest(values, x) {
    let best = -1;
    values.forEach((value, index) => {
      if (best < 0 || Math.abs(value - x) < Math.abs(values[best] - x)) best = index;
    });
    return best;
  }

  function chartReader(data, view) {
    const [low, high] = data.x;
    const scale = view.log ? Math.log10 : (value) => value;
    const [bottom, top] = view.y.map(scale);
    // Resolution of the read-out: a ten-thousandth of the axis.
    const decimals = Math.max(0, Math.min(15, 4 - Math.floor(Math.log10(top - bottom))));
    return {
      precision: view.log ? { maximumSignificantDigits: 5 } : { maximumFractionDigits: decimals },
      share: (x) => (x - low) / (high - low),
      height: (y) => 1 - (scale(y) - bottom) / (top - bottom),
      hasPlace: (y) => y !== null && !(view.log && y <= 0),
      stops: [...new Set(data.series.flatMap((series) => series.x))].sort((a, b) => a - b),
      at: (share) => low + share * (high - low),
    };
  }

  function offerCrosshair(chart, data, view, frame) {
    const reader = chartReader(data, view);
    const [plot, surface] = [frame.querySelector(".plot"), frame.querySelector(".surface")];
    const readout = addReadout(plot);
    const crosshair = SVG("g");
    const unit = data.unit ? `\u00a0${data.unit}` : "";
    let stop = -1;

    function show(index) {
      stop = index;
      const x = reader.stops[index];
      const share = reader.share(x);
      crosshair.replaceChildren(line(share));
      readout.replaceChildren(make("div", "where", `${chart.dataset.x} ${formatNumber(x)}`));
      data.series.forEach((series, position) => {
        const found = nearest(series.x, x);
        const near = found >= 0 && Math.abs(reader.share(series.x[found]) - share) < NEAR;
        readout.append(entry(series, position, near ? found : -1, x));
        if (near && reader.hasPlace(series.y[found])) crosshair.append(dot(series, position, found));
      });
      surface.append(crosshair);
      placeReadout(readout, plot, surface.getBoundingClientRect().left - plot.getBoundingClientRect().left + share * surface.clientWidth, 8);
    }

    function line(share) {
      const place = `${share * 100}%`;
      return draw("line", { class: "crosshair", x1: place, x2: place, y1: 0, y2: "100%" });
    }

    function dot(series, position, index) {
      const [cx, cy] = [reader.share(series.x[index]), reader.height(series.y[index])].map((share) => `${share * 100}%`);
      return draw("circle", { class: `line-${position % COLOURS}`, cx, cy, r: 4.5 });
    }

    function entry(series, position, index, x) {
      const element = make("div", `entry line-${position % COLOURS}`);
      const elsewhere = index >= 0 && series.x[index] !== x ? ` at ${formatNumber(series.x[index])}` : "";
      const name = make("span", "", series.name);
      name.append(make("span", "aside", elsewhere));
      const value = index >= 0 ? series.y[index] : undefined;
      element.append(name, make("b", "", value === undefined ? "–" : value === null ? "none" : formatNumber(value, reader.precision) + unit));
      return element;
    }

    function hide() {
      readout.hidden = true;
      crosshair.remove();
      stop = -1;
    }

    // For live.js, which restores the read-out after an update.
    frame.reading = { at: () => (stop < 0 ? null : reader.stops[stop]), read: (x) => show(nearest(reader.stops, x)) };
    surface.addEventListener("pointermove", (event) => {
      const box = surface.getBoundingClientRect();
      show(nearest(reader.stops, reader.at((event.clientX - box.left) / box.width)));
    });
    offerKeys(surface, reader.stops.length, () => stop, show, hide);
  }

  function offerScales(chart, data, frames) {
    const button = make("button", "scale");
    button.type = "button";
    const label = () => {
      const next = data.views[frames.findIndex((frame) => frame.hidden)];
      button.textContent = next.log ? "Log scale" : "Linear scale";
      button.setAttribute("aria-label", `Show ${chart.querySelector("h3").textContent} on a ${button.textContent.toLowerCase()}`);
    };
    button.addEventListener("click", () => {
      frames.forEach((frame) => (frame.hidden = !frame.hidden));
      label();
    });
    label();
    chart.querySelector("figcaption").append(button);
  }

  function offerReading(chart) {
    const data = JSON.parse(chart.querySelector("script").textContent);
    if (data.series.every((series) => series.y.every((y) => y === null))) return;
    const frames = [...chart.querySelectorAll(".view")];
    frames.forEach((frame, place) => offerCrosshair(chart, data, data.views[place], frame));
    if (frames.length > 1) offerScales(chart, data, frames);
  }

  // Large heatmaps ----------------------------------------------------------------------------------------------

  function offerCells(heatmap) {
    const data = JSON.parse(heatmap.querySelector("script").textContent);
    const [frame, image] = [heatmap.querySelector(".matrix"), heatmap.querySelector("img")];
    const readout = addReadout(frame);
    const side = data.labels.length;
    const cell = (offset, size) => Math.max(0, Math.min(side - 1, Math.floor((offset / size) * side)));

    function sentence(row, column) {
      const count = data.cells[row * side + column] ?? 0;
      const what = row === column ? `${data.labels[row]} recognised` : `${data.labels[row]} taken for ${data.labels[column]}`;
      const share = data.sums[row] ? (100 * count) / data.sums[row] : 0;
      return `${what}: ${formatNumber(count)} of ${formatNumber(data.sums[row])} (${share.toFixed(1)}\u00a0%)`;
    }

    image.addEventListener("pointermove", (event) => {
      const box = image.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      readout.textContent = sentence(cell(y, box.height), cell(x, box.width));
      placeReadout(readout, frame, x, y + 14);
    });
    image.addEventListener("pointerleave", () => (readout.hidden = true));
  }

  function offerControls(root) {
    root.querySelectorAll("table.sortable").forEach(offerSorting);
    // Charts of the classes `scatter` and `own` have a script of their own, or none.
    root.querySelectorAll(".chart:not(.scatter, .own)").forEach(offerReading);
    root.querySelectorAll(".heatmap:has(.matrix)").forEach(offerCells);
  }

  offerThemes();
  offerControls(document);
  return { offerControls, make, breakable, draw, formatNumber, addReadout, placeReadout, offerKeys, nearest, collator, NEXT, COLOURS, NEAR };
})();
