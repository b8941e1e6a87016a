"""Inflight's page: `python app.py`, or a Space. Watch continuous batching on a real engine, step by step."""

from visualizer.ui import launch

if __name__ == "__main__":
    launch()
