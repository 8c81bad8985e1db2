"""An engine's share of the patterns: reading, storage and prefetching."""
