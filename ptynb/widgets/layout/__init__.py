"""The layout of views: pictures that fill the window beside controls, drawers, and a tab of their own."""
