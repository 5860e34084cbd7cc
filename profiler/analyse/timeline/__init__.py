"""A run laid out over time: what reports draw and exports hand on."""
