"""The serving engine behind HTTP: routes, what guards them, and the shapes of what comes and goes."""
