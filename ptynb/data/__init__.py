"""Plain records of what is measured, where, and what came of it: no torch, no widgets."""
