// Script of a served page: polls the server and replaces the parts that have changed.
// The reader's scroll position, focus, scale of a chart, read-out and order of a table are restored.
"use strict";
(() => {
  const main = document.querySelector("main");
  const RETRY_MS = 3000;
  let version = main.dataset.version;
  let run = null;
  let warning = null;
  let ended = "ended" in main.dataset;

  const pause = (ms) => new Promise((done) => setTimeout(done, ms));

  async function ask(address) {
    const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(30000) });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer;
  }

  async function askState() {
    const query = new URLSearchParams({ since: version });
    if (document.hidden) query.set("idle", "1");
    const state = await (await ask(`data.json?${query}`)).json();
    run ??= state.run;
    if (state.run !== run || !state.version) throw new Error("another run is served here");
    return state;
  }

  // Lost connection -------------------------------------------------------------------------------------------

  function showConnection(isLost) {
    if (!isLost) {
      warning?.remove();
      warning = null;
      return;
    }
    if (warning) return;
    warning = page.make("div", "part callout tone-warn lead-part");
    warning.setAttribute("role", "status");
    const [headline, sign] = [page.make("p", "headline"), page.make("span", "sign", "!")];
    sign.setAttribute("aria-hidden", "true");
    headline.append(sign, page.make("span", "", "The run has ended or its server is gone. This page shows the last state received."));
    warning.append(headline);
    main.before(warning);
  }

  // Updates --------------------------------------------------------------------------------------------

  const served = new WeakMap(); // element -> its HTML as served, before controls were added

  const keyOf = (element) => [element.tagName, element.id, element.className, element.querySelector("h2")?.textContent].join(" ");
  const keysOf = (parent) => [...parent.children].map(keyOf).join("\n");
  const partsOf = (section) => [...section.querySelectorAll(".part")];

  function rememberServed(root) {
    [...root.children].forEach((child) => served.set(child, child.outerHTML));
    partsOf(root).forEach((part) => served.set(part, part.outerHTML));
  }

  // Return a function that restores the reader's state of a part in the part that replaces it.
  function captureReading(part) {
    const frames = [...part.querySelectorAll(".view")];
    const sorted = [...part.querySelectorAll("th")].findIndex((heading) => ["ascending", "descending"].includes(heading.getAttribute("aria-sort")));
    const focusable = (root) => [...root.querySelectorAll("a, button, select, [tabindex]")];
    const focus = focusable(part).indexOf(document.activeElement);
    const shown = frames.findIndex((frame) => !frame.hidden);
    const at = shown >= 0 ? frames[shown].reading?.at() : null;
    const direction = sorted >= 0 ? part.querySelectorAll("th")[sorted].getAttribute("aria-sort") : "none";
    const scroll = part.querySelector(".scroll");
    const [left, top] = [scroll?.scrollLeft ?? 0, scroll?.scrollTop ?? 0];
    return (fresh) => {
      const views = [...fresh.querySelectorAll(".view")];
      if (views.length === frames.length && views.findIndex((frame) => !frame.hidden) !== shown) fresh.querySelector(".scale")?.click();
      const heading = sorted >= 0 ? fresh.querySelectorAll("th")[sorted]?.querySelector("button") : null;
      for (let press = { none: 0, ascending: 1, descending: 2 }[direction]; heading && press > 0; press -= 1) heading.click();
      fresh.querySelector(".scroll")?.scrollTo({ left, top, behavior: "instant" });
      if (focus >= 0) focusable(fresh)[focus]?.focus({ preventScroll: true });
      if (at !== null && at !== undefined) views.find((frame) => !frame.hidden)?.reading?.read(at);
    };
  }

  function replace(old, fresh) {
    if (served.get(old) === served.get(fresh)) return;
    const restore = captureReading(old);
    const holder = document.createElement("div");
    old.replaceWith(holder);
    holder.append(fresh);
    page.offerControls(holder);
    holder.replaceWith(fresh);
    restore(fresh);
  }

  // The sections have changed: parts are matched by their titles.
  function replaceAll(fresh) {
    const titleOf = (part) => part.querySelector("h3, figcaption")?.firstChild?.textContent;
    const readings = partsOf(main).map((part) => [titleOf(part), captureReading(part)]);
    const bar = main.querySelector("nav")?.scrollLeft ?? 0;
    page.offerControls(fresh);
    main.replaceChildren(...fresh.children);
    main.querySelector("nav")?.scrollTo({ left: bar, behavior: "instant" });
    readings.forEach(([title, restore]) => {
      const part = title && partsOf(main).find((each) => titleOf(each) === title);
      if (part) restore(part);
    });
  }

  function applyUpdate(text) {
    const received = new DOMParser().parseFromString(text, "text/html");
    const fresh = received.querySelector("main[data-version]");
    if (!fresh) return;
    const [heading, title] = [document.querySelector("h1"), received.querySelector("h1")];
    if (heading.textContent !== title.textContent) heading.replaceChildren(...title.childNodes);
    document.title = received.title;
    rememberServed(fresh);
    if (keysOf(fresh) !== keysOf(main)) {
      replaceAll(fresh);
    } else {
      const children = [...fresh.children];
      [...main.children].forEach((old, place) => {
        const [before, after] = [partsOf(old), partsOf(children[place])];
        if (old.tagName === "SECTION" && before.length === after.length) {
          old.querySelector(".lead")?.replaceChildren(...(children[place].querySelector(".lead")?.childNodes ?? []));
          before.forEach((part, each) => replace(part, after[each]));
        } else {
          replace(old, children[place]);
        }
      });
    }
    version = fresh.dataset.version;
    ended = "ended" in fresh.dataset;
  }

  // Tiles change more often than the other parts.
  function showTiles(tiles) {
    const items = [...main.querySelectorAll(".tiles li")];
    tiles.forEach(({ label, value, note }) => {
      const item = items.find((each) => each.querySelector(".label").textContent === label);
      const set = (name, text) => {
        const element = item?.querySelector(name);
        if (element && element.textContent !== text) element.textContent = text;
      };
      set(".value", value);
      set(".note", note);
    });
  }

  async function follow() {
    while (!ended) {
      let [state, text] = [null, ""];
      try {
        state = await askState();
        if (state.version !== version) text = await (await ask(`./${location.search}`)).text();
      } catch {
        showConnection(true);
        await pause(RETRY_MS);
        continue;
      }
      showConnection(false);
      if (text) applyUpdate(text);
      if (!ended) showTiles(state.tiles);
    }
  }

  follow();
})();
