"""The chat's server: routes, the guard before them, uploaded files, and runs of the loop as streams of events."""
