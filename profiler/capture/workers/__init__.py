"""What is done inside a loader's workers, and in a training that makes its batches itself.

- `worker_loop` runs torch's own loop in a worker: begins the worker's files, numbers batches by the orders it gets.
- `fetchers` stands around torch's fetch; `fetch_timing` looks at one batch from its begin to its end, and records it.
- `counters` reads what the kernel counts for the thread meanwhile.
- `slowest_sample` and `transform_timing` look into the batch: samples one by one, for a few batches transforms as well.
- `hook` tells all that in the training for which iterator a worker is started, and watches batches made there.

Nothing here travels with a batch. A worker writes records of its own, and they say which iterator the batch was made
for and its number there; the training's steps say the same of the batch they were given. Of the user's objects none
has another class meanwhile, and none is another afterwards.
"""
