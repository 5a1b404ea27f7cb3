"""What pages of `pipelines.reproduce` show besides numbers of runs: a module each, with `draw(study, …) -> Exhibit`."""
