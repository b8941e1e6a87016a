"""Figures of traces and comparisons, as the JSON that plotly.js takes."""
