// Two losses side by side, on every task on which they are compared by the chosen metric.
function pairMetric() {
  // A metric that is compared on no task, such as a cost, gives way to the one that leads on the chosen task.
  return data.tasks.some((task) => Object.hasOwn(task.pairs, state.metric)) ? state.metric : data.tasks[state.task].metrics[0];
}

function pairRow(task, a, b) {
  const metric = pairMetric();
  const pairs = Object.hasOwn(task.pairs, metric) ? task.pairs[metric] : [];
  const found = pairs.find((p) => (p[0] === a && p[1] === b) || (p[0] === b && p[1] === a));
  if (!found) return null;
  const [first, , difference, low, high, seeds, items, why, forward, backward] = found;
  const [mean, interval, verdict] = first === a ? forward : backward;
  const [x, x1, x2] = first === a ? [difference, low, high] : [-difference, -high, -low];
  return { task: task.label, mean, interval, verdict, seeds, items, why, x, x1, x2, known: low != null };
}

function drawPair() {
  const labels = data.variants.map((variant) => variant.label);
  const a = labels.indexOf(state.a), b = labels.indexOf(state.b);
  const metric = data.metrics[pairMetric()];
  const visible = data.tasks.filter((task) => !hidden.tasks.has(task.label));
  const rows = a < 0 || b < 0 || a === b ? [] : visible.map((task) => pairRow(task, a, b)).filter((row) => row);
  $("pair-table").hidden = !rows.length;
  $("difference-head").firstChild.textContent = metric.percent ? "difference (percentage points)" : "difference";
  $("pair-body").replaceChildren(...rows.map((row) => make("tr", {},
    make("th", { scope: "row" }, row.task),
    ...[metric.label, row.mean, row.interval, row.verdict + (row.why ? ` (${row.why})` : ""), String(row.seeds),
      row.items ? row.items.toLocaleString("en") : "—"].map((text) => make("td", {}, text)))));
  $("pair-said").textContent = pairWords(rows, a, b, metric, visible);
  $("pair-note").textContent = pairNote(rows, visible);
  const drawn = rows.filter((row) => row.known);
  $("pair-chart").replaceChildren(...(drawn.length ? [asPicture(pairPlot(drawn, metric.percent ? 100 : 1))] : []));
}

function pairWords(rows, a, b, metric, visible) {
  if (data.apart) return "To keep this page small, two losses are set side by side on the pages of the tasks.";
  if (!visible.length) return "No task is shown.";
  if (a < 0 || b < 0) return "Choose two losses to see how they differ on every task.";
  if (a === b) return "Choose two different losses.";
  if (!rows.length) return `These two are compared by ${metric.label} on no task that is shown: they have different supervision, or no result in common.`;
  if (rows.length === 1) {
    const [{ task, mean, interval, verdict, why }] = rows;
    const bounds = why ? `without an interval (${why})` : `${interval}${metric.percent ? " percentage points" : ""}`;
    return `${state.a} minus ${state.b} on ${task}, ${metric.label}: ${mean} ${bounds}; ${state.a} is ${verdict}.`.replace("is not ranked", "and the other are not ranked");
  }
  const count = (verdict) => rows.filter((row) => row.verdict.startsWith(verdict)).length;
  const told = ["better", "worse", "unresolved", "equivalent", "not ranked"].map((verdict) => [verdict, count(verdict)]);
  const counts = told.filter(([verdict, n]) => n || verdict === "better" || verdict === "worse").map(([verdict, n]) => `${verdict} on ${n}`);
  return `${state.a} beside ${state.b}, by ${metric.label}: ${counts.join(", ")} of ${rows.length} tasks.`;
}

function pairNote(rows, visible) {
  if (!rows.length) return "";
  const asked = data.metrics[state.metric].label, metric = data.metrics[pairMetric()].label;
  const rules = [...new Set(visible.map((task) => data.rules[task.rule]))];
  const others = visible.length - rows.length;
  return [
    asked === metric ? "" : `Losses are not compared by ${asked}; ${metric} is shown.`,
    `At the epoch by which losses are compared: ${rules.join("; ")}.`,
    others ? `${others} of ${visible.length} tasks that are shown have no such difference.` : "",
  ].filter((text) => text).join(" ");
}

function pairPlot(rows, unit) {
  const css = style();
  const points = rows.map((row) => ({ ...row, x: unit * row.x, x1: unit * row.x1, x2: unit * row.x2 }));
  const width = Math.max(300, Math.min(1020, $("pair-chart").clientWidth));
  const tones = { better: "--good", worse: "--bad" };
  const tone = (row) => css(tones[row.verdict.split(",")[0]] ?? "--muted");
  return Plot.plot({
    ...frameOf(width, 44 * points.length),
    ariaLabel: `${state.a} less ${state.b}, with intervals`,
    x: { label: unit === 100 ? "difference (percentage points)" : "difference", grid: true, labelOffset: LABEL, nice: true, ticks: Math.max(3, width / 110) },
    y: { type: "band", domain: points.map((d) => d.task), axis: null, padding: 0.1 },
    marks: [
      Plot.ruleX([0], { stroke: css("--ink") }),
      Plot.link(points, { x1: "x1", x2: "x2", y1: "task", y2: "task", stroke: tone, strokeWidth: 2.4, dy: 8 }),
      Plot.dot(points, {
        x: "x", y: "task", fill: tone, r: 5, dy: 8, tip: true,
        title: (d) => `${d.task}\n${d.mean} ${d.interval}\n${d.verdict}, ${d.seeds} seeds`,
      }),
      Plot.text(points, { y: "task", text: (d) => `${d.verdict}: ${d.task}`, ...heading(css) }),
    ],
  });
}
