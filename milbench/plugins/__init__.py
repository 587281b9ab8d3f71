"""Code of users: how it is imported, and what tells one version of it from another."""
