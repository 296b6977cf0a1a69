"""The chat's tool menu: the shared tools under the names of the chat, and the tools for uploaded files."""
