"""Engine processes: started, reached, watched and ended."""
