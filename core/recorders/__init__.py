"""Recordings of other engines: what runs inside those engines, and what opens their files as
traces.
"""
