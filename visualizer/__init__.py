"""The page on which a run is watched. Reads traces and events; starts and stops engines only through core's public names."""
