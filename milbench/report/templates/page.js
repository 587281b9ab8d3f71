// A table is sorted by a click on the head of a column: by the first number of each cell, else by its text.

const numberIn = (cell) => {
  const text = cell.textContent.trim();
  // Numbers are written with a true minus, and with commas between thousands.
  const plain = text.replace(/−/g, "-").replace(/,/g, "");
  const found = plain.match(/[-+]?\d+(\.\d+)?/);
  if (found) {
    return Number(found[0]);
  }
  // A dash stands where a value is not known. It comes last.
  return text === "—" ? Infinity : NaN;
};

const compareCells = (first, second) => {
  const a = numberIn(first);
  const b = numberIn(second);
  if (Number.isNaN(a) || Number.isNaN(b)) {
    return first.textContent.localeCompare(second.textContent);
  }
  // Two dashes have the difference NaN, and are equal.
  return a - b || 0;
};

const sortBy = (table, column, head) => {
  const isAscending = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.querySelectorAll("th")) {
    other.removeAttribute("aria-sort");
  }
  head.setAttribute("aria-sort", isAscending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((a, b) => compareCells(a.cells[column], b.cells[column]));
  if (isAscending) {
    rows.reverse();
  }
  body.append(...rows);
};

for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    // A button can be reached by the keyboard.
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sortBy(table, column, head));
  });
}

// What is wider than the screen says so, until it has been scrolled.
for (const box of document.querySelectorAll(".picture, .scroll")) {
  const mark = () => {
    const isWider = box.scrollWidth > box.clientWidth + 1;
    const isAtStart = box.scrollLeft < 8;
    box.classList.toggle("wider", isWider && isAtStart);
  };
  new ResizeObserver(mark).observe(box);
  box.addEventListener("scroll", mark);
}
