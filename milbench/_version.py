"""The version, alone in a file that needs nothing imported to be read."""

__version__ = "0.1.0"
