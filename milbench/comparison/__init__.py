"""The Python interface: compute a comparison, or open one that was computed, and look at it as frames and figures."""
