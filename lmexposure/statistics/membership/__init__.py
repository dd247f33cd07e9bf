"""Telling members from others; `lmexposure.statistics` has the names."""
