// The controls, and the start: the page without scripts becomes the page with them.
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
