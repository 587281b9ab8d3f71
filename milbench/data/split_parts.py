"""The parts of a split, and the names that people write for them."""

SPLITS = ("train", "validation", "test")
"""The parts of a split."""
PARTS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "val": "validation",
    "valid": "validation",
    "validate": "validation",
    "dev": "validation",
    "tune": "validation",
    "tuning": "validation",
    "test": "test",
    "testing": "test",
}
"""Name of a part, as people write it in lower case -> the part."""
