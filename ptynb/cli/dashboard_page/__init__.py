"""The page of `ptynb dashboard`."""
