// Parallel coordinates: a filter for every axis, which also acts on the curves of the page, and a read-out of one run.
(() => {
  const { make, draw, addReadout, placeReadout, formatNumber } = page;
  const REACH = 24; // px from a line within which it answers
  const filterStates = new Map(); // title of a plot -> state of its filters, which is kept when live.js replaces the plot

  function offerFilters(plot, data, apply) {
    const title = plot.querySelector("h3").textContent;
    const state = filterStates.get(title) ?? { name: "", axes: data.axes.map(() => ({ low: "", high: "", value: "" })), open: false };
    if (state.axes.length !== data.axes.length) state.axes = data.axes.map(() => ({ low: "", high: "", value: "" }));
    filterStates.set(title, state);
    const panel = make("details", "filters run-filters");
    panel.open = state.open;
    panel.addEventListener("toggle", () => (state.open = panel.open));
    const rows = make("div", "rows");
    panel.append(make("summary", "", "Filter"), rows);
    const status = make("p", "aside");
    status.setAttribute("role", "status");

    function refresh() {
      const passing = data.names.map((name, run) => passes(data, state, name, run));
      status.textContent = `${passing.filter(Boolean).length} of ${data.names.length} runs pass.`;
      apply(passing);
    }

    const field = (text, kind, value, take) => {
      const [label, input] = [make("label", "", text), make("input", "")];
      input.type = kind;
      if (kind === "number") input.step = "any";
      input.value = value;
      input.addEventListener("input", () => {
        take(input.value);
        refresh();
      });
      label.append(input);
      return label;
    };
    const row = (name, ...fields) => {
      const set = make("fieldset", "");
      set.append(make("legend", "", name), ...fields);
      rows.append(set);
    };
    row("run", field("name contains", "text", state.name, (value) => (state.name = value)));
    data.axes.forEach((axis, place) => {
      const limits = state.axes[place];
      if (axis.numeric) {
        row(axis.name, field("from", "number", limits.low, (value) => (limits.low = value)), field("to", "number", limits.high, (value) => (limits.high = value)));
        return;
      }
      const [label, select] = [make("label", "", "is"), make("select", "")];
      ["", ...axis.known].forEach((value) => select.append(Object.assign(make("option", "", value || "any"), { value })));
      select.value = limits.value;
      select.addEventListener("change", () => {
        limits.value = select.value;
        refresh();
      });
      label.append(select);
      row(axis.name, label);
    });
    const clear = make("button", "scale", "Clear filters");
    clear.type = "button";
    clear.addEventListener("click", () => {
      state.name = "";
      state.axes.forEach((limits) => Object.assign(limits, { low: "", high: "", value: "" }));
      panel.querySelectorAll("input, select").forEach((input) => (input.value = ""));
      refresh();
    });
    panel.append(clear);
    plot.append(panel, status);
    refresh();
  }

  function passes(data, state, name, run) {
    if (!name.toLowerCase().includes(state.name.toLowerCase())) return false;
    return data.axes.every((axis, place) => {
      const [limits, value] = [state.axes[place], axis.values[run]];
      if (!axis.numeric) return !limits.value || value === limits.value;
      if (limits.low === "" && limits.high === "") return true;
      return value !== null && (limits.low === "" || value >= Number(limits.low)) && (limits.high === "" || value <= Number(limits.high));
    });
  }

  // Distance of a point from a run's line in px.
  function distance(data, run, x, y, box) {
    let least = Infinity;
    data.axes.slice(1).forEach((axis, place) => {
      const before = data.axes[place];
      const [x1, x2] = [before.across * box.width, axis.across * box.width];
      if (x < x1 - REACH || x > x2 + REACH) return;
      const share = Math.min(1, Math.max(0, (x - x1) / (x2 - x1)));
      const height = (before.places[run] + share * (axis.places[run] - before.places[run])) * box.height;
      least = Math.min(least, Math.abs(height - y));
    });
    return least;
  }

  function offerReading(plot, data, isPassing) {
    const [frame, surface] = [plot.querySelector(".field"), plot.querySelector(".surface")];
    const readout = addReadout(frame);
    const paths = [...plot.querySelectorAll(".strokes path")];
    const marks = draw("g", {});
    let current = -1;

    function show(run) {
      current = run;
      paths.forEach((path, place) => path.classList.toggle("focus", place === run));
      marks.replaceChildren(...data.axes.map((axis) => draw("circle", { class: "ring", cx: `${axis.across * 100}%`, cy: `${axis.places[run] * 100}%`, r: 5 })));
      surface.append(marks);
      readout.replaceChildren(make("div", "where", data.names[run]));
      data.axes.forEach((axis) => {
        const value = axis.values[run];
        const entry = make("div", "entry plain", axis.name);
        entry.append(make("b", "", value === null ? "none" : typeof value === "number" ? formatNumber(value, { maximumSignificantDigits: 6 }) + (axis.unit ? `\u00a0${axis.unit}` : "") : value));
        readout.append(entry);
      });
      const middle = data.axes[Math.floor(data.axes.length / 2)];
      placeReadout(readout, frame, middle.across * surface.clientWidth, 8);
    }

    function hide() {
      current = -1;
      readout.hidden = true;
      marks.remove();
      paths.forEach((path) => path.classList.remove("focus"));
    }

    surface.addEventListener("pointermove", (event) => {
      const box = surface.getBoundingClientRect();
      let [best, least] = [-1, REACH];
      data.names.forEach((_, run) => {
        const away = isPassing(run) ? distance(data, run, event.clientX - box.left, event.clientY - box.top, box) : Infinity;
        if (away < least) [best, least] = [run, away];
      });
      if (best < 0) hide();
      else if (best !== current) show(best);
    });
    surface.addEventListener("pointerleave", hide);
    surface.addEventListener("blur", hide);
    surface.addEventListener("keydown", (event) => {
      const order = data.names.map((_, run) => run).filter(isPassing);
      if (event.key === "Escape") hide();
      if (!order.length) return;
      const [at, last] = [order.indexOf(current), order.length - 1];
      const goal = { ArrowLeft: at <= 0 ? last : at - 1, ArrowUp: at <= 0 ? last : at - 1, ArrowRight: at >= last ? 0 : at + 1, ArrowDown: at >= last ? 0 : at + 1, Home: 0, End: last }[event.key];
      if (goal === undefined) return;
      event.preventDefault();
      show(order[goal]);
    });
  }

  function offerPlots(root) {
    root.querySelectorAll(".parallel").forEach((plot) => {
      const data = JSON.parse(plot.querySelector("script").textContent);
      if (!data.names.length || !data.axes.length) return;
      let passing = data.names.map(() => true);
      offerReading(plot, data, (run) => passing[run]);
      offerFilters(plot, data, (found) => {
        passing = found;
        plot.querySelectorAll(".strokes path").forEach((path, run) => path.classList.toggle("out", !passing[run]));
        if (!page.runChoice) return;
        page.runChoice.filtered = new Set(data.names.filter((_, run) => !passing[run]));
        page.announceRuns();
      });
    });
  }

  const before = page.offerControls;
  page.offerControls = (root) => {
    before(root);
    offerPlots(root);
  };
  offerPlots(document);
})();
