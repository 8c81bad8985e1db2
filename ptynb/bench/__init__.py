"""What joins widgets and driver: the workbench and its parts."""
