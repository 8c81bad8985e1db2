"""What readers of all formats share: units, axes, links, memory, and the scan that is made of what was found."""
