// The chart of every seed, and its tables.
function style() {
  const css = getComputedStyle(document.documentElement);
  return (name) => css.getPropertyValue(name).trim();
}

// What charts have in common: their size and font, and where the name of a row stands.
const frameOf = (width, height) => ({
  width, height: 60 + height, marginLeft: 28, marginRight: 28, marginTop: 12, marginBottom: 44,
  style: { background: "transparent", color: style()("--ink"), fontSize: "13px" },
});
const LABEL = 36; // pixels from the axis to the end of its label, whose letters would reach below the chart otherwise
const heading = (css) => ({ frameAnchor: "left", textAnchor: "start", dy: -9, fill: css("--ink"), fontWeight: 600 });

// A chart is one picture with a name; what its marks say stands in the table below it.
function asPicture(chart) {
  const svg = chart.matches("svg") ? chart : chart.querySelector("svg");
  svg.setAttribute("role", "img");
  for (const part of svg.querySelectorAll("g[aria-label]")) part.removeAttribute("aria-label");
  return chart;
}

function drawSeeds() {
  const task = data.tasks[state.task];
  const nothing = hidden.tasks.has(task.label);
  const rows = nothing ? [] : task.samples.filter((sample) => shown(sample.variant) && sampleOf(sample, state.metric, state.rule));
  const unit = data.metrics[state.metric].percent ? 100 : 1;
  const dots = [], means = [], table = [];
  for (const sample of rows) {
    const { v, m: [mean, low, high] } = sampleOf(sample, state.metric, state.rule);
    const { label, colour } = data.variants[sample.variant];
    const runs = runsOf(sample.anchor);
    sample.seeds.forEach((seed, i) => {
      const run = runs[seed] ?? "on the page of the task";
      if (v[i] != null) dots.push({ label, colour, x: unit * v[i], seed, value: v[i], run });
      table.push([label, seed, v[i], run]);
    });
    if (mean != null) means.push({ label, x: unit * mean, low: unit * low, high: unit * high, interval: low != null });
  }
  const labels = rows.map((sample) => data.variants[sample.variant].label);
  const guess = state.metric === task.metrics[0] && task.chance != null ? unit * task.chance : null;
  $("seeds-chart").replaceChildren(labels.length
    ? asPicture(seedsPlot(labels, dots, means, guess))
    : make("p", { class: "note" }, nothing ? "No task is shown." : "No loss with this metric is shown."));
  fillSeeds(rows, table);
}

function seedsPlot(labels, dots, means, guess) {
  const metric = data.metrics[state.metric];
  const css = style();
  const width = Math.max(300, Math.min(1020, $("seeds-chart").clientWidth));
  const values = dots.map((d) => d.x);
  const log = values.length > 0 && Math.min(...values) > 0 && Math.max(...values) > 20 * Math.min(...values);
  // Bounds below what a logarithmic scale can show end at its edge.
  const least = log ? Math.min(...values) / 2 : -Infinity;
  const bounded = means.filter((d) => d.interval).map((d) => ({ ...d, low: Math.max(d.low, least) }));
  const scale = log ? { type: "log", ticks: 4, tickFormat: "~g" } : { nice: true, ticks: Math.max(3, width / 110) };
  return Plot.plot({
    ...frameOf(width, 46 * labels.length),
    ariaLabel: `${metric.label} of every seed on ${data.tasks[state.task].label}`,
    x: { label: `${metric.label}${metric.percent ? " (%)" : ""}${log ? ", log scale" : ""}`, grid: true, labelOffset: LABEL, ...scale },
    y: { type: "band", domain: labels, axis: null, padding: 0.1 },
    marks: [
      guess == null ? null : Plot.ruleX([guess], { stroke: css("--muted"), strokeDasharray: "2,3" }),
      Plot.link(bounded, { x1: "low", x2: "high", y1: "label", y2: "label", stroke: css("--ink"), strokeWidth: 1.4, dy: 8 }),
      Plot.tickX(means, { x: "x", y: "label", stroke: css("--ink"), strokeWidth: 2.2, insetTop: 22, insetBottom: 4 }),
      Plot.text(labels, { y: (d) => d, text: (d) => d, ...heading(css) }),
      Plot.dot(dots, {
        x: "x", y: "label", fill: "colour", fillOpacity: 0.8, r: 5, dy: 8, tip: true,
        title: (d) => `${d.label}\nseed ${d.seed}: ${format(d.value, state.metric)}\nrun ${d.run}`,
      }),
    ],
  });
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
  const task = data.tasks[state.task];
  const cost = !task.metrics.includes(metric);
  $("mean-head").firstChild.textContent = cost ? "median" : "mean";
  $("rule").disabled = cost;
  $("rule-note").textContent = cost
    ? "A dot a seed; tick: the median. Costs have no epoch and no interval; whether the machine was busy stands in the table of costs."
    : `A dot a seed, ${data.rules[state.rule]}; tick: the mean; line: its 95 % interval over seeds. ` +
      (state.rule === task.rule ? "Losses are compared by this epoch." : `Losses are compared by another epoch: ${data.rules[task.rule]}.`);
}
