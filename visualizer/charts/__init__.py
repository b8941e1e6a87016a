"""Figures made with Plotly, from traces and comparisons."""
