"""What users import from `tpd` itself; it does what the command line does, through the same code."""
