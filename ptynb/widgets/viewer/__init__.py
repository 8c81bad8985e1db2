"""The image viewer: its widget, and its code for the browser."""
