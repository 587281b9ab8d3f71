// What the theme leaves to mend for readers with a keyboard or a screen reader. The theme makes
// parts of a page while the page is read, so that each change is looked at.
(() => {
  const wide = ".md-typeset__scrollwrap, .scrolled, .minimises, div.formula, p:has(> img:only-child)";

  // Every block of code has a landmark of the page, and all have one name. They are none.
  const takeBackLandmarks = () => {
    for (const nav of document.querySelectorAll(".md-code__nav:not([role])")) {
      nav.setAttribute("role", "none");
    }
  };

  // The search is a dialog, and a dialog has a name.
  const nameSearch = () => {
    document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  };

  // Whatever is wider than the page is scrolled. A keyboard can scroll only what it can reach.
  const reachWideParts = () => {
    for (const part of document.querySelectorAll(wide)) {
      const scrolls = part.scrollWidth > part.clientWidth;
      if (scrolls) part.tabIndex = 0;
      else part.removeAttribute("tabindex");
    }
  };

  const mend = () => {
    takeBackLandmarks();
    reachWideParts();
  };

  nameSearch();
  mend();
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
  // A turned telephone changes the width.
  addEventListener("resize", reachWideParts);
})();
