"""Lower bounds on epsilon, each with its proof; `lmexposure.statistics` gives their names."""
