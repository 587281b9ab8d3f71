"""Fresh processes: each call gets one of its own, so that it cannot affect another call."""
