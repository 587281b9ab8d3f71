"""Processes in which functions are called: what ends one of them ends no other."""
