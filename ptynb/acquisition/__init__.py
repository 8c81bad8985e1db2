"""Live acquisition: patterns and positions that come from a detector, a file in writing or a control system.

`listen` starts a receiver, a process of its own, which takes `messages` from a source of patterns and one of positions,
joins them by number (never by the order in which they come) and writes them to the scan's file (`spool`). Sources
connect to what the user named and read; they never control a detector. `emulators` play a stored scan as each
source would send it, with faults.
"""
