"""Fresh processes: each call of a function has one of its own, so that nothing it does reaches another call."""
