// Which loss: the page shows one question or leaf at a time, that which the address names.
// Without this script the page shows all of them, one below the other.

const headings = [...document.querySelectorAll("article h2[id]")];

// A heading, and all that stands below it up to the next one.
const sectionOf = (heading) => {
  const members = [heading];
  let next = heading.nextElementSibling;
  while (next && next.tagName !== "H2") {
    members.push(next);
    next = next.nextElementSibling;
  }
  return members;
};

const sections = headings.map(sectionOf);

const show = () => {
  const name = decodeURIComponent(location.hash.slice(1));
  const chosen = headings.find((heading) => heading.id === name) ?? headings[0];
  for (const members of sections) {
    for (const member of members) {
      member.hidden = members[0] !== chosen;
    }
  }
  for (const link of document.querySelectorAll(".map a")) {
    if (link.getAttribute("href") === `#${chosen.id}`) {
      link.setAttribute("aria-current", "true");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  return chosen;
};

// Until now the chosen section was hidden, so that the browser could not go there.
const goOn = () => {
  const chosen = show();
  chosen.tabIndex = -1;
  chosen.focus({ preventScroll: true });
  chosen.scrollIntoView({ block: "nearest" });
};

show();
window.addEventListener("hashchange", goOn);
