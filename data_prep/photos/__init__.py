"""Make try-on samples from photographs of people and garments."""

BLAZEPOSE = 'weights/blazepose'  # folder of the pose networks, where `pipelines.fetch blazepose` saves them
