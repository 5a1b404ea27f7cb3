"""Other formats of a trained model: their export, the gate they pass, and how their folders are run."""
