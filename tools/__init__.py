"""What a maintainer runs to release ptynb; none of it is installed with the package."""
