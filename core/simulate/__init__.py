"""The same scheduler and events on a cost model, labelled as simulated."""
