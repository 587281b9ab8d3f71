"""Plug-ins, code of users: how it is imported, and what tells its versions apart."""
