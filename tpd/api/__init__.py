"""The public Python API, exported by `tpd`; runs the same code as the command line."""
