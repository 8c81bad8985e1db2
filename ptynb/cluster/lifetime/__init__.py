"""End of clusters, and search for orphans."""
