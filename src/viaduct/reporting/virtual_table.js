// Tables of thousands of rows: only visible rows are in the page. Rows have the numbers of the data; `view` lists those
// that pass the filters, in the chosen order.
(() => {
  const { make, breakable, draw, collator, NEXT } = page;
  const EXTRA_ROWS = 8; // rows in the page above and below the visible ones
  const MISSING = "\u2013";
  const NOT_FINITE = { NaN, Inf: Infinity, "-Inf": -Infinity };

  // As format_value in virtual_table.py; but floats that are whole numbers from 1e6 to 1e15 are written out.
  function writeNumber(value, decimals) {
    if (value === null) return MISSING;
    if (typeof value === "string") return value;
    if (decimals !== undefined) return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    if (value === 0) return "0";
    if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
    if (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) return Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : value.toExponential(3).replace("e+", "e");
    return value.toFixed(6);
  }

  const asNumber = (value) => (value === null ? NaN : typeof value === "string" ? NOT_FINITE[value] : value);

  // A column has the text of each row, and a number to sort by; NaN is last in both directions.
  function readColumn(record) {
    const text = record.words ? (row) => record.words[record.places[row]] : (row) => writeNumber(record.numbers[row], record.decimals);
    let keys = null;
    function sortKeys() {
      if (!record.words) return Float64Array.from(record.numbers, asNumber);
      if (record.orders) return Float64Array.from(record.orders, asNumber);
      const ranks = new Map([...record.words].sort(collator.compare).map((word, rank) => [word, word === MISSING || word === "" ? NaN : rank]));
      return Float64Array.from(record.places, (place) => ranks.get(record.words[place]));
    }
    return { name: record.name, filterable: record.filterable, wraps: record.wraps, width: record.width, priority: record.priority, words: record.words, tones: record.tones ?? {}, numeric: !record.words, text, keys: () => (keys ??= sortKeys()) };
  }

  function sortRows(rows, column, direction) {
    if (!column || direction === "none") return rows;
    const keys = column.keys();
    const sign = direction === "ascending" ? 1 : -1;
    return rows.sort((a, b) => {
      const [first, second] = [keys[a], keys[b]];
      if (first !== first || second !== second) return (first !== first) - (second !== second);
      return first < second ? -sign : first > second ? sign : 0;
    });
  }

  // Details -----------------------------------------------------------------------------------------------------

  const DRAW = {
    facts(block) {
      const list = make("dl", "facts");
      const entries = Object.entries(block.values);
      const isLong = ([, value]) => value.length > 60;
      for (const entry of [...entries.filter((each) => !isLong(each)), ...entries.filter(isLong)]) {
        const [name, value] = entry;
        const pair = make("div", isLong(entry) ? "long" : "");
        pair.append(make("dt", "", name), make("dd", "", value));
        list.append(pair);
      }
      return list;
    },
    link(block) {
      const link = make("a", "", block.text);
      link.setAttribute("href", block.address);
      return link;
    },
    table(block) {
      const [frame, table] = [make("figure", "small"), make("table", "")];
      const row = (tag, cells) => {
        const line = make("tr", "");
        line.append(...cells.map((cell) => make(tag, "", cell)));
        return line;
      };
      const [head, body] = [make("thead", ""), make("tbody", "")];
      head.append(row("th", block.columns));
      body.append(...block.rows.map((cells) => row("td", cells)));
      table.append(head, body);
      frame.append(make("h4", "", block.caption), table);
      return frame;
    },
    bars(block) {
      const [frame, table, body] = [make("figure", "bars"), make("table", ""), make("tbody", "")];
      const total = block.counts.reduce((sum, count) => sum + count, 0);
      const most = Math.max(...block.counts, 1);
      block.labels.forEach((label, place) => {
        const [line, bar, length] = [make("tr", ""), make("td", "bar"), make("span", "")];
        length.style.setProperty("--length", block.counts[place] / most);
        bar.append(length);
        const share = total ? `${((100 * block.counts[place]) / total).toFixed(1)}\u00a0%` : "";
        line.append(make("th", "", label), bar, make("td", "", block.counts[place].toLocaleString("en-US")), make("td", "aside", share));
        body.append(line);
      });
      table.append(body);
      frame.append(make("h4", "", block.title), table);
      return frame;
    },
    histograms(block) {
      const frame = make("figure", "histograms");
      const caption = make("figcaption", "");
      const legend = make("ul", "legend");
      block.names.forEach((name, side) => {
        const [entry, sample] = [make("li", `line-${side}${side ? "" : " filled"}`), draw("svg", { viewBox: "0 0 20 8", "aria-hidden": "true" })];
        sample.append(side ? draw("path", { d: "M0 4H20" }) : draw("rect", { width: 20, height: 8 }));
        entry.append(sample, name);
        legend.append(entry);
      });
      caption.append(make("h4", "", block.title), legend);
      const most = Math.max(...block.first, ...block.second, 1);
      const outline = (counts) => counts.map((count, bin) => `V${(1000 - (1000 * Math.log1p(count)) / Math.log1p(most)).toFixed(0)}H${((1000 * (bin + 1)) / counts.length).toFixed(1)}`).join("");
      const [low, high] = block.range;
      const shape = draw("svg", { class: "shape", viewBox: "0 0 1000 1000", preserveAspectRatio: "none", role: "img", "aria-label": `${block.title}: values from ${low} to ${high}` });
      const stroke = { "vector-effect": "non-scaling-stroke" };
      shape.append(draw("path", { class: "line-0 filled", d: `M0 1000${outline(block.first)}V1000Z`, ...stroke }));
      shape.append(draw("path", { class: "line-1", d: `M0 1000${outline(block.second)}V1000`, ...stroke }));
      const ends = make("p", "ends");
      ends.append(...[low, (low + high) / 2, high].map((value) => make("span", "", String(Number(value.toPrecision(4))))));
      frame.append(caption, shape, ends, make("p", "aside", `Height is the logarithm of the count; the tallest bin holds ${most.toLocaleString("en-US")}.`));
      return frame;
    },
  };

  // The table ---------------------------------------------------------------------------------------------------

  function offerRows(figure) {
    const data = JSON.parse(figure.querySelector("script.rows").textContent);
    if (!data.rows) return;
    const columns = data.columns.map(readColumn);
    const pinned = Number(figure.dataset.pinned);
    const scroller = figure.querySelector(".scroll");
    const table = scroller.querySelector("table");
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    const frames = [...table.querySelectorAll("col")];
    const fullWidth = table.style.width;
    const allRows = data.order ?? Array.from({ length: data.rows }, (_, row) => row);
    const chosen = new Map(); // column -> accepted texts; a column that is absent accepts all
    const panel = make("section", "panel");
    const head = make("div", "head"); // read by screen readers when it changes, without the drawings below
    const count = make("p", "aside count");
    const bar = make("div", "filters");
    const search = make("input", "");
    const width = make("button", "width");
    let rowHeight = body.rows[0].getBoundingClientRect().height;
    let shown = columns.map(() => true);
    let everyColumn = !columns.some((column) => column.priority);
    let view = allRows;
    let sort = { column: null, direction: "none" };
    let active = -1; // place in the view
    let opened = -1; // row
    let first = -1;
    let details = null;
    let searchTexts = null;
    let pinnedLefts = []; // left edges of the pinned columns

    // Filters and order

    function getSearchText(row) {
      searchTexts ??= Array.from({ length: data.rows }, (_, each) => columns.filter((column) => !column.numeric).map((column) => column.text(each)).join("\n").toLowerCase());
      return searchTexts[row];
    }

    function makeFilter(words) {
      const sets = [...chosen].map(([column, set]) => [column, set]);
      return (row) => sets.every(([column, set]) => set.has(column.text(row))) && words.every((word) => getSearchText(row).includes(word));
    }

    function updateView(keep = active >= 0 ? view[active] : -1) {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      view = sortRows(words.length || chosen.size ? allRows.filter(makeFilter(words)) : [...allRows], sort.column, sort.direction);
      active = keep >= 0 ? view.indexOf(keep) : -1;
      count.textContent = view.length === data.rows ? `${data.rows.toLocaleString("en-US")} rows` : `${view.length.toLocaleString("en-US")} of ${data.rows.toLocaleString("en-US")} rows`;
      table.setAttribute("aria-rowcount", view.length + 1);
      showRows(true);
    }

    // Rows in the page

    function makeCell(column, row, place) {
      const text = column.text(row);
      const tone = column.tones[text];
      const element = make("td", tone ? `tone-${tone[0]}` : column.numeric ? "number" : "", column.wraps ? "" : text);
      if (column.wraps) {
        const lines = make("span", "clamp");
        lines.append(...breakable(text));
        element.append(lines);
      }
      if (tone) {
        const sign = make("span", "sign", tone[1]);
        sign.setAttribute("aria-hidden", "true");
        element.prepend(sign);
      }
      if (text.length > 12) element.title = text;
      pinCell(element, place);
      return element;
    }

    // Columns are added by `priority` as long as they fit.
    function fitColumns() {
      const letter = 0.45 * parseFloat(getComputedStyle(document.documentElement).fontSize);
      const needed = columns.map((column, place) => {
        const style = getComputedStyle(headings[place]);
        return column.width * letter + parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
      });
      let room = scroller.clientWidth;
      const everyFits = needed.reduce((sum, each) => sum + each, 0) <= room;
      shown = columns.map(() => everyColumn || everyFits);
      if (!everyColumn && !everyFits) {
        const order = columns.map((_, place) => place).filter((place) => columns[place].priority).sort((a, b) => columns[a].priority - columns[b].priority || a - b);
        order.forEach((place) => {
          if (needed[place] > room) return;
          shown[place] = true;
          room -= needed[place];
        });
      }
      const narrowed = shown.includes(false);
      headings.forEach((heading, place) => (heading.hidden = !shown[place]));
      frames.forEach((frame, place) => {
        frame.style.display = shown[place] ? "" : "none";
        frame.style.width = narrowed && columns[place].wraps ? "" : `${needed[place]}px`;
      });
      table.style.width = narrowed ? "100%" : fullWidth;
      width.hidden = !columns.some((column) => column.priority) || everyFits;
      width.textContent = everyColumn ? "Fewer columns" : `All ${columns.length} columns`;
    }

    function measureColumns() {
      fitColumns();
      const widths = headings.slice(0, pinned).map((heading) => heading.getBoundingClientRect().width);
      pinnedLefts = widths.map((_, place) => widths.slice(0, place).reduce((sum, width) => sum + width, 0));
      headings.forEach(pinCell);
    }

    function pinCell(element, place) {
      if (place >= pinned) return;
      element.classList.add("pinned");
      element.style.left = `${pinnedLefts[place]}px`;
    }

    function makeRow(place) {
      const row = view[place];
      const element = make("tr", place === active ? "active" : "");
      element.id = `${data.name}-${row}`;
      element.setAttribute("aria-rowindex", place + 2);
      element.setAttribute("aria-selected", row === opened);
      columns.forEach((column, at) => shown[at] && element.append(makeCell(column, row, at)));
      return element;
    }

    function makeFiller(rows) {
      const element = make("tr", "filler");
      element.setAttribute("aria-hidden", "true");
      element.style.height = `${rows * rowHeight}px`;
      return element;
    }

    function showRows(anew = false) {
      const visible = Math.ceil(scroller.clientHeight / rowHeight);
      const top = Math.max(0, Math.min(Math.floor(scroller.scrollTop / rowHeight), view.length - visible));
      const start = Math.max(0, top - EXTRA_ROWS);
      if (!anew && Math.abs(start - first) < EXTRA_ROWS / 2 && first >= 0 && top >= first && top + visible <= first + visible + 2 * EXTRA_ROWS) return;
      first = start;
      const end = Math.min(view.length, start + visible + 2 * EXTRA_ROWS);
      const lines = [];
      for (let place = start; place < end; place++) lines.push(makeRow(place));
      if (!view.length) lines.push(makeEmptyRow());
      body.replaceChildren(makeFiller(start), ...lines, makeFiller(view.length - end));
      if (active >= 0) table.setAttribute("aria-activedescendant", `${data.name}-${view[active]}`);
      else table.removeAttribute("aria-activedescendant");
      keepHeight();
    }

    // On a phone rows are higher, because names may take three lines.
    function keepHeight() {
      const height = body.querySelector("tr[id]")?.getBoundingClientRect().height;
      if (!height || Math.abs(height - rowHeight) < 0.5) return;
      rowHeight = height;
      showRows(true);
    }

    function makeEmptyRow() {
      const [element, text] = [make("tr", ""), make("td", "empty", "no row passes the filters")];
      text.colSpan = shown.filter(Boolean).length;
      element.append(text);
      return element;
    }

    function revealRow(place) {
      const heading = table.tHead.getBoundingClientRect().height;
      const [above, below] = [place * rowHeight, (place + 1) * rowHeight + heading];
      if (above < scroller.scrollTop) scroller.scrollTop = above;
      else if (below > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = below - scroller.clientHeight;
    }

    function selectRow(place) {
      active = Math.max(0, Math.min(view.length - 1, place));
      if (!view.length) return;
      revealRow(active);
      if (opened >= 0) openDetails(view[active]);
      showRows(true);
    }

    // Details of a row

    function openDetails(row) {
      details ??= JSON.parse(figure.querySelector("script.details").textContent);
      opened = row;
      const close = make("button", "", "Close");
      close.type = "button";
      close.addEventListener("click", closeDetails);
      const titles = columns.slice(0, pinned).map((column) => makeCell(column, row, Infinity));
      head.replaceChildren(...titles.map(asSpan), close);
      const blocks = [...(details[row] ?? [])];
      const grid = make("div", "blocks");
      const cells = columns.slice(pinned).map((column) => [column.name, column.text(row)]).filter(([, text]) => text !== "" && text !== MISSING);
      // The first row of the file has the headings.
      if (data.download) blocks.push({ kind: "link", text: `row ${row + 2} of ${data.download}`, address: data.download });
      const ofKind = (...kinds) => blocks.filter((block) => kinds.includes(block.kind));
      const line = make("p", "links");
      line.append(...ofKind("link").map(DRAW.link));
      // One list of facts below the drawings: those of the details, then the cells of the row.
      const facts = Object.fromEntries([...ofKind("facts").flatMap((block) => Object.entries(block.values)), ...cells]);
      grid.append(line, ...ofKind("table", "bars", "histograms").map((block) => DRAW[block.kind](block)), DRAW.facts({ values: facts }));
      panel.replaceChildren(head, grid);
      panel.hidden = false;
      setAddress(`#${data.name}-${row}`);
    }

    function asSpan(title) {
      const part = make("span", title.className);
      part.append(...title.childNodes);
      return part;
    }

    function setAddress(address) {
      // A page inside a frame may not change its address.
      try {
        history.replaceState(null, "", address);
      } catch {}
    }

    function closeDetails() {
      opened = -1;
      panel.hidden = true;
      setAddress(location.pathname + location.search);
      showRows(true);
      table.focus({ preventScroll: true });
    }

    function goToRow(row) {
      if (!(row >= 0 && row < data.rows)) return;
      if (!view.includes(row)) clearFilters();
      active = view.indexOf(row);
      scroller.scrollTop = Math.max(0, active * rowHeight - scroller.clientHeight / 3);
      openDetails(row);
      showRows(true);
      table.focus({ preventScroll: true });
      figure.scrollIntoView({ block: "start" });
    }

    // Controls

    function clearFilters() {
      search.value = "";
      chosen.clear();
      bar.querySelectorAll("select").forEach((each) => (each.value = ""));
      bar.querySelectorAll("button[aria-pressed]").forEach((each) => each.setAttribute("aria-pressed", "false"));
      updateView();
    }

    function setFilter(column, set) {
      if (set.size) chosen.set(column, set);
      else chosen.delete(column);
      scroller.scrollTop = 0;
      updateView();
    }

    function countTexts(column) {
      const counts = new Map();
      allRows.forEach((row) => counts.set(column.text(row), (counts.get(column.text(row)) ?? 0) + 1));
      return counts;
    }

    function makeChips(column) {
      const group = make("div", "chips");
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", column.name);
      const counts = countTexts(column);
      Object.entries(column.tones).filter(([text]) => counts.has(text)).forEach(([text, [tone, sign]]) => {
        const chip = make("button", `tone-${tone}`);
        chip.type = "button";
        chip.setAttribute("aria-pressed", "false");
        chip.append(make("span", "sign", sign), `${text} `, make("span", "aside", counts.get(text).toLocaleString("en-US")));
        chip.addEventListener("click", () => {
          const pressed = chip.getAttribute("aria-pressed") !== "true";
          chip.setAttribute("aria-pressed", pressed);
          const set = new Set(chosen.get(column) ?? []);
          if (pressed) set.add(text);
          else set.delete(text);
          setFilter(column, set);
        });
        group.append(chip);
      });
      return group;
    }

    function makePicker(column) {
      const [label, select] = [make("label", "", `${column.name} `), make("select", "")];
      const values = [...countTexts(column).keys()].sort(collator.compare);
      [["", "all"], ...values.map((value) => [value, value])].forEach(([value, text]) => {
        const option = make("option", "", text);
        option.value = value;
        select.append(option);
      });
      select.addEventListener("change", () => setFilter(column, new Set(select.value === "" ? [] : [select.value])));
      label.append(select);
      return label;
    }

    function offerFilters() {
      search.type = "search";
      search.placeholder = "Filter by words";
      search.setAttribute("aria-label", "Filter rows by words");
      search.addEventListener("input", () => {
        scroller.scrollTop = 0;
        updateView();
      });
      width.type = "button";
      width.addEventListener("click", () => {
        everyColumn = !everyColumn;
        measureColumns();
        showRows(true);
      });
      const button = make("button", "clear", "Clear");
      button.type = "button";
      button.addEventListener("click", clearFilters);
      count.setAttribute("role", "status");
      bar.append(search, ...columns.filter((column) => column.filterable).map((column) => (Object.keys(column.tones).length ? makeChips(column) : makePicker(column))), button, width, count);
      scroller.before(bar);
    }

    function offerHeadings() {
      headings.forEach((heading, place) => {
        const button = make("button", "");
        button.type = "button";
        button.append(...heading.childNodes);
        heading.replaceChildren(button);
        heading.setAttribute("aria-sort", "none");
        button.addEventListener("click", () => {
          const direction = NEXT[heading.getAttribute("aria-sort")];
          headings.forEach((each) => each.setAttribute("aria-sort", each === heading ? direction : "none"));
          sort = { column: columns[place], direction };
          scroller.scrollTop = 0;
          updateView();
        });
      });
    }

    function offerKeys() {
      table.tabIndex = 0;
      table.addEventListener("keydown", (event) => {
        if (event.target !== table) return;
        const page = Math.max(1, Math.floor(scroller.clientHeight / rowHeight) - 2);
        const goal = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: view.length - 1 }[event.key];
        if (event.key === "Escape" && opened >= 0) closeDetails();
        else if ((event.key === "Enter" || event.key === " ") && active >= 0) {
          openDetails(view[active]);
          showRows(true);
        } else if (goal !== undefined) selectRow(goal);
        else return;
        event.preventDefault();
      });
    }

    function offerClicks() {
      body.addEventListener("click", (event) => {
        const row = Number(event.target.closest("tr[id]")?.id.slice(data.name.length + 1) ?? NaN);
        if (Number.isNaN(row) || String(getSelection())) return;
        active = view.indexOf(row);
        openDetails(row);
        showRows(true);
        panel.scrollIntoView({ block: "nearest" });
      });
      // Links to a row from anywhere on the page; the row itself may not be in the page.
      document.addEventListener("click", (event) => {
        const link = event.target.closest?.(`a[href^="#${data.name}-"]`);
        if (!link) return;
        event.preventDefault();
        goToRow(Number(link.getAttribute("href").slice(data.name.length + 2)));
      });
    }

    function followAddress() {
      const [name, row] = location.hash.slice(1).split("-");
      if (name === data.name && row) goToRow(Number(row));
    }

    measureColumns();
    panel.hidden = true;
    panel.setAttribute("aria-label", "Details of the row");
    head.setAttribute("aria-live", "polite");
    scroller.after(panel);
    offerFilters();
    offerHeadings();
    offerKeys();
    offerClicks();
    scroller.addEventListener("scroll", () => requestAnimationFrame(() => showRows()), { passive: true });
    new ResizeObserver(() => {
      measureColumns();
      showRows(true);
    }).observe(scroller);
    addEventListener("hashchange", followAddress);
    updateView();
    followAddress();
  }

  document.querySelectorAll("figure.virtual").forEach(offerRows);
})();
