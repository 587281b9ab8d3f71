// The interactive part of a report's page: sort, filter, charts of any metric, differences of two losses. The page is
// complete without it. All statistics come from the data in the page; nothing is fetched.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value != null) node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  };
  const losses = [...new Set(data.variants.map((v) => v.loss))];
  const recipes = [...new Set(data.variants.map((v) => v.recipe))];
  const first = data.tasks[0];

  // The state of the page is in the part of its address after "#?", so that a link keeps it.
  const defaults = () => {
    const [a = "", b = ""] = twoBest();
    return { task: 0, metric: first.metrics[0], rule: first.rule, a, b, sort: "" };
  };
  // The losses with the two best means on the first task, under the supervision of the first loss.
  function twoBest() {
    const name = first.metrics[0];
    const sign = data.metrics[name].lower ? 1 : -1;
    return first.samples.filter((s) => data.variants[s.variant].supervision === data.variants[first.samples[0].variant].supervision)
      .map((s) => [data.variants[s.variant].label, (s.values[name][first.rule] ?? s.values[name].last).m[0]])
      .filter(([, mean]) => mean != null).sort((x, y) => sign * (x[1] - y[1])).map(([label]) => label);
  }
  let state = defaults();
  const hidden = { tasks: new Set(), losses: new Set(), recipes: new Set(), metrics: new Set() };
  const names = {
    tasks: data.tasks.map((task) => task.label), losses, recipes, metrics: Object.keys(data.metrics),
  };

  function readAddress() {
    state = defaults();
    for (const kind of Object.keys(hidden)) hidden[kind].clear();
    if (!location.hash.startsWith("#?")) return;
    const found = new URLSearchParams(location.hash.slice(2));
    const task = names.tasks.indexOf(found.get("task"));
    if (task >= 0) state.task = task;
    const chosen = data.tasks[state.task];
    state.metric = found.get("metric") in data.metrics ? found.get("metric") : chosen.metrics[0];
    state.rule = chosen.rules.includes(found.get("rule")) ? found.get("rule") : chosen.rule;
    for (const key of ["a", "b", "sort"]) state[key] = found.get(key) ?? state[key];
    for (const kind of Object.keys(hidden)) {
      for (const name of found.getAll(`hide-${kind}`)) if (names[kind].includes(name)) hidden[kind].add(name);
    }
  }

  function writeAddress() {
    const found = new URLSearchParams();
    const chosen = data.tasks[state.task];
    if (state.task) found.set("task", chosen.label);
    if (state.metric !== chosen.metrics[0]) found.set("metric", state.metric);
    if (state.rule !== chosen.rule) found.set("rule", state.rule);
    const usual = defaults();
    for (const key of ["a", "b", "sort"]) if (state[key] !== usual[key]) found.set(key, state[key]);
    for (const [kind, set] of Object.entries(hidden)) for (const name of set) found.append(`hide-${kind}`, name);
    const text = found.toString();
    if (text) history.replaceState(null, "", `#?${text}`);
    else if (location.hash.startsWith("#?")) history.replaceState(null, "", location.pathname + location.search);
  }

  const shown = (index) => {
    const variant = data.variants[index];
    return !hidden.losses.has(variant.loss) && !hidden.recipes.has(variant.recipe);
  };
  const format = (value, metric) => {
    if (value == null) return "—";
    if (data.metrics[metric].percent) return `${+(100 * value).toPrecision(4)} %`;
    return `${+value.toPrecision(4)}`;
  };
  const sampleOf = (sample, metric, rule) => {
    const rules = sample.values[metric];
    return rules && (rules[rule] ?? rules.last);
  };
  // The runs of the seeds stand in the list of all cells at the end of the page.
  const runsOf = (anchor) => {
    const runs = {};
    for (const row of document.querySelectorAll(`#${anchor} > tr[data-seed]`)) {
      runs[row.dataset.seed] = row.cells[4].textContent;
    }
    return runs;
  };

  // --- charts -----------------------------------------------------------------------------------------------------
  function style() {
    const css = getComputedStyle(document.documentElement);
    return (name) => css.getPropertyValue(name).trim();
  }

  // A chart is one picture with a name; what its marks say stands in the table below it.
  function asPicture(chart) {
    const svg = chart.matches("svg") ? chart : chart.querySelector("svg");
    svg.setAttribute("role", "img");
    for (const part of svg.querySelectorAll("g[aria-label]")) part.removeAttribute("aria-label");
    return chart;
  }

  function drawSeeds() {
    const task = data.tasks[state.task];
    const metric = data.metrics[state.metric];
    const unit = metric.percent ? 100 : 1;
    const rows = task.samples.filter((sample) => shown(sample.variant) && sampleOf(sample, state.metric, state.rule));
    const dots = [], means = [], table = [];
    for (const sample of rows) {
      const { v, m } = sampleOf(sample, state.metric, state.rule);
      const variant = data.variants[sample.variant];
      const runs = runsOf(sample.anchor);
      sample.seeds.forEach((seed, i) => {
        if (v[i] != null) dots.push({ y: variant.label, x: unit * v[i], seed, value: v[i], run: runs[seed] ?? "", variant });
        table.push([variant.label, seed, v[i], runs[seed] ?? ""]);
      });
      if (m[0] != null) means.push({ y: variant.label, x: unit * m[0], low: unit * m[1], high: unit * m[2], interval: m[1] != null });
    }
    const labels = rows.map((sample) => data.variants[sample.variant].label);
    const width = Math.max(300, Math.min(1020, $("seeds-chart").clientWidth));
    const css = style();
    const guess = state.metric === task.metrics[0] ? task.chance : null;
    const values = dots.map((d) => d.x);
    const log = values.length > 0 && Math.min(...values) > 0 && Math.max(...values) > 20 * Math.min(...values);
    // Bounds below what a logarithmic scale can show end at its edge.
    const least = log ? Math.min(...values) / 2 : -Infinity;
    for (const d of means) d.low = Math.max(d.low, least);
    const chart = Plot.plot({
      width, height: 60 + 46 * labels.length, marginLeft: 12, marginRight: 16, marginTop: 12, marginBottom: 44,
      ariaLabel: `${metric.label} of every seed on ${task.label}`,
      style: { background: "transparent", color: css("--ink"), fontSize: "13px" },
      x: {
        label: `${metric.label}${metric.percent ? " (%)" : ""}${log ? ", log scale" : ""}`, grid: true,
        ...(log ? { type: "log", ticks: 4, tickFormat: "~g" } : { nice: true, ticks: Math.max(3, width / 110) }),
      },
      y: { type: "band", domain: labels, axis: null, padding: 0.1 },
      marks: [
        guess == null ? null : Plot.ruleX([unit * guess], { stroke: css("--muted"), strokeDasharray: "2,3" }),
        Plot.link(means.filter((d) => d.interval), { x1: "low", x2: "high", y1: "y", y2: "y", stroke: css("--ink"), strokeWidth: 1.4, dy: 8 }),
        Plot.tickX(means, { x: "x", y: "y", stroke: css("--ink"), strokeWidth: 2.2, insetTop: 22, insetBottom: 4 }),
        Plot.text(labels, { y: (d) => d, text: (d) => d, frameAnchor: "left", textAnchor: "start", dy: -9, fill: css("--ink"), fontWeight: 600 }),
        Plot.dot(dots, {
          x: "x", y: "y", fill: (d) => d.variant.colour, fillOpacity: 0.8, r: 5, dy: 8, tip: true,
          channels: { loss: "y", seed: "seed", value: (d) => format(d.value, state.metric), run: "run" },
          title: (d) => `${d.y}\nseed ${d.seed}: ${format(d.value, state.metric)}\nrun ${d.run}`,
        }),
      ],
    });
    $("seeds-chart").replaceChildren(labels.length ? asPicture(chart) : make("p", { class: "note" }, "No loss with this metric is shown."));
    fillSeeds(rows, table);
  }

  function fillSeeds(rows, table) {
    const line = (cells) => make("tr", {}, ...cells.map((cell, i) => (i ? make("td", {}, cell) : make("th", { scope: "row" }, cell))));
    const metric = state.metric;
    $("means-body").replaceChildren(...rows.map((sample) => {
      const { v, m } = sampleOf(sample, metric, state.rule);
      const bounds = m[1] == null ? "—" : `[${format(m[1], metric)}, ${format(m[2], metric)}]`;
      return line([data.variants[sample.variant].label, format(m[0], metric), bounds, String(v.filter((x) => x != null).length)]);
    }));
    $("seeds-body").replaceChildren(...table.map(([label, seed, value, run]) => line([label, String(seed), format(value, metric), run])));
    const cost = !data.tasks[state.task].metrics.includes(metric);
    const compared = RULE_TEXT(data.tasks[state.task].rule);
    $("rule-note").textContent = cost
      ? "A cost: medians over the finished seeds, without intervals; whether the machine was busy stands in the table of costs."
      : `Epoch: ${RULE_TEXT(state.rule)}. Losses are compared by: ${compared}.` +
        (state.rule === data.tasks[state.task].rule ? "" : " This choice is shown for information.");
  }
  const RULE_TEXT = (rule) => data.rules[rule];

  // --- two losses -------------------------------------------------------------------------------------------------
  function pairRow(task, a, b, metric) {
    const found = (task.pairs[metric] ?? []).find((p) => (p[0] === a && p[1] === b) || (p[0] === b && p[1] === a));
    if (!found) return null;
    const [p, , difference, low, high, , , seeds, items, forward, backward, why] = found;
    const turned = p !== a;
    const sign = turned ? -1 : 1;
    const negate = (x) => (x == null ? null : -x);
    return {
      task: task.label, seeds, items, why, verdict: turned ? backward : forward,
      difference: difference == null ? null : sign * difference,
      low: turned ? negate(high) : low, high: turned ? negate(low) : high,
      texts: turned ? null : [found[5], found[6]],
    };
  }

  const signed = (value, percent) => {
    const x = percent ? 100 * value : value;
    const digits = Math.max(0, Math.min(3, 2 - Math.floor(Math.log10(Math.abs(x) || 1))));
    return `${x > 0 ? "+" : x < 0 ? "−" : ""}${Math.abs(x).toFixed(digits)}`;
  };

  function drawPair() {
    const labels = data.variants.map((v) => v.label);
    const a = labels.indexOf(state.a), b = labels.indexOf(state.b);
    const said = $("pair-said"), body = $("pair-body"), chart = $("pair-chart");
    body.replaceChildren();
    chart.replaceChildren();
    $("pair-table").hidden = true;
    if (a < 0 || b < 0 || a === b) {
      said.textContent = a >= 0 && a === b ? "Choose two different losses." : "Choose two losses to see how they differ on every task.";
      return;
    }
    const rows = data.tasks.flatMap((task) => {
      if (hidden.tasks.has(task.label)) return [];
      const metric = task.metrics.includes(state.metric) && state.metric in task.pairs ? state.metric : task.metrics[0];
      const row = pairRow(task, a, b, metric);
      return row ? [{ ...row, metric, percent: data.metrics[metric].percent }] : [];
    });
    if (!rows.length) {
      said.textContent = "These two are compared on no task: they have different supervision, or no result in common.";
      return;
    }
    $("pair-table").hidden = false;
    const interval = (row) => (row.low == null ? "—" : row.texts ? row.texts[1] : `[${signed(row.low, row.percent)}, ${signed(row.high, row.percent)}]`);
    const mean = (row) => (row.difference == null ? "—" : row.texts ? row.texts[0] : signed(row.difference, row.percent));
    for (const row of rows) {
      const cells = [data.metrics[row.metric].label, mean(row), interval(row), row.verdict + (row.why ? ` (${row.why})` : ""),
        String(row.seeds), row.items ? row.items.toLocaleString("en") : "—"];
      body.append(make("tr", {}, make("th", { scope: "row" }, row.task), ...cells.map((cell) => make("td", {}, cell))));
    }
    const count = (verdict) => rows.filter((row) => row.verdict.startsWith(verdict)).length;
    said.textContent = rows.length === 1
      ? `${state.a} less ${state.b} on ${rows[0].task}: ${mean(rows[0])} ${interval(rows[0])}${rows[0].percent ? " points" : ""} of ${data.metrics[rows[0].metric].label}; ${state.a} is ${rows[0].verdict}.`.replace("is unresolved", "is neither better nor worse beyond noise: unresolved").replace("is not ranked", "and the other are not ranked")
      : `${state.a} beside ${state.b}: better on ${count("better")}, worse on ${count("worse")}, unresolved or equivalent on ${rows.length - count("better") - count("worse")} of ${rows.length} tasks.`;
    const drawn = rows.filter((row) => row.low != null && row.percent);
    if (!drawn.length) return;
    const css = style();
    const points = drawn.map((row) => ({ ...row, x: 100 * row.difference, x1: 100 * row.low, x2: 100 * row.high }));
    const width = Math.max(300, Math.min(1020, chart.clientWidth));
    const tone = (row) => (row.verdict.startsWith("better") ? css("--good") : row.verdict.startsWith("worse") ? css("--bad") : css("--muted"));
    chart.replaceChildren(asPicture(Plot.plot({
      width, height: 60 + 44 * points.length, marginLeft: 12, marginRight: 16, marginTop: 12, marginBottom: 44,
      ariaLabel: `${state.a} less ${state.b}, with intervals`,
      style: { background: "transparent", color: css("--ink"), fontSize: "13px" },
      x: { label: "difference (points)", grid: true, nice: true, ticks: Math.max(3, width / 110) },
      y: { type: "band", domain: points.map((d) => d.task), axis: null, padding: 0.1 },
      marks: [
        Plot.ruleX([0], { stroke: css("--ink") }),
        Plot.link(points, { x1: "x1", x2: "x2", y1: "task", y2: "task", stroke: tone, strokeWidth: 2.4, dy: 8 }),
        Plot.dot(points, { x: "x", y: "task", fill: tone, r: 5, dy: 8, tip: true, title: (d) => `${d.task}\n${mean(d)} ${interval(d)}\n${d.verdict}, ${d.seeds} seeds` }),
        Plot.text(points, { y: "task", text: (d) => (width < 600 ? d.task : `${d.task}: ${d.verdict}`), frameAnchor: "left", textAnchor: "start", dy: -9, fill: css("--ink"), fontWeight: 600 }),
      ],
    })));
  }

  // --- filters of the whole page ----------------------------------------------------------------------------------
  function filterPage() {
    const off = new Set(data.variants.filter((_, i) => !shown(i)).map((v) => v.label));
    for (const part of document.querySelectorAll("[data-task]")) part.hidden = hidden.tasks.has(part.dataset.task);
    for (const row of document.querySelectorAll("main table[data-sortable] > tbody > tr")) {
      const name = row.cells[0]?.dataset.name;
      if (name != null) row.hidden = name.split(" − ").some((part) => off.has(part));
      else if (row.previousElementSibling && row.classList.contains("why-row")) row.hidden = row.previousElementSibling.hidden;
    }
    const labels = new Map(Object.entries(data.metrics).map(([name, metric]) => [metric.label, name]));
    for (const head of document.querySelectorAll("main table[data-sortable] > thead th")) {
      const { column } = head.dataset;
      const task = names.tasks.find((name) => column.startsWith(`${name}: `));
      const metric = labels.get(column.replace(/( \(%\))? [↓↑]$/, ""));
      const away = (task != null && hidden.tasks.has(task)) || (metric != null && head.cellIndex > 0 && hidden.metrics.has(metric));
      const table = head.closest("table");
      for (const row of table.rows) {
        const cell = row.cells[head.cellIndex];
        if (cell && row.cells.length === head.parentElement.cells.length) cell.hidden = away;
      }
    }
    const count = (kind, all) => (hidden[kind].size ? [`${all.length - hidden[kind].size} of ${all.length} ${kind}`] : []);
    const told = [...count("tasks", names.tasks), ...count("losses", losses), ...count("recipes", recipes), ...count("metrics", names.metrics)];
    $("filter-said").hidden = !told.length;
    $("filter-text").textContent = told.length ? `Shown: ${told.join(", ")}. Printed figures always have all.` : "";
  }

  // --- sorting ----------------------------------------------------------------------------------------------------
  const UNITS = { "%": 1, µs: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, B: 1, kB: 1e3, MB: 1e6, GB: 1e9 };
  function valueOf(cell) {
    const text = (cell?.firstChild?.textContent ?? "").trim().replace(/−/g, "-").replace(/,(?=\d{3})/g, "");
    const parts = [...text.matchAll(/(-?[+]?\d+(?:\.\d+)?)\s*(µs|ms|min|kB|MB|GB|s|h|B|%)?(?![\w])/g)];
    if (!/^[<>+-]?\s*\d/.test(text) || !parts.length) return text;
    const time = parts.length > 1 && parts.every((p) => ["h", "min", "s"].includes(p[2]));
    return (time ? parts : parts.slice(0, 1)).reduce((sum, p) => sum + Number(p[1]) * (UNITS[p[2]] ?? 1), 0);
  }
  const order = (x, y) => {
    if (typeof x === "number" && typeof y === "number") return x - y;
    if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
    return x.localeCompare(y, "en", { numeric: true });
  };

  function sortTable(table, column, direction) {
    table.querySelectorAll("thead th").forEach((head, i) => {
      if (i === column && direction) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    for (const body of table.tBodies) {
      const groups = [];
      for (const row of body.rows) {
        row.dataset.place ??= String([...body.rows].indexOf(row));
        if (row.classList.contains("why-row") && groups.length) groups.at(-1).push(row);
        else groups.push([row]);
      }
      const fixed = groups.filter(([row]) => row.classList.contains("supervision"));
      const rest = groups.filter(([row]) => !row.classList.contains("supervision"));
      rest.sort(([x], [y]) => direction
        ? direction * order(valueOf(x.cells[column]), valueOf(y.cells[column])) || x.dataset.place - y.dataset.place
        : x.dataset.place - y.dataset.place);
      body.append(...[...fixed, ...rest].flat());
    }
  }

  const tables = [...document.querySelectorAll("table[data-sortable]")];
  tables.forEach((table, number) => {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const text = head.textContent;
      head.dataset.column = text;
      head.replaceChildren(make("button", {
        type: "button", class: "sort", title: "Sort by this column",
        onclick: () => {
          const next = { ascending: -1, descending: 0 }[head.getAttribute("aria-sort")] ?? 1;
          state.sort = next ? `${number}.${column}.${next > 0 ? "up" : "down"}` : "";
          writeAddress();
          sortTable(table, column, next);
        },
      }, text));
    });
  });

  function sortFromAddress() {
    const [number, column, way] = state.sort.split(".");
    if (tables[number]?.rows[0]?.cells[column]) sortTable(tables[number], Number(column), way === "down" ? -1 : 1);
  }

  // --- controls ---------------------------------------------------------------------------------------------------
  function options(select, entries, chosen) {
    select.replaceChildren(...entries.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
  }

  function fillControls() {
    const task = data.tasks[state.task];
    const costs = Object.keys(data.metrics).filter((name) => !task.metrics.includes(name) && task.samples.some((s) => s.values[name]));
    const metrics = [...task.metrics, ...costs].filter((name) => !hidden.metrics.has(name) || name === state.metric);
    options($("task"), data.tasks.map((one, i) => [String(i), one.label]), String(state.task));
    options($("metric"), metrics.map((name) => [name, data.metrics[name].label]), state.metric);
    options($("rule"), task.rules.map((rule) => [rule, data.rules[rule]]), state.rule);
    const variants = data.variants.map((variant) => [variant.label, variant.label]);
    options($("first"), [["", "choose a loss"], ...variants], state.a);
    options($("second"), [["", "choose a loss"], ...variants], state.b);
    for (const kind of Object.keys(hidden)) {
      for (const box of document.querySelectorAll(`#show-${kind} input`)) box.checked = !hidden[kind].has(box.value);
    }
  }

  function checkboxes(kind, texts) {
    const group = $(`show-${kind}`);
    group.hidden = names[kind].length < 2;
    names[kind].forEach((name, i) => {
      const box = make("input", {
        type: "checkbox", value: name, checked: true,
        onchange: () => { hidden[kind][box.checked ? "delete" : "add"](name); update(); },
      });
      group.append(make("label", {}, box, ` ${texts?.[i] ?? name}`));
    });
  }

  function update() {
    writeAddress();
    draw();
  }
  function draw() {
    fillControls();
    filterPage();
    drawSeeds();
    drawPair();
  }
  function load() {
    readAddress();
    draw();
    for (const table of tables) if (table.querySelector("[aria-sort]")) sortTable(table, 0, 0);
    sortFromAddress();
  }

  checkboxes("tasks");
  checkboxes("losses");
  checkboxes("recipes", recipes.map((recipe) => recipe || "(as set)"));
  checkboxes("metrics", names.metrics.map((name) => data.metrics[name].label));
  $("task").addEventListener("change", (event) => {
    state.task = Number(event.target.value);
    const task = data.tasks[state.task];
    if (!task.metrics.includes(state.metric)) state.metric = task.metrics[0];
    state.rule = task.rule;
    update();
  });
  $("metric").addEventListener("change", (event) => { state.metric = event.target.value; update(); });
  $("rule").addEventListener("change", (event) => { state.rule = event.target.value; update(); });
  $("first").addEventListener("change", (event) => { state.a = event.target.value; update(); });
  $("second").addEventListener("change", (event) => { state.b = event.target.value; update(); });
  $("show-all").addEventListener("click", () => { for (const set of Object.values(hidden)) set.clear(); update(); });
  $("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      $("copied").textContent = "copied";
    } catch {
      $("copied").textContent = "copy it from the address bar";
    }
  });
  $("explore").hidden = false;
  window.addEventListener("hashchange", load);
  let resizing;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => { drawSeeds(); drawPair(); }, 120); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawSeeds(); drawPair(); });
  load();
})();
