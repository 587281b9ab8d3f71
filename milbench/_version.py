"""The version, in a file that imports nothing, so that the build of the package can read it."""

__version__ = "0.1.0"
