"""Fresh processes: each call of a function gets its own, so that nothing it does affects another call."""
