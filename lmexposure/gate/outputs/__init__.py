"""A verdict in the forms that people, build servers and code hosts read."""
