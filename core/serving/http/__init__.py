"""The serving engine behind HTTP: routes, their guards, and the schemas of requests and answers."""
