// The controls, and the start: the page without scripts becomes the page with them.
function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
}

function fillControls() {
  const task = data.tasks[state.task];
  const metrics = metricsOf(task).filter((name) => !hidden.metrics.has(name));
  const visible = data.tasks.map((one, i) => [String(i), one.label]).filter(([, label]) => !hidden.tasks.has(label));
  options($("task"), visible, String(state.task));
  options($("metric"), metrics.map((name) => [name, data.metrics[name].label]), state.metric);
  options($("rule"), task.rules.map((rule) => [rule, data.rules[rule]]), state.rule);
  const variants = data.variants.filter((_, i) => shown(i)).map((variant) => [variant.label, variant.label]);
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

// The keyboard stops at a box that scrolls, and at no other one.
function onlyWhereItScrolls() {
  for (const box of document.querySelectorAll(".scroll, .picture, fieldset")) {
    if (box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

// What is left out cannot be chosen: the first of what is shown takes its place.
function chooseVisible() {
  if (hidden.tasks.has(data.tasks[state.task].label)) {
    const index = data.tasks.findIndex((task) => !hidden.tasks.has(task.label));
    if (index >= 0) chooseTask(index);
  }
  if (hidden.metrics.has(state.metric)) state.metric = data.tasks[state.task].metrics[0];
  const off = (label) => data.variants.some((variant, i) => variant.label === label && !shown(i));
  for (const key of ["a", "b"]) if (off(state[key])) state[key] = "";
}

function chooseTask(index) {
  state.task = index;
  const task = data.tasks[index];
  if (!metricsOf(task).includes(state.metric)) state.metric = task.metrics[0];
  state.rule = task.rule;
}

function update() {
  chooseVisible();
  writeAddress();
  draw();
}
function draw() {
  fillControls();
  filterPage();
  drawSeeds();
  drawPair();
  sortAgain();
}
function load() {
  // A link to a part of the page, such as the runs behind a number, changes nothing of what was chosen.
  if (location.hash && !location.hash.startsWith("#?")) {
    if (loaded) return;
  }
  loaded = true;
  readAddress();
  chooseVisible();
  draw();
  for (const table of tables) if (table.querySelector("[aria-sort]")) sortTable(table, 0, 0);
  sortFromAddress();
}

checkboxes("tasks");
checkboxes("losses");
checkboxes("recipes", recipes.map((recipe) => recipe || "(as set)"));
checkboxes("metrics", names.metrics.map((name) => data.metrics[name].label));
$("task").addEventListener("change", (event) => { chooseTask(Number(event.target.value)); update(); });
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
// A closed part would be missing on paper.
window.addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("main details")) part.open = true; });
window.addEventListener("hashchange", load);
let resizing, loaded = false;
window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => { drawSeeds(); drawPair(); onlyWhereItScrolls(); }, 120); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawSeeds(); drawPair(); });
load();
onlyWhereItScrolls();
document.addEventListener("toggle", onlyWhereItScrolls, true);
