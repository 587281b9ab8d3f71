// Which loss: the page shows one question or leaf at a time, that which the address names.
// Without this script the page shows all of them, one below the other.

const headings = [...document.querySelectorAll("article h2[id]")];

// A heading, and all elements below it up to the next one.
const sectionOf = (heading) => {
  const section = [heading];
  let next = heading.nextElementSibling;
  while (next && next.tagName !== "H2") {
    section.push(next);
    next = next.nextElementSibling;
  }
  return section;
};

const sections = headings.map(sectionOf);

const show = () => {
  const name = decodeURIComponent(location.hash.slice(1));
  const chosen = sections.find(([heading]) => heading.id === name) ?? sections[0];
  for (const section of sections) {
    for (const element of section) {
      element.hidden = section !== chosen;
    }
  }
  for (const link of document.querySelectorAll(".advice a")) {
    if (link.getAttribute("href") === `#${chosen[0].id}`) {
      link.setAttribute("aria-current", "true");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  return chosen;
};

// Until now the section was hidden, so that the browser could not go there. All of it is seen if
// it fits on the screen, else its beginning.
const goOn = () => {
  const section = show();
  section.at(-1).scrollIntoView({ block: "nearest" });
  section[0].scrollIntoView({ block: "nearest" });
  section[0].tabIndex = -1;
  section[0].focus({ preventScroll: true });
};

window.addEventListener("hashchange", goOn);
if (location.hash) {
  goOn();
} else {
  show();
}
