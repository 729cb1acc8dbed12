"""Generated from `proto/pinfold/v1` by `make stubs`."""
