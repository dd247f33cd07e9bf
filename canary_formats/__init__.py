"""The canary formats that ship with lmexposure: one TOML file each, no code."""
