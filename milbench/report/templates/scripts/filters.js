// Tasks, losses, recipes and metrics that are left out, on the whole page.
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
    const away = (head.cellIndex > 0 && off.has(column)) || (task != null && hidden.tasks.has(task)) || (metric != null && head.cellIndex > 0 && hidden.metrics.has(metric));
    const table = head.closest("table");
    for (const row of table.rows) {
      const cell = row.cells[head.cellIndex];
      if (cell && row.cells.length === head.parentElement.cells.length) cell.hidden = away;
    }
  }
  const count = (kind, all) => (hidden[kind].size ? [`${all.length - hidden[kind].size} of ${all.length} ${kind}`] : []);
  const told = [...count("tasks", names.tasks), ...count("losses", losses), ...count("recipes", recipes), ...count("metrics", names.metrics)];
  $("filter-said").hidden = !told.length;
  $("filter-text").textContent = told.length ? `Tables and charts show ${told.join(", ")}. Sentences and static figures have all.` : "";
}
