"""How batches are made: in the worker processes of torch's loader, or in the training itself.

Nothing here travels with a batch. A worker writes records of its own, and they say which iterator the batch was made
for and its number there; the training's steps say the same of the batch they were given.
"""
