"""The JSON of each kind of result. Null means not measured."""
