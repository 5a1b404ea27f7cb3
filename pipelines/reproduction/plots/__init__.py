"""Plots and further numbers for pages of `pipelines.reproduce`: one module each, with `draw(study, …) -> Exhibit`."""
