"""First pictures of a scan without a reconstruction: virtual detectors, deflections, and the weak-phase model."""
