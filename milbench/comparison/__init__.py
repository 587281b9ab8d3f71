"""The Python interface: compute a comparison, or open one, and look at it as frames and figures."""
