// Flame graphs: a click or Enter widens a box, Escape goes back, arrow keys move along the tree; with a read-out.
(() => {
  const { make, breakable, addReadout, placeReadout } = page;

  function offerZoom(figure) {
    const frame = figure.querySelector(".boxes");
    if (!frame) return;
    const boxes = [...frame.querySelectorAll(".box")];
    const parents = boxes.map((box) => Number(box.dataset.parent));
    const children = boxes.map(() => []);
    parents.forEach((parent, box) => parent >= 0 && children[parent].push(box));
    const [left, width] = ["--x", "--w"].map((name) => boxes.map((box) => Number(box.style.getPropertyValue(name))));
    const readout = addReadout(frame);
    const trail = make("div", "trail");
    frame.before(trail);
    let [zoomed, active] = [0, 0];

    const ancestors = (box) => (box < 0 ? [] : [...ancestors(parents[box]), box]);

    function isInside(box) {
      return left[box] + width[box] > left[zoomed] + 1e-7 && left[box] < left[zoomed] + width[zoomed] - 1e-7;
    }

    function zoom(box) {
      zoomed = box;
      figure.style.setProperty("--from", left[box]);
      figure.style.setProperty("--span", Math.max(width[box], 1e-6));
      const above = new Set(ancestors(parents[box]));
      boxes.forEach((each, place) => {
        each.classList.toggle("outer", above.has(place));
        each.classList.toggle("unfocused", !above.has(place) && !isInside(place));
      });
      readout.hidden = true;
      writeTrail();
    }

    function writeTrail() {
      const path = ancestors(zoomed);
      const last = path.pop();
      const steps = path.flatMap((box) => {
        const button = make("button", "");
        button.type = "button";
        button.append(...breakable(boxes[box].textContent));
        button.addEventListener("click", () => (zoom(box), focus(box)));
        return [button, "›"];
      });
      const current = make("b", "");
      current.append(...breakable(boxes[last].textContent));
      trail.replaceChildren(...steps, current, make("span", "aside", boxes[last].dataset.figures));
      if (!path.length) trail.append(make("span", "aside", "– click a box, or press Enter on it, to widen it"));
    }

    function focus(box) {
      boxes[active].tabIndex = -1;
      active = box;
      boxes[box].tabIndex = 0;
      boxes[box].focus({ preventScroll: true });
      show(box);
    }

    function show(box) {
      const [area, outer] = [boxes[box].getBoundingClientRect(), frame.getBoundingClientRect()];
      const title = make("div", "");
      title.append(...breakable(ancestors(box).slice(1).map((each) => boxes[each].textContent).join(" › ") || boxes[box].textContent));
      readout.replaceChildren(title, make("div", "where", boxes[box].dataset.figures));
      placeReadout(readout, frame, Math.max(0, area.left - outer.left), 0);
      readout.style.top = `${area.bottom - outer.top + 4}px`;
    }

    const siblings = (box) => (parents[box] < 0 ? [box] : children[parents[box]]);
    const beside = (box, step) => siblings(box)[siblings(box).indexOf(box) + step];
    const KEYS = {
      ArrowUp: (box) => parents[box],
      ArrowDown: (box) => children[box][0],
      ArrowLeft: (box) => beside(box, -1),
      ArrowRight: (box) => beside(box, 1),
      Home: () => 0,
    };

    function press(event) {
      const box = boxes.indexOf(event.target);
      if (box < 0) return;
      if (event.key === "Enter" || event.key === " ") zoom(box === zoomed ? Math.max(0, parents[box]) : box);
      else if (event.key === "Escape" || event.key === "Backspace") {
        zoom(Math.max(0, parents[zoomed]));
        focus(zoomed);
      } else if (KEYS[event.key]) {
        const goal = KEYS[event.key](box);
        if (goal === undefined || goal < 0) return event.preventDefault();
        if (boxes[goal].classList.contains("unfocused")) zoom(Math.max(0, parents[goal]));
        focus(goal);
      } else return;
      event.preventDefault();
    }

    frame.addEventListener("click", (event) => {
      const box = boxes.indexOf(event.target.closest(".box"));
      if (box < 0) return;
      zoom(box === zoomed ? Math.max(0, parents[box]) : box);
      focus(box);
    });
    frame.addEventListener("pointerover", (event) => {
      const box = boxes.indexOf(event.target.closest(".box"));
      if (box >= 0) show(box);
    });
    frame.addEventListener("pointerleave", () => (readout.hidden = true));
    frame.addEventListener("focusout", () => (readout.hidden = true));
    frame.addEventListener("keydown", press);
    zoom(0);
  }

  document.querySelectorAll(".flame").forEach(offerZoom);
})();
