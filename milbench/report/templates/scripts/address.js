// The state of the page is in the part of its address after "#?", so that a link keeps it.
const first = data.tasks[0];
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
  tasks: data.tasks.map((task) => task.label), losses, recipes,
  // The metric that leads on a task is what its tables are about: it cannot be left out.
  metrics: Object.keys(data.metrics).filter((name) => !data.tasks.some((task) => task.metrics[0] === name)),
};

function readAddress() {
  state = defaults();
  for (const kind of Object.keys(hidden)) hidden[kind].clear();
  if (!location.hash.startsWith("#?")) return;
  const found = new URLSearchParams(location.hash.slice(2));
  const task = names.tasks.indexOf(found.get("task"));
  if (task >= 0) state.task = task;
  const chosen = data.tasks[state.task];
  state.metric = metricsOf(chosen).includes(found.get("metric")) ? found.get("metric") : chosen.metrics[0];
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
