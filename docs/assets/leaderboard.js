// The leaderboard: a form filters its tables, and a click on the head of a column sorts a table.
// The address of the page holds what was asked, so that it can be sent to somebody.

const form = document.getElementById("filters");
const clear = form.querySelector("button");
const boards = [...document.querySelectorAll(".board")];
const orderOfPage = new Map(boards.map((board) => [board, [...board.querySelectorAll("tbody tr")]]));

const showColumns = (table, use) => {
  const heads = [...table.tHead.rows[0].cells];
  for (const row of table.rows) {
    heads.forEach((head, column) => {
      row.cells[column].hidden = column > 0 && use !== "" && head.dataset.use !== use;
    });
  }
  return use === "" || heads.some((head) => head.dataset.use === use);
};

// The words of a name: "set-transformer" and "Set transformer" have the same ones.
const wordsOf = (text) => text.toLowerCase().split(/[\s-]+/).filter((word) => word !== "");

// Each name is a list of words, all of which a row has to have. Without names all rows fit.
const isNamed = (text, names) => {
  const words = wordsOf(text).join(" ");
  return names.length === 0 || names.some((name) => name.every((word) => words.includes(word)));
};

const showRows = (table, names) => {
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    row.hidden = !isNamed(row.cells[0].textContent, names);
    shown += row.hidden ? 0 : 1;
  }
  return shown > 0;
};

const filter = () => {
  const asked = Object.fromEntries(new FormData(form));
  const names = asked.text.split(",").map(wordsOf).filter((words) => words.length > 0);
  let shown = 0;
  for (const board of boards) {
    const table = board.querySelector("table");
    const fits = ["kind", "length", "budget"].every(
      (name) => asked[name] === "" || board.dataset[name] === asked[name],
    );
    const hasUse = showColumns(table, asked.use);
    const hasRows = showRows(table, names);
    board.hidden = !(fits && hasUse && hasRows);
    shown += board.hidden ? 0 : 1;
  }
  form.querySelector("output").textContent =
    shown > 0 ? `${shown} of ${boards.length} tables` : "No table fits.";
  clear.hidden = shown > 0;
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

// The best value is the largest one in a column whose head has an arrow upwards.
const bestFirst = (head) => (head.textContent.includes("↑") ? "descending" : "ascending");

const OPPOSITE = { ascending: "descending", descending: "ascending" };

const onClick = (table, head) => {
  const order = bestFirst(head);
  sortBy(table, head, head.getAttribute("aria-sort") === order ? OPPOSITE[order] : order);
};

const forgetOrder = (table) => {
  for (const head of table.tHead.rows[0].cells) {
    head.removeAttribute("aria-sort");
  }
};

const sortBy = (table, head, order) => {
  const column = head.cellIndex;
  forgetOrder(table);
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

// The best losses for the use come first. With all uses, rows are in the order of the page.
const sortByUse = () => {
  for (const board of boards) {
    const table = board.querySelector("table");
    const heads = [...table.tHead.rows[0].cells];
    const head = heads.find((one) => one.dataset.use === form.elements.use.value);
    if (head) {
      sortBy(table, head, bestFirst(head));
    } else {
      forgetOrder(table);
      table.tBodies[0].append(...orderOfPage.get(board));
    }
  }
};

for (const board of boards) {
  const table = board.querySelector("table");
  for (const head of table.tHead.rows[0].cells) {
    // A button can be reached by the keyboard.
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => onClick(table, head));
  }
}

form.hidden = false;
form.addEventListener("input", filter);
form.elements.use.addEventListener("input", sortByUse);
form.addEventListener("submit", (event) => event.preventDefault());
clear.addEventListener("click", () => {
  form.reset();
  sortByUse();
  filter();
});
takeFromAddress();
sortByUse();
filter();
