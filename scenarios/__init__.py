"""The trainings of the published studies, their data, and what runs them."""
