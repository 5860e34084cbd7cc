"""Which of a program's loaders trains, and where its steps begin and end."""
