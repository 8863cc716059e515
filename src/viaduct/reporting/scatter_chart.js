// Scatter charts: a read-out for the nearest point; a click or Enter follows its link.
(() => {
  const { make, draw, addReadout, placeReadout, offerKeys, formatNumber } = page;
  const REACH = 40; // largest distance from the pointer in px

  function offerPoints(chart) {
    const data = JSON.parse(chart.querySelector("script").textContent);
    if (!data.x.length) return;
    const [plot, surface] = [chart.querySelector(".plot"), chart.querySelector(".surface")];
    const readout = addReadout(plot);
    const ring = draw("circle", { class: "ring", r: 8 });
    const order = data.x.map((_, point) => point).sort((a, b) => data.x[a] - data.x[b] || a - b);
    let current = -1; // index in `order`

    function nearest(x, y, box) {
      let [best, least] = [-1, REACH * REACH];
      order.forEach((point, place) => {
        const [across, down] = [data.x[point] * box.width - x, data.y[point] * box.height - y];
        const distance = across * across + down * down;
        if (distance < least) [best, least] = [place, distance];
      });
      return best;
    }

    function show(place) {
      current = place;
      if (place < 0) return hide();
      const point = order[place];
      const [box, frame] = [surface.getBoundingClientRect(), plot.getBoundingClientRect()];
      const value = data.text[point] || data.value[point];
      const entry = make("div", `entry tone-${data.tones[data.tone[point]]}`, data.label[point]);
      entry.append(make("b", "", typeof value === "string" ? value.replace("nan", "NaN").replace("inf", "∞") : formatNumber(value)));
      readout.replaceChildren(entry);
      if (data.address[point]) readout.append(make("div", "where", "click for its details"));
      ring.setAttribute("cx", `${data.x[point] * 100}%`);
      ring.setAttribute("cy", `${data.y[point] * 100}%`);
      surface.append(ring);
      surface.style.cursor = data.address[point] ? "pointer" : "";
      placeReadout(readout, plot, box.left - frame.left + data.x[point] * box.width, box.top - frame.top + data.y[point] * box.height - 20);
    }

    function hide() {
      current = -1;
      readout.hidden = true;
      ring.remove();
      surface.style.cursor = "";
    }

    function follow() {
      const address = current >= 0 ? data.address[order[current]] : "";
      if (!address) return;
      const link = make("a", "");
      link.setAttribute("href", address);
      chart.append(link);
      link.click();
      link.remove();
    }

    surface.addEventListener("pointermove", (event) => {
      const box = surface.getBoundingClientRect();
      show(nearest(event.clientX - box.left, event.clientY - box.top, box));
    });
    offerKeys(surface, order.length, () => current, show, hide);
    surface.addEventListener("click", follow);
    surface.addEventListener("keydown", (event) => {
      if (event.key === "Enter") follow();
    });
  }

  document.querySelectorAll(".scatter").forEach(offerPoints);
})();
