"""Parts of `pipelines.init`: inspecting data, recipes, calibration, planning and writing."""
