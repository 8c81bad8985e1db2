"""Protocols of live sources: what a detector or a motion controller sends, as `messages`."""
