"""What `pipelines.init` is made of: looking at data, recipes, calibration, planning and writing, each a file."""
