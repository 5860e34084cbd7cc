"""What can be measured on this machine: one file for each thing that is looked at, each gives `Check`s.

None of them changes anything, and none needs a right that the user lacks. `root` is where `/proc`, `/sys` and `/dev`
are looked for.
"""
