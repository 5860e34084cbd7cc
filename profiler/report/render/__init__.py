"""Documents as text, as parts of a page, and as Markdown."""
