"""Turn the TeX formulas of a page into SVG, so that a browser needs no script for them."""

import html
import re
from functools import cache

import ziamath

MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
"""A pattern of the HTML that the extension pymdownx.arithmatex makes of $...$ and $$...$$."""
SIZES = {"span": 16, "div": 19}
"""The size of the letters of a formula in pixels, by the tag of the formula."""
EM = 16
"""The size of the text around a formula in pixels: one em."""

# With svg2, ziamath would define each letter as a symbol with an id, and these ids would repeat in
# a page.
ziamath.config.svg2 = False


def draw(page: str) -> str:
    r"""Return the HTML of a page with its formulas drawn.

    Examples:
        >>> draw('<p><span class="arithmatex">\\(x_k\\)</span></p>')
        '<p><span class="formula"><svg style=... role="img" aria-label="x_k" ...</svg></span></p>'
    """

    def replaced(found: re.Match[str]) -> str:
        tag = found[1]
        tex = html.unescape(found[2]).strip()
        return _drawn(tag, tex)

    return MARKED.sub(replaced, page)


@cache
def _drawn(tag: str, tex: str) -> str:
    """Return a formula as an element of a page: `span` in a line of text, or `div` by itself."""
    # Without braces, ziamath would space a minus after a bracket like a minus between two numbers.
    unary = tex.replace("(-", "({-}")
    is_inline = tag == "span"
    formula = ziamath.Latex(unary, size=SIZES[tag], color="currentColor", inline=is_inline)
    svg = formula.svg()
    box = re.search(r'viewBox="([^"]+)"', svg)
    if box is None:
        raise ValueError(f"ziamath draws {tex} without a viewBox")
    _, top, width, height = (float(number) / EM for number in box[1].split())
    # The baseline of the letters is at 0. What is below it hangs below the baseline of the text.
    below = top + height
    style = f"width:{width:.3f}em;height:{height:.3f}em;vertical-align:{-below:.3f}em"
    # The attributes with pixels are removed: the size in em, in the style, follows the text.
    svg = re.sub(r' (width|height)="[\d.]+"', "", svg, count=2)
    label = html.escape(tex)
    svg = svg.replace("<svg ", f'<svg style="{style}" role="img" aria-label="{label}" ', 1)
    return f'<{tag} class="formula">{svg}</{tag}>'
