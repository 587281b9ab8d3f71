"""Formulas: TeX in Markdown becomes SVG in the page, so that no reader's browser runs or fetches anything for it."""

import html
import re
from functools import cache

import ziamath

MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
"""What pymdownx.arithmatex makes of $...$ and $$...$$."""
SIZES = {"span": 16, "div": 19}
"""Of the letters, in pixels at the size of the text around them."""
EM = 16

ziamath.config.svg2 = False  # paths in place of symbols, whose ids would repeat in a page


def draw(page: str) -> str:
    r"""Return the HTML of a page with its formulas drawn.

    Examples:
        >>> draw('<p><span class="arithmatex">\\(x_k\\)</span></p>')
        '<p><span class="formula"><svg style=... role="img" aria-label="x_k" ...</svg></span></p>'
    """
    return MARKED.sub(lambda found: _drawn(found[1], html.unescape(found[2]).strip()), page)


@cache
def _drawn(tag: str, tex: str) -> str:
    unary = tex.replace("(-", "({-}")  # which ziamath sets apart like a difference otherwise
    svg = ziamath.Latex(unary, size=SIZES[tag], color="currentColor", inline=tag == "span").svg()
    box = re.search(r'viewBox="([^"]+)"', svg)
    if box is None:
        raise ValueError(f"ziamath draws {tex} without a viewBox")
    _, top, width, height = (float(number) / EM for number in box[1].split())
    style = f"width:{width:.3f}em;height:{height:.3f}em;vertical-align:{-(top + height):.3f}em"
    svg = re.sub(r' (width|height)="[\d.]+"', "", svg, count=2)
    svg = svg.replace(
        "<svg ", f'<svg style="{style}" role="img" aria-label="{html.escape(tex)}" ', 1
    )
    return f'<{tag} class="formula">{svg}</{tag}>'
