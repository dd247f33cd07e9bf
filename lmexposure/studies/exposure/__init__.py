"""A measurement of exposure: its record, what lies next to it, its checks, tables and charts."""
