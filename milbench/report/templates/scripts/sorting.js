// Tables, sorted by any column; a third click brings back their order.
const UNITS = { "%": 1, µs: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, B: 1, kB: 1e3, MB: 1e6, GB: 1e9 };
function valueOf(cell) {
  const text = (cell?.dataset.name ?? cell?.firstChild?.textContent ?? "").trim().replace(/−/g, "-").replace(/,(?=\d{3})/g, "").replace(/^\[/, "");
  if (text === "" || text === "—") return null;
  const parts = [...text.matchAll(/(-?[+]?\d+(?:\.\d+)?)\s*(µs|ms|min|kB|MB|GB|s|h|B|%)?(?![\w])/g)];
  if (!/^[<>+-]?\s*\d/.test(text) || !parts.length) return text;
  const time = parts.length > 1 && parts.every((p) => ["h", "min", "s"].includes(p[2]));
  return (time ? parts : parts.slice(0, 1)).reduce((sum, p) => sum + Number(p[1]) * (UNITS[p[2]] ?? 1), 0);
}
// What is missing comes last, whichever way a column is sorted.
const order = (x, y, direction) => {
  if (x == null || y == null) return (x == null) - (y == null);
  return direction * compare(x, y);
};
const compare = (x, y) => {
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
      ? order(valueOf(x.cells[column]), valueOf(y.cells[column]), direction) || x.dataset.place - y.dataset.place
      : x.dataset.place - y.dataset.place);
    body.append(...[...fixed, ...rest].flat());
  }
}

const tables = [...document.querySelectorAll("table[data-sortable]")];
tables.forEach((table, number) => {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const text = head.textContent;
    head.dataset.column = text;
    head.append(make("button", {
      type: "button", class: "sort", title: "Sort by this column",
      onclick: () => {
        const next = { ascending: -1, descending: 0 }[head.getAttribute("aria-sort")] ?? 1;
        state.sort = next ? `${number}.${column}.${next > 0 ? "up" : "down"}` : "";
        writeAddress();
        sortTable(table, column, next);
      },
    }, ...head.childNodes));
  });
});

function sortFromAddress() {
  const [number, column, way] = state.sort.split(".");
  if (tables[number]?.rows[0]?.cells[column]) sortTable(tables[number], Number(column), way === "down" ? -1 : 1);
}

// Tables whose lines were made anew keep the order that their heads show.
function sortAgain() {
  for (const table of tables) {
    const heads = [...table.querySelectorAll("thead th")];
    const column = heads.findIndex((head) => head.hasAttribute("aria-sort"));
    if (column >= 0) sortTable(table, column, heads[column].getAttribute("aria-sort") === "ascending" ? 1 : -1);
  }
}
