"""SVG of matplotlib, made small: a page of many figures has to load on a telephone."""

from __future__ import annotations

import re
from collections import Counter

_TAG = re.compile(r"<[^>]*>")
_NUMBER = re.compile(r"(?<![\w#.-])-?\d+\.\d+(?:e-?\d+)?")
_STYLE = re.compile(r' style="([^"]*)"')
_PATH = re.compile(r' d="([^"]*)"')
_RUN = re.compile(r'(?:<use [^>]*style="([^"]*)"/>\s*)(?:<use [^>]*style="\1"/>\s*)+')
_STROKES = re.compile(r'<path d="[^"]*"((?: clip-path="[^"]*")?) style="([^"]*)"/>(?:<path d="[^"]*"\1 style="\2"/>)+')
_EMPTY = re.compile(r"<g(?: [^>]*)?/>|<g(?: [^>]*)?>\s*</g>")
_BARE = re.compile(r"<g>((?:(?!</?g[ >]).)*)</g>", re.DOTALL)
_LEAST_USES = 4
"""A style that occurs so often has a class: with fewer the rule would be as long as what it saves."""


def slim(svg: str, prefix: str) -> str:
    r"""Return the same drawing in fewer characters: coordinates of a hundredth of a point, nothing empty or twice.

    Args:
        svg: what matplotlib wrote, from "<svg" on.
        prefix: the beginning of its ids, which no other drawing of the page has.

    Examples:
        >>> slim('<g id="line2d_1"/> <path d="M 1.23456 7.000001 L 2 3" style="fill: none; stroke: red"/>', "a")
        '<path d="M1.23 7L2 3" style="fill:none;stroke:red"/>'
    """
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)  # a page has a font of its own
    svg = _TAG.sub(lambda tag: _NUMBER.sub(_rounded, tag[0]), svg)
    svg = _PATH.sub(lambda found: f' d="{_tight(found[1])}"', svg)
    svg = _STYLE.sub(lambda found: found[0].replace(": ", ":").replace("; ", ";"), svg)
    svg = _RUN.sub(_shared_style, _short_ids(svg, prefix))
    before = ""
    while before != svg:
        before, svg = svg, _BARE.sub(r"\1", _EMPTY.sub("", svg))
    return _STROKES.sub(_shared_place, re.sub(r">\s+<", "><", svg)).strip()


def with_classes(page: str) -> tuple[str, str]:
    """Return a page of which frequent styles of drawings are classes, and the rules of these classes.

    Examples:
        >>> with_classes('<i style="fill:none"/>' * 5)[1]
        '.s0{fill:none}'
    """
    counts = Counter(_STYLE.findall(page))
    names = {style: f"s{i}" for i, (style, n) in enumerate(counts.most_common()) if n >= _LEAST_USES}
    page = _STYLE.sub(lambda found: f' class="{names[found[1]]}"' if found[1] in names else found[0], page)
    return page, "\n".join(f".{name}{{{style}}}" for style, name in names.items())


def _short_ids(svg: str, prefix: str) -> str:
    """Return the drawing with short ids where something refers to them, and without the others."""
    used = dict.fromkeys(re.findall(r'(?:url\(|href=")#([^)"]*)', svg))
    names = {old: f"{prefix}{i}" for i, old in enumerate(used)}
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{names[found[1]]}"' if found[1] in names else "", svg)
    svg = re.sub(r' xlink:href="#([^"]*)"', lambda found: f' href="#{names[found[1]]}"', svg)
    return re.sub(r"url\(#([^)]*)\)", lambda found: f"url(#{names[found[1]]})", svg)


def _rounded(found: re.Match[str]) -> str:
    value = float(found[0])
    if abs(value) < 1:  # a scale or an opacity
        return f"{value:.3g}" if abs(value) >= 0.001 else "0"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _tight(path: str) -> str:
    return re.sub(r" ?([A-Za-z]) ?", r"\1", " ".join(path.split()))


def _shared_style(found: re.Match[str]) -> str:
    """Return marks of one style in a group that has it once."""
    style = found[1]
    return f'<g style="{style}">' + found[0].replace(f' style="{style}"', "") + "</g>"


def _shared_place(found: re.Match[str]) -> str:
    """Return strokes of one style and clipping in a group that has both once."""
    place, style = found.groups()
    if re.search(r"(?<![\w-])opacity", style):  # of a group it is not that of each of its strokes
        return found[0]
    return f'<g{place} style="{style}">' + "".join(f'<path d="{d}"/>' for d in _PATH.findall(found[0])) + "</g>"
