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

// What a reader may want elsewhere has a button that copies it. A browser without a clipboard has no button.

const rowsOf = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));

const csvOf = (table) => {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  return rowsOf(table).map((row) => `${row.map(quoted).join(",")}\n`).join("");
};

const markdownOf = (table) => {
  const lineOf = (row) => `| ${row.map((text) => text.replace(/\|/g, "\\|")).join(" | ")} |\n`;
  const [head, ...rows] = rowsOf(table);
  return [head, head.map(() => "---"), ...rows].map(lineOf).join("");
};

const copyButton = (label, name, textOf) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = label;
  button.setAttribute("aria-label", name);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(textOf());
    button.textContent = "copied";
    setTimeout(() => { button.textContent = label; }, 2000);
  });
  return button;
};

if (navigator.clipboard) {
  for (const box of document.querySelectorAll(".scroll")) {
    const table = box.querySelector("table");
    const title = table.caption.textContent;
    box.after(
      copyButton("copy as CSV", `copy as CSV: ${title}`, () => csvOf(table)),
      copyButton("copy as Markdown", `copy as Markdown: ${title}`, () => markdownOf(table)),
    );
  }
  for (const code of document.querySelectorAll(".command")) {
    code.after(copyButton("copy", "copy the command", () => code.textContent));
  }
}

// The contents are open where they stand at the side, and folded above a narrow page.

const targetOf = (hash) => document.getElementById(hash.slice(1));
const contents = document.querySelector(".contents");
const isWide = matchMedia("(min-width: 1200px)");
const unfold = () => { contents.open = isWide.matches; };
isWide.addEventListener("change", unfold);
unfold();

// The contents show which section is read: the last one that begins in the upper third of the screen or above it.

const links = [...contents.querySelectorAll("a")];
const hasBegun = (link) => targetOf(link.hash).getBoundingClientRect().top < innerHeight / 3;
const markCurrent = () => {
  // The last section may be too short to come up so far.
  const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  const begun = isAtEnd ? links : links.filter(hasBegun);
  contents.querySelector("[aria-current]")?.removeAttribute("aria-current");
  (begun.at(-1) ?? links[0]).setAttribute("aria-current", "true");
};
addEventListener("scroll", markCurrent, { passive: true });
markCurrent();

// A link leads into a section that is folded: it opens.

const openTarget = () => {
  const target = targetOf(location.hash);
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
  }
};
addEventListener("hashchange", openTarget);
openTarget();

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
