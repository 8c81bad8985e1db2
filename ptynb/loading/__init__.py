"""An engine's share of the patterns: read, kept, and prefetched."""
