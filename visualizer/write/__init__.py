"""The Write tab: tasks whose answer is a batching policy, and exercises that are checked by
cases.
"""
