"""Named expressions: every number and every request that a lesson mentions is one of these, computed from a recorded run. A file a subject.
Composes no words.
"""

from visualizer.lessons.facts import company, engines, measured, memory, requests, run, step
from visualizer.lessons.facts.fact import FACTS, Share, Value, Who, value

__all__ = ["FACTS", "Share", "Value", "Who", "company", "engines", "measured", "memory", "requests", "run", "step", "value"]
