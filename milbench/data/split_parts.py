"""The parts of a split, and the names that people write for them."""

SPLITS = ("train", "validation", "test")
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
"""The parts of a split by the names that people write."""
