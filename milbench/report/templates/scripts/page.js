// The data of the page and what all scripts share. They draw and sort; all statistics are in the data.
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

const shown = (index) => {
  const variant = data.variants[index];
  return !hidden.losses.has(variant.loss) && !hidden.recipes.has(variant.recipe);
};
const format = (value, metric) => {
  if (value == null) return "—";
  if (data.metrics[metric].percent) return `${+(100 * value).toPrecision(4)} %`;
  return `${+value.toPrecision(4)}`;
};
// The metrics of a task, and the costs that were measured on it.
const costsOf = (task) => Object.keys(data.metrics).filter((name) => !task.metrics.includes(name) && task.samples.some((s) => Object.hasOwn(s.values, name)));
const metricsOf = (task) => [...task.metrics, ...costsOf(task)];
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
