"""The same scheduler and events with a cost model in place of a model; runs are labelled
simulated.
"""
