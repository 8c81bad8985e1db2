"""The workbench: widgets connected to sessions and clusters."""
