"""What has to be known from a GPU: `scripts/gpu_check.sh` runs it, in stages, and keeps what was seen.

Whatever needs no GPU is played in the tests on a stand-in for torch.cuda, so that the checks themselves work when there
is one at last.
"""
