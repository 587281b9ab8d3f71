"""Reading strings of digits: decoders turn the class probabilities of positions into strings."""
