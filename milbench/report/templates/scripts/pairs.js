// Two losses side by side, on every task.
function pairRow(task, a, b) {
  const metric = state.metric in task.pairs ? state.metric : task.metrics[0];
  const found = (task.pairs[metric] ?? []).find((p) => (p[0] === a && p[1] === b) || (p[0] === b && p[1] === a));
  if (!found) return null;
  const [first, , difference, low, high, seeds, items, why, forward, backward] = found;
  const [mean, interval, verdict] = first === a ? forward : backward;
  const [x, x1, x2] = first === a ? [difference, low, high] : [-difference, -high, -low];
  const { label, percent } = data.metrics[metric];
  return { task: task.label, metric: label, percent, mean, interval, verdict, seeds, items, why, x, x1, x2, known: low != null };
}

function drawPair() {
  const labels = data.variants.map((variant) => variant.label);
  const a = labels.indexOf(state.a), b = labels.indexOf(state.b);
  const rows = a < 0 || b < 0 || a === b ? []
    : data.tasks.filter((task) => !hidden.tasks.has(task.label)).map((task) => pairRow(task, a, b)).filter((row) => row);
  $("pair-table").hidden = !rows.length;
  $("pair-body").replaceChildren(...rows.map((row) => make("tr", {},
    make("th", { scope: "row" }, row.task),
    ...[row.metric, row.mean, row.interval, row.verdict + (row.why ? ` (${row.why})` : ""), String(row.seeds),
      row.items ? row.items.toLocaleString("en") : "—"].map((text) => make("td", {}, text)))));
  $("pair-said").textContent = pairWords(rows, a, b);
  const drawn = rows.filter((row) => row.known && row.percent);
  $("pair-chart").replaceChildren(...(drawn.length ? [asPicture(pairPlot(drawn))] : []));
}

function pairWords(rows, a, b) {
  if (a < 0 || b < 0) return "Choose two losses to see how they differ on every task.";
  if (a === b) return "Choose two different losses.";
  if (!rows.length) return "These two are compared on no task: they have different supervision, or no result in common.";
  if (rows.length === 1) {
    const [{ task, metric, mean, interval, percent, verdict }] = rows;
    return `${state.a} less ${state.b} on ${task}, ${metric}: ${mean} ${interval}${percent ? " points" : ""}, ${verdict}.`;
  }
  const count = (verdict) => rows.filter((row) => row.verdict.startsWith(verdict)).length;
  const [better, worse] = [count("better"), count("worse")];
  const other = rows.length - better - worse;
  return `${state.a} beside ${state.b}: better on ${better}, worse on ${worse}, unresolved or equivalent on ${other} of ${rows.length} tasks.`;
}

function pairPlot(rows) {
  const css = style();
  const points = rows.map((row) => ({ ...row, x: 100 * row.x, x1: 100 * row.x1, x2: 100 * row.x2 }));
  const width = Math.max(300, Math.min(1020, $("pair-chart").clientWidth));
  const tones = { better: "--good", worse: "--bad" };
  const tone = (row) => css(tones[row.verdict.split(",")[0]] ?? "--muted");
  return Plot.plot({
    ...frameOf(width, 44 * points.length),
    ariaLabel: `${state.a} less ${state.b}, with intervals`,
    x: { label: "difference (points)", grid: true, nice: true, ticks: Math.max(3, width / 110) },
    y: { type: "band", domain: points.map((d) => d.task), axis: null, padding: 0.1 },
    marks: [
      Plot.ruleX([0], { stroke: css("--ink") }),
      Plot.link(points, { x1: "x1", x2: "x2", y1: "task", y2: "task", stroke: tone, strokeWidth: 2.4, dy: 8 }),
      Plot.dot(points, {
        x: "x", y: "task", fill: tone, r: 5, dy: 8, tip: true,
        title: (d) => `${d.task}\n${d.mean} ${d.interval}\n${d.verdict}, ${d.seeds} seeds`,
      }),
      Plot.text(points, { y: "task", text: (d) => (width < 600 ? d.task : `${d.task}: ${d.verdict}`), ...heading(css) }),
    ],
  });
}
