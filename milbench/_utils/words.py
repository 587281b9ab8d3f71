"""Words that agree with numbers, and names as sentences have them."""

import re


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, such as 3 seeds."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def readable(label: str) -> str:
    """Return the label of a loss or task as a sentence names it: its parameters in brackets, without plain keys.

    Examples:
        >>> readable("noisy-or head=softmax with gru"), readable("extended-digits digits_per_bag=2")
        ('noisy-or (softmax) with gru', 'extended-digits (digits_per_bag=2)')
    """
    return re.sub(
        r"(?: [\w.]+=[^\s()]+)+",
        lambda match: f" ({', '.join(map(_value, match[0].split()))})",
        label,
    )


def _value(setting: str) -> str:
    value = setting.partition("=")[2]
    return value if re.match("[a-z]", value) and value not in ("true", "false") else setting


def capital(text: str) -> str:
    """Return a text whose first letter is a capital; the others stay."""
    return text[:1].upper() + text[1:]
