// Whatever is wider than the page is scrolled. A keyboard can scroll only what it can reach.
(() => {
  const wide = ".md-typeset__scrollwrap, .scrolled, .minimises, div.formula, p:has(> img:only-child)";
  const reach = () => {
    for (const part of document.querySelectorAll(wide)) {
      const scrolls = part.scrollWidth > part.clientWidth;
      if (scrolls) part.tabIndex = 0;
      else part.removeAttribute("tabindex");
    }
  };
  reach();
  // The theme wraps tables after the page has loaded, and a turned telephone changes the width.
  new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
  addEventListener("resize", reach);
})();
