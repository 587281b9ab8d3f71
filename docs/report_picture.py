"""Draw docs/report.png: the first section of the page of a report, with numbered marks.

docs/report.md says what each mark is. The page is that of a published report, so that the picture
can be made again; its table is shortened.

It needs Playwright and Chromium. Run from the root of the repository:
python docs/report_picture.py
"""

import io
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from milbench.report.published_reports import read
from milbench.report.render import render

DOCS = Path(__file__).parent
REPORT = DOCS.parent / "reports" / "sound-events"
WIDTH = 760
"""The width of the window in pixels: about that of the text of the site."""
SCALE = 1.5
"""Pixels of the picture for a pixel of the window, so that letters are sharp on fine screens."""
COLOURS = 256

SHORTEN = """() => {
  const [body] = document.querySelector("#answer table").tBodies;
  [...body.rows].slice(4, -1).forEach((row) => row.remove());
}"""
"""JavaScript that leaves four losses and the last row in the table of all losses."""
# In the picture of the page dots are half transparent, and the diamonds of means have an edge. The
# last loss has the widest bar.
MARK = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const saying = (words) => (one) => one.textContent.startsWith(words);
  const dots = all("#seeds use").filter((one) => one.style.fillOpacity);
  const means = all("#seeds use").filter((one) => one.style.strokeWidth && !one.style.fillOpacity);
  const marked = [
    [all(".contents summary")[0], "left"],
    [all(".answer")[0], "left"],
    [all("#seeds path").find((one) => one.style.strokeDasharray), "above"],
    [all("#seeds text").find(saying("worse by")), "left"],
    [all("#seeds text").find(saying("✓")), "left"],
    [means[3], "left"],
    [dots.at(-5), "left"],
    [means.at(-1), "above"],
    [all("#answer caption")[0], "left"],
    [all("#answer .copy")[0], "left"],
    [all("#limits summary")[0], "left"],
  ];
  marked.forEach(([element, side], index) => {
    const box = element.getBoundingClientRect();
    const left = side === "left" ? box.left - 23 : box.left + box.width / 2 - 10;
    const top = side === "left" ? box.top + Math.min(box.height, 26) / 2 - 10 : box.top - 22;
    const mark = document.createElement("b");
    mark.textContent = index + 1;
    mark.style = `position: absolute; left: ${Math.max(left, 1)}px; top: ${top}px;
      width: 20px; height: 20px; border-radius: 10px; background: #00695c; color: #fff;
      font: 700 13px/20px sans-serif; text-align: center`;
    document.body.append(mark);
  });
  return document.querySelector("#answer").getBoundingClientRect().bottom;
}"""
"""JavaScript that puts the marks on the page, and returns the lower edge of its first section."""


def screenshot(page: Any) -> Image.Image:
    """Return the page down to the end of its first section, with marks."""
    page.evaluate(SHORTEN)
    bottom = page.evaluate(MARK)
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": bottom + 8}
    return Image.open(io.BytesIO(page.screenshot(clip=clip, full_page=True)))


def main() -> None:
    """Draw the picture."""
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = render(read(REPORT), Path(folder))
        executable = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        size = {"width": WIDTH, "height": 900}
        page = browser.new_page(viewport=size, device_scale_factor=SCALE)
        page.goto(report.as_uri())
        # Few colours make a small file.
        picture = screenshot(page).convert("RGB").quantize(COLOURS)
        picture.save(DOCS / "report.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
