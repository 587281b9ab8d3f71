"""Drawings of bags, one for each kind: for tasks whose bags are not shown.

They are SVG in the colours of the page, and show no data.
"""

from milbench.contracts.network import BagKind

_FRAME = '<svg viewBox="0 0 160 100" role="img" aria-label="{alt}">{parts}</svg>'
_IMAGE = (
    '<rect x="30" y="8" width="100" height="84"/>'
    '<rect class="first" x="42" y="18" width="34" height="34"/>'
    '<rect class="second" x="86" y="46" width="34" height="34"/>'
    '<text x="59" y="39" text-anchor="middle">cat</text>'
    '<text x="103" y="67" text-anchor="middle">dog</text>'
)
_SEQUENCE = (
    '<rect x="8" y="34" width="144" height="32"/>'
    '<rect class="first" x="28" y="34" width="30" height="32"/>'
    '<rect class="second" x="92" y="34" width="42" height="32"/>'
    '<text x="43" y="54" text-anchor="middle">cat</text>'
    '<text x="113" y="54" text-anchor="middle">dog</text>'
    '<text x="80" y="84" text-anchor="middle">time</text>'
)
_WORDS_OF_SET = {1: "cat", 5: "dog"}
_KINDS_OF_SET = {1: "first", 5: "second"}
"""The instances of the drawn set that show a class, and how their frames look, by number."""


_IMAGE_OF_ONE = (
    '<rect class="first" x="30" y="8" width="100" height="84"/>'
    '<text x="80" y="54" text-anchor="middle">cat</text>'
)


def drawing(kind: BagKind, *, of_one_instance: bool) -> str:
    """Return a drawing of a bag, in which a cat and a dog are shown, or of an image of a cat."""
    if of_one_instance:
        return _FRAME.format(alt="An image that shows a cat and nothing else", parts=_IMAGE_OF_ONE)
    if kind == "images":
        return _FRAME.format(alt="An image with a cat and a dog in it", parts=_IMAGE)
    if kind == "sequences":
        return _FRAME.format(alt="A recording with a cat and then a dog", parts=_SEQUENCE)
    return _FRAME.format(alt="A set of instances, a cat and a dog among them", parts=_set())


def _set() -> str:
    """Return eight instances in two rows."""
    parts = []
    for number in range(8):
        left = 10 + number % 4 * 36
        top = 14 + number // 4 * 40
        words = _WORDS_OF_SET.get(number, "")
        kind = _KINDS_OF_SET.get(number, "")
        parts.append(f'<rect class="{kind}" x="{left}" y="{top}" width="30" height="30"/>')
        parts.append(f'<text x="{left + 15}" y="{top + 19}" text-anchor="middle">{words}</text>')
    return "".join(parts)
