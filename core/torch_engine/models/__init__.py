"""From a name to a model that can be run packed, probed before use."""
