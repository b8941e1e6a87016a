"""Another policy on the requests of an engine that serves: simulated beside it at once, and run for real while it is idle."""
