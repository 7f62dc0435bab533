"""`firsttoken`, the command line: validate, plan and render files without a cluster; ask a cluster for status."""
