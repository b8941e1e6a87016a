"""Pictures made with Plotly: one `figure` each, from a trace."""
