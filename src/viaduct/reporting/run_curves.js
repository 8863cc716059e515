// Curves of many runs: checkboxes that show and hide runs in every chart of the page, and a read-out.
// `page.runChoice` has the choice for all parts, also for those that live.js replaces.
(() => {
  const { make, draw, addReadout, placeReadout, offerKeys, nearest, formatNumber, COLOURS, NEAR } = page;
  const MOST_READ = 12; // lines in the read-out
  const choice = { off: new Set(), filtered: new Set() };
  page.runChoice = choice;
  const isShown = (name) => !choice.off.has(name) && !choice.filtered.has(name);
  page.announceRuns = () => document.dispatchEvent(new CustomEvent("viaduct-runs"));

  function offerBoxes(chart, names) {
    chart.querySelectorAll(".run-choice li").forEach((item) => {
      const [label, box] = [make("label", ""), make("input", "")];
      box.type = "checkbox";
      label.append(box, ...item.childNodes);
      item.append(label);
      box.addEventListener("change", () => {
        choice.off[box.checked ? "delete" : "add"](item.dataset.run);
        page.announceRuns();
      });
      ["pointerenter", "focusin"].forEach((kind) => item.addEventListener(kind, () => highlight(chart, item.dataset.run)));
      ["pointerleave", "focusout"].forEach((kind) => item.addEventListener(kind, () => highlight(chart, null)));
    });
    const buttons = make("span", "run-buttons");
    [["All", () => choice.off.clear()], ["None", () => names.forEach((name) => choice.off.add(name))]].forEach(([text, act]) => {
      const button = make("button", "scale", text);
      button.type = "button";
      button.setAttribute("aria-label", `${text} of the runs`);
      button.addEventListener("click", () => {
        act();
        page.announceRuns();
      });
      buttons.append(button);
    });
    chart.querySelector("figcaption").append(buttons);
  }

  function highlight(chart, name) {
    chart.querySelectorAll("[data-run]:is(path, circle)").forEach((mark) => mark.classList.toggle("faint", name !== null && mark.dataset.run !== name));
  }

  function update(chart) {
    chart.querySelectorAll("[data-run]").forEach((mark) => {
      const name = mark.dataset.run;
      if (mark.tagName !== "LI") mark.style.display = isShown(name) ? "" : "none";
      else {
        mark.classList.toggle("faint", choice.filtered.has(name));
        const box = mark.querySelector("input");
        if (box) box.checked = isShown(name);
        if (box) box.disabled = choice.filtered.has(name);
      }
    });
  }

  function offerReading(chart, data) {
    const [plot, surface] = [chart.querySelector(".plot"), chart.querySelector(".surface")];
    const readout = addReadout(plot);
    const stops = [...new Set(data.series.flatMap((series) => series.x))].sort((a, b) => a - b);
    if (!stops.length) return;
    const [low, high] = data.x;
    const unit = data.unit ? `\u00a0${data.unit}` : "";
    const crosshair = draw("line", { class: "crosshair", y1: 0, y2: "100%" });
    let stop = -1;

    function show(index) {
      stop = index;
      const share = (stops[index] - low) / (high - low || 1);
      const shown = data.series.map((series, place) => ({ series, place })).filter(({ series }) => isShown(series.name) && series.x.length);
      readout.replaceChildren(make("div", "where", `${chart.dataset.x} ${formatNumber(stops[index])}`));
      shown.slice(0, MOST_READ).forEach(({ series, place }) => {
        const found = nearest(series.x, stops[index]);
        const near = Math.abs(series.x[found] - stops[index]) <= NEAR * (high - low);
        const entry = make("div", `entry line-${place % COLOURS}`, series.name);
        const value = near ? series.y[found] : undefined;
        entry.append(make("b", "", value === undefined ? "–" : value === null ? "none" : formatNumber(value, { maximumSignificantDigits: 5 }) + unit));
        readout.append(entry);
      });
      if (shown.length > MOST_READ) readout.append(make("div", "where", `and ${shown.length - MOST_READ} more runs`));
      crosshair.setAttribute("x1", `${share * 100}%`);
      crosshair.setAttribute("x2", `${share * 100}%`);
      surface.append(crosshair);
      placeReadout(readout, plot, surface.getBoundingClientRect().left - plot.getBoundingClientRect().left + share * surface.clientWidth, 8);
    }

    function hide() {
      readout.hidden = true;
      crosshair.remove();
      stop = -1;
    }

    surface.addEventListener("pointermove", (event) => {
      const box = surface.getBoundingClientRect();
      show(nearest(stops, low + ((event.clientX - box.left) / box.width) * (high - low)));
    });
    offerKeys(surface, stops.length, () => stop, show, hide);
  }

  function offerRuns(root) {
    root.querySelectorAll(".run-curves").forEach((chart) => {
      const data = JSON.parse(chart.querySelector("script").textContent);
      offerBoxes(chart, data.series.map((series) => series.name));
      offerReading(chart, data);
      update(chart);
    });
  }

  document.addEventListener("viaduct-runs", () => document.querySelectorAll(".run-curves").forEach(update));
  const before = page.offerControls;
  page.offerControls = (root) => {
    before(root);
    offerRuns(root);
  };
  offerRuns(document);
})();
