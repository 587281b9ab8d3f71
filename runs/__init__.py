"""The built-in run specs (*.toml); the store of a checkout lies beside them, untracked."""
