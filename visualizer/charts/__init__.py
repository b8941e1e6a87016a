"""Plotly's figures as plain data, from traces and comparisons."""
