"""Nouns that agree with their numbers, and names as they appear in sentences."""

import re


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, such as "3 seeds".

    By default the plural is the noun with an s.
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {plural or f'{noun}s'}"


def readable(label: str) -> str:
    """Return the label of a loss or task as in a sentence, with its parameters in brackets.

    A parameter whose value is a word appears without its key.

    Examples:
        >>> readable("noisy-or head=softmax with gru")
        'noisy-or (softmax) with gru'
        >>> readable("extended-digits digits_per_bag=2")
        'extended-digits (digits_per_bag=2)'
    """
    return re.sub(r"(?: [\w.]+=[^\s()]+)+", _in_brackets, label)


def _in_brackets(settings: re.Match[str]) -> str:
    """Return settings such as " head=softmax k=2" in brackets."""
    texts = [_readable_setting(setting) for setting in settings[0].split()]
    return f" ({', '.join(texts)})"


def _readable_setting(setting: str) -> str:
    """Return the value of KEY=VALUE if it is a word, else the whole setting.

    A number alone would not say what it is.
    """
    value = setting.partition("=")[2]
    is_word = re.match("[a-z]", value) and value not in ("true", "false")
    return value if is_word else setting


def capital(text: str) -> str:
    """Return a text with a capital first letter, and the other letters as they are."""
    return text[:1].upper() + text[1:]
