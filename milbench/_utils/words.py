"""Words that agree with numbers."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, such as 3 seeds."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
