"""What live view, pages and exports take."""
