"""The picture of the page "Which loss?", in which every question and every leaf is a link.

There are two drawings in SVG, and a rule of website/site.css shows one of them: from left to right
where a screen is wide enough, else from top to bottom.
"""

import html
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from milbench.advice import Advice, Leaf, Question, advice, tried_first
from website.advice import Way, anchor, heading, in_order

PLACEHOLDER = "<!-- picture -->"
"""The comment of docs/which-loss.md that the picture replaces."""
SCRIPT = '<script src="assets/which-loss.js"></script>'

LINE = 17
"""The height of a line of text. All lengths are in units of the drawing, about pixels."""
PADDING = 9
"""The space between the edge of a box and its text."""
LETTER = 8
"""The width of a bold letter on average, rounded up."""
GAP = 22
"""The space between two columns of the wide drawing."""
QUESTION_WIDTH = 172
LEAF_WIDTH = 276
NARROW_WIDTH = 350
INDENT = 14
"""How far the narrow drawing moves a box to the right of its question."""
SPACE = 8
"""The space between two boxes, one below the other."""


@dataclass(frozen=True)
class Node:
    """A question or a leaf, and the way to it."""

    way: Way
    entry: Question | Leaf

    @property
    def answer(self) -> str:
        """The answer that leads here; "" at the first question."""
        return self.way[-1][1].says if self.way else ""

    @property
    def text(self) -> str:
        """What is asked, or what to try first."""
        if isinstance(self.entry, Question):
            return self.entry.asks
        return tried_first(self.entry).replace("`", "")


@dataclass(frozen=True)
class Box:
    """The place of a node in a drawing."""

    node: Node
    x: float
    y: float
    """The upper edge."""
    width: float

    @property
    def lines(self) -> list[str]:
        """The text of the node, wrapped."""
        return textwrap.wrap(self.node.text, int((self.width - 2 * PADDING) / LETTER))

    @property
    def height(self) -> float:
        """The height, which depends on the text."""
        rows = len(self.lines) + bool(self.node.answer)
        return rows * LINE + 2 * PADDING

    @property
    def middle(self) -> float:
        """Half way between the upper and the lower edge."""
        return self.y + self.height / 2


def filled(page: str) -> str:
    """Return the page, in HTML, with the picture in its place, and the script of the page.

    Raises:
        ValueError: the page has lost the comment that the picture replaces.
    """
    if PLACEHOLDER not in page:
        raise ValueError(f"docs/which-loss.md lacks {PLACEHOLDER}")
    nodes = nodes_of(advice())
    drawings = drawing("wide", wide(nodes)) + drawing("narrow", narrow(nodes))
    return page.replace(PLACEHOLDER, f'<div class="advice">{drawings}</div>') + SCRIPT


def nodes_of(made: Advice) -> list[Node]:
    """Return all questions and leaves. What follows a question stands behind it."""
    return [Node(way, entry) for way, entry in in_order(made)]


def wide(nodes: Sequence[Node]) -> list[Box]:
    """Return boxes from left to right: a column for each question on the way, and one of leaves."""
    deepest = max(len(node.way) for node in nodes)
    middles = middles_of(nodes)
    boxes = []
    for node in nodes:
        is_leaf = isinstance(node.entry, Leaf)
        column = deepest if is_leaf else len(node.way)
        width = LEAF_WIDTH if is_leaf else QUESTION_WIDTH
        box = Box(node, x=column * (QUESTION_WIDTH + GAP), y=0, width=width)
        boxes.append(replace(box, y=middles[node.way] - box.height / 2))
    return boxes


def middles_of(nodes: Sequence[Node]) -> dict[Way, float]:
    """Return how far down each node is in the wide drawing.

    Leaves are below one another. A question is half way between what follows it.
    """
    middles = {}
    y = 0.0
    for node in nodes:
        if isinstance(node.entry, Leaf):
            leaf = Box(node, x=0, y=y, width=LEAF_WIDTH)
            middles[node.way] = leaf.middle
            y += leaf.height + SPACE
    # Backwards, a question comes after all that follows it.
    for node in reversed(nodes):
        if isinstance(node.entry, Question):
            below = [middle for way, middle in middles.items() if way[:-1] == node.way]
            middles[node.way] = (min(below) + max(below)) / 2
    return middles


def narrow(nodes: Sequence[Node]) -> list[Box]:
    """Return boxes from top to bottom. What follows a question is below it, and further right."""
    boxes = []
    y = 0.0
    for node in nodes:
        x = INDENT * len(node.way)
        box = Box(node, x, y, NARROW_WIDTH - x)
        boxes.append(box)
        y += box.height + SPACE
    return boxes


def drawing(name: str, boxes: Sequence[Box]) -> str:
    """Return boxes and the lines between them as SVG. The name is the class of the element."""
    width = max(box.x + box.width for box in boxes)
    height = max(box.y + box.height for box in boxes)
    by_way = {box.node.way: box for box in boxes}
    # The first question has no line that leads to it.
    lines = [_line(name, by_way[box.node.way[:-1]], box) for box in boxes[1:]]
    links = [_box(box) for box in boxes]
    # The edge of a box is half outside it.
    return (
        f'<svg class="{name}" role="group" aria-label="All questions and what to try first" '
        f'viewBox="-2 -2 {width + 4:g} {height + 4:g}" style="max-width:{width + 4:g}px">'
        f"{''.join(lines + links)}</svg>"
    )


def _line(name: str, question: Box, box: Box) -> str:
    """Return the line from a question to what follows it."""
    if name == "wide":
        right = question.x + question.width
        path = f"M{right:g} {question.middle:g}h{GAP / 2:g}V{box.middle:g}H{box.x:g}"
    else:
        below = question.y + question.height
        path = f"M{question.x + INDENT / 2:g} {below:g}V{box.middle:g}H{box.x:g}"
    return f'<path d="{path}"/>'


def _box(box: Box) -> str:
    """Return a box as a link to its section."""
    x = box.x + PADDING
    # The baseline of letters is a little above the lower edge of their line.
    y = box.y + PADDING + 0.75 * LINE
    texts = []
    if box.node.answer:
        texts.append(f'<text class="answer" x="{x:g}" y="{y:g}">{_escaped(box.node.answer)}</text>')
        y += LINE
    for line in box.lines:
        texts.append(f'<text x="{x:g}" y="{y:g}">{_escaped(line)}</text>')
        y += LINE
    kind = "question" if isinstance(box.node.entry, Question) else "leaf"
    edge = f'width="{box.width:g}" height="{box.height:g}" rx="5"'
    return (
        f'<a class="{kind}" href="#{anchor(heading(box.node.entry))}">'
        f'<rect x="{box.x:g}" y="{box.y:g}" {edge}/>{" ".join(texts)}</a>'
    )


def _escaped(text: str) -> str:
    return html.escape(text)
