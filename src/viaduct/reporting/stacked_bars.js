// Stacked bars: a read-out for the bar under the pointer or selected by arrow keys, and a choice of the group.
(() => {
  const { make, draw, addReadout, placeReadout, offerKeys, formatNumber, COLOURS } = page;

  function offerBars(view, data, layers, unit, axis) {
    const count = data.labels.length;
    if (!count) return;
    const [plot, surface] = [view.querySelector(".plot"), view.querySelector(".surface")];
    const readout = addReadout(plot);
    const slot = draw("rect", { class: "slot", y: 0, height: "100%", width: `${100 / count}%` });
    const number = (value) => (value === null ? "–" : formatNumber(value, { maximumSignificantDigits: 4 }) + (unit ? `\u00a0${unit}` : ""));
    let current = -1;

    function entry(className, name, value) {
      const element = make("div", className);
      element.append(make("span", "", name), make("b", "", number(value)));
      return element;
    }

    function show(bar) {
      current = bar;
      slot.setAttribute("x", `${(100 * bar) / count}%`);
      surface.append(slot);
      readout.replaceChildren(make("div", "where", `${axis} ${data.labels[bar]}`));
      layers.forEach((name, layer) => readout.append(entry(`entry line-${layer % COLOURS}`, name, data.layers[layer][bar])));
      const sum = data.layers.reduce((total, layer) => total + (layer[bar] ?? 0), 0);
      readout.append(entry("total", "together", sum));
      if (data.longest.length) readout.append(entry("total", "longest of these", data.longest[bar]));
      const [box, frame] = [surface.getBoundingClientRect(), plot.getBoundingClientRect()];
      placeReadout(readout, plot, box.left - frame.left + ((bar + 0.5) / count) * box.width, 8);
    }

    function hide() {
      current = -1;
      readout.hidden = true;
      slot.remove();
    }

    surface.addEventListener("pointermove", (event) => {
      const box = surface.getBoundingClientRect();
      show(Math.max(0, Math.min(count - 1, Math.floor(((event.clientX - box.left) / box.width) * count))));
    });
    offerKeys(surface, count, () => current, show, hide);
  }

  function offerGroups(chart, data, views) {
    const [label, select] = [make("label", "choice", data.group), make("select", "")];
    data.views.forEach((view, place) => select.append(Object.assign(make("option", "", view.name), { value: place })));
    select.addEventListener("change", () => views.forEach((view, place) => (view.hidden = place !== Number(select.value))));
    label.append(select);
    chart.querySelector("figcaption").append(label);
  }

  document.querySelectorAll(".stacked").forEach((chart) => {
    const data = JSON.parse(chart.querySelector("script").textContent);
    const views = [...chart.querySelectorAll(".view")];
    views.forEach((view, place) => offerBars(view, data.views[place], data.layers, data.unit, view.querySelector(".axis-name.across").textContent));
    if (views.length > 1) offerGroups(chart, data, views);
  });
})();
