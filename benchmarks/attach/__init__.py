"""How far `whyidle attach` is from the truth."""
