// What the theme leaves to mend for readers with a keyboard or a screen reader. It makes parts of a
// page while the page is read, so that each change is looked at.

const mend = () => {
  // Every block of code has a landmark of the page, and all have one name. They are none.
  for (const nav of document.querySelectorAll(".md-code__nav:not([role])")) {
    nav.setAttribute("role", "none");
  }
  // A wide table or picture is scrolled sideways, also by the keyboard.
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, p:has(> img:only-child)")) {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
    }
  }
};

new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
mend();
