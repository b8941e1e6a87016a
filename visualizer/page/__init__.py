"""The page as text and files: scripts, styles, markup, tabs, the static site."""
