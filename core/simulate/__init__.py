"""The same scheduler and events with a cost model for a model; runs are labelled simulated."""
