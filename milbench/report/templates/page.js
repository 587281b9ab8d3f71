// Tables are sorted by a click on a column's head: by the first number of each cell, else by its text.
const amount = (cell) => {
  const found = cell.textContent.replace(/−/g, "-").replace(/,/g, "").match(/[-+]?\d+(\.\d+)?/);
  return found ? Number(found[0]) : cell.textContent.trim() === "—" ? Infinity : NaN;
};
const compare = (a, b) => {
  const [x, y] = [amount(a), amount(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.textContent.localeCompare(b.textContent) : x - y || 0;
};
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(a.cells[column], b.cells[column]));
      table.tBodies[0].append(...(down ? rows.reverse() : rows));
    });
  });
}
// What is wider than the screen says so, until it has been scrolled.
for (const box of document.querySelectorAll(".picture, .scroll")) {
  const mark = () => box.classList.toggle("wider", box.scrollWidth > box.clientWidth + 1 && box.scrollLeft < 8);
  new ResizeObserver(mark).observe(box);
  box.addEventListener("scroll", mark);
}
