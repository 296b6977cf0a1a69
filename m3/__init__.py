"""The wing behind the front rooms: parser, search, fetch, extraction, grounding, reports."""
