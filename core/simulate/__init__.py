"""The scheduler and its events with a cost model in place of a model; labelled simulated."""
