// The leaderboard: a form filters its tables, and a click on the head of a column sorts a table.
// The address of the page holds what was asked, so that it can be sent to somebody.

const form = document.getElementById("filters");
const boards = [...document.querySelectorAll(".board")];

const showColumns = (table, use) => {
  const heads = [...table.tHead.rows[0].cells];
  for (const row of table.rows) {
    heads.forEach((head, column) => {
      row.cells[column].hidden = column > 0 && use !== "" && head.dataset.use !== use;
    });
  }
  return use === "" || heads.some((head) => head.dataset.use === use);
};

const showRows = (table, text) => {
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    row.hidden = !row.cells[0].textContent.toLowerCase().includes(text);
    shown += row.hidden ? 0 : 1;
  }
  return shown > 0;
};

const filter = () => {
  const asked = Object.fromEntries(new FormData(form));
  const text = asked.text.trim().toLowerCase();
  let shown = 0;
  for (const board of boards) {
    const table = board.querySelector("table");
    const fits = ["kind", "length", "budget"].every(
      (name) => asked[name] === "" || board.dataset[name] === asked[name],
    );
    const hasUse = showColumns(table, asked.use);
    const hasRows = showRows(table, text);
    board.hidden = !(fits && hasUse && hasRows);
    shown += board.hidden ? 0 : 1;
  }
  form.querySelector("output").textContent = `${shown} of ${boards.length} tables`;
  keepInAddress(asked);
};

const keepInAddress = (asked) => {
  const given = Object.entries(asked).filter(([, value]) => value !== "");
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  history.replaceState(null, "", location.pathname + query + location.hash);
};

const takeFromAddress = () => {
  for (const [name, value] of new URLSearchParams(location.search)) {
    const field = form.elements.namedItem(name);
    if (field) {
      field.value = value;
      // A select that lacks the value would show an empty line.
      if (field.value !== value) {
        field.value = "";
      }
    }
  }
};

const numberIn = (cell) => {
  // Numbers are written with a true minus. A dash stands where a value is not known.
  return parseFloat(cell.textContent.replace(/−/g, "-"));
};

const compareCells = (first, second) => {
  const a = numberIn(first);
  const b = numberIn(second);
  return a - b || first.textContent.localeCompare(second.textContent);
};

const isKnown = (row, column) => column === 0 || !Number.isNaN(numberIn(row.cells[column]));

// The best value comes first: the largest one in a column whose head has an arrow upwards.
const sortBy = (table, column, head) => {
  const first = head.textContent.includes("↑") ? "descending" : "ascending";
  const second = first === "ascending" ? "descending" : "ascending";
  const order = head.getAttribute("aria-sort") === first ? second : first;
  for (const other of table.tHead.rows[0].cells) {
    other.removeAttribute("aria-sort");
  }
  head.setAttribute("aria-sort", order);
  const body = table.tBodies[0];
  const rows = [...body.rows].filter((row) => isKnown(row, column));
  const unknown = [...body.rows].filter((row) => !isKnown(row, column));
  rows.sort((a, b) => compareCells(a.cells[column], b.cells[column]));
  if (order === "descending") {
    rows.reverse();
  }
  body.append(...rows, ...unknown);
};

for (const board of boards) {
  const table = board.querySelector("table");
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    // A button can be reached by the keyboard.
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sortBy(table, column, head));
  });
}

form.hidden = false;
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
takeFromAddress();
filter();
