"""The forward model: functions on tensors, and thin modules over them. Signs and units: `ptynb/conventions.md`."""
