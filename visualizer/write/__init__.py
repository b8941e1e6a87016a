"""The Write tab: tasks whose answer is a batching policy, and exercises checked by cases."""
