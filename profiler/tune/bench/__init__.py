"""A training under way whose loader takes orders, and its end."""
