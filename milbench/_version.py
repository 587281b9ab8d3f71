"""The version, in a file of its own that imports nothing, so that building the package can read it."""

__version__ = "0.1.0"
