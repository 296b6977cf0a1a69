"""The chat in the browser: a second face of the same loop. Nothing imports it."""
