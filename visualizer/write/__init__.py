"""Write the scheduler: tasks whose answer is a batching policy, run on the engine and measured in
numbers of the run. Standard library and core alone.
"""
